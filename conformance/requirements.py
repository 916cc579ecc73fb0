"""The requirements that have checks: what a conforming communicator does.

Each holds for every per-rank sequence of buffers and every interleaving, from one rank on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from allranks.errors import UsageError

Level = Literal["must", "should"]
Family = Literal["RDV", "CACHE", "NVLS", "LIFE", "COLL"]

FAMILIES: Final[tuple[Family, ...]] = ("RDV", "CACHE", "NVLS", "LIFE", "COLL")


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One thing that a conforming communicator does.

    Parameters
    ----------
    id : str
        ``"CACHE-2"``.
    statement : str
        What holds.
    capabilities : tuple of str
        What a backend needs, one of them at least, for the requirement to apply; empty: always.
    origins : tuple of str
        Public reports of what goes wrong without it.
    level : {"must", "should"}
        Whether breaking it fails a run.
    """

    id: str
    statement: str
    capabilities: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    level: Level = "must"

    @property
    def family(self) -> str:
        """The part of the id before the dash."""
        return self.id.partition("-")[0]


def _all(*requirements: Requirement) -> dict[str, Requirement]:
    return {requirement.id: requirement for requirement in requirements}


REQUIREMENTS: Final = _all(
    Requirement(
        id="RDV-1",
        statement="Within declared limits a collective step succeeds on every rank; none blocks while others go on.",
        origins=("microsoft/mscclpp#388", "microsoft/mscclpp#417", "openxla/xla#39372"),
    ),
    Requirement(
        id="RDV-2",
        statement="Whether a step enters an internal rendezvous is the same on every rank, whatever changed on which.",
        capabilities=("rendezvous_count",),
        origins=("microsoft/mscclpp#388", "openxla/xla#45406", "NVIDIA/TensorRT-LLM#17705"),
    ),
    Requirement(
        id="CACHE-1",
        statement="A channel reaches the memory that the peer's buffer occupies now, and nothing else.",
        capabilities=("channels",),
        origins=("microsoft/mscclpp#649", "ROCm/rccl#1615"),
    ),
    Requirement(
        id="CACHE-2",
        statement="After a buffer is freed and its address given again, the old entry is never used.",
        capabilities=("channels",),
        origins=("openucx/ucx#2738", "ofiwg/libfabric#7893", "pmodels/mpich#7302"),
    ),
    Requirement(
        id="CACHE-3",
        statement="The same base with another extent, or with new physical memory, is another entry.",
        capabilities=("channels",),
        origins=("NVIDIA/nccl#1828", "openucx/ucx#3030", "lattice/quda#1629"),
    ),
    Requirement(
        id="CACHE-4",
        statement="Two regions of one allocation are each reached at their own offset, also when ranks differ in it.",
        capabilities=("channels",),
        origins=("microsoft/mscclpp#649", "pmodels/mpich#7821"),
    ),
    Requirement(
        id="NVLS-1",
        statement="With several buffers bound to one multicast object, each one's address reaches it on every rank.",
        capabilities=("multicast",),
        origins=("microsoft/mscclpp#535",),
    ),
    Requirement(
        id="NVLS-2",
        statement="A binding has the same offset on every rank, in whatever order ranks bind and unbind; or all fail.",
        capabilities=("multicast",),
        origins=("pytorch/pytorch#195596",),
    ),
    Requirement(
        id="NVLS-3",
        statement="Offsets are multiples of the granularity, and bindings do not overlap.",
        capabilities=("multicast",),
        origins=("openxla/xla#47406", "microsoft/mscclpp#554"),
    ),
    Requirement(
        id="NVLS-4",
        statement="Unbinding makes a range unreachable, and frees it for the next binding.",
        capabilities=("multicast",),
        origins=("NVIDIA/nccl#2117",),
    ),
    Requirement(
        id="NVLS-5",
        statement="No room is an error on every rank, and what was bound before still works.",
        capabilities=("multicast",),
        origins=("microsoft/mscclpp#554", "NVIDIA/nccl#1584"),
    ),
    Requirement(
        id="LIFE-1",
        statement="After close nothing is left: memory, objects, bindings, mappings, reservations, handles or fds.",
        origins=("pytorch/pytorch#177459", "NVIDIA/nccl#2087"),
    ),
    Requirement(
        id="LIFE-2",
        statement="Over a loop of create and destroy nothing grows.",
        origins=("microsoft/mscclpp#535", "microsoft/mscclpp#759", "microsoft/mscclpp#533"),
    ),
    Requirement(
        id="LIFE-3",
        statement="Objects may be let go in any order, on each rank in another one.",
        origins=("pytorch/pytorch#163750", "pytorch/pytorch#160289"),
    ),
    Requirement(
        id="COLL-1",
        statement="A collective gives the values of its definition, for every dtype, operation, count and offset.",
        capabilities=("all_reduce", "all_gather"),
        origins=("ROCm/rccl#1615",),
    ),
    Requirement(
        id="COLL-2",
        statement="Every rank gets the same bits.",
        capabilities=("all_reduce", "all_gather"),
    ),
    Requirement(
        id="COLL-3",
        statement="Inputs are unchanged, and not one byte outside the output is written.",
        capabilities=("all_reduce", "all_gather"),
    ),
)


def select(names: list[str]) -> tuple[str, ...]:
    """Give the ids that the names mean: ids, families, or everything when there are none.

    Raises
    ------
    allranks.errors.UsageError
        If a name is neither.
    """
    if not names:
        return tuple(REQUIREMENTS)
    chosen: list[str] = []
    for name in names:
        found = [known for known, requirement in REQUIREMENTS.items() if name.upper() in (known, requirement.family)]
        if not found:
            raise UsageError(f"requirement={name!r}: known are {', '.join(REQUIREMENTS)}, and the families of these")
        chosen += [known for known in found if known not in chosen]
    return tuple(chosen)
