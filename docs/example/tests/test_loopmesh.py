"""loopmesh conforms, and with a fault in it, it is found not to."""

from pathlib import Path

import loopmesh
import pytest
from loopmesh_backend import LoopmeshBackend

from allranks.conformance import ConformanceError, run_conformance

_CHANNELS = ("CACHE-1", "CACHE-2", "CACHE-3", "CACHE-4", "CACHE-5")
_OTHERS = ("RDV-1", "RDV-5", "RDV-6", "LIFE-7", "COLL-1", "COLL-2", "COLL-3")


def test_conforms(tmp_path: Path) -> None:
    """What can be seen of a communicator in host memory is as it should be."""
    result = run_conformance(LoopmeshBackend, ranks=4, requirements=(*_CHANNELS, *_OTHERS), case_dir=tmp_path)
    assert {result.status(name) for name in result.requirements} == {"pass"}


class OwnCacheMesh(loopmesh.Mesh):
    """Gives the channels that it has if this rank's region is the same, whatever those of the others are."""

    def connect(self, address: int, size_bytes: int) -> loopmesh.Channels:
        """Look the region up."""
        made: dict[tuple[int, int], loopmesh.Channels] = self.__dict__.setdefault("made", {})
        if (address, size_bytes) not in made:
            made[address, size_bytes] = super().connect(address, size_bytes)
        return made[address, size_bytes]


class OwnCacheBackend(LoopmeshBackend):
    """The mesh with that cache."""

    mesh = OwnCacheMesh


class BesideMesh(loopmesh.Mesh):
    """Writes what its last rank gathers a byte too far."""

    def all_gather(self, send: int, receive: int, count: int, dtype: str) -> None:
        """Gather, beside the place on one rank."""
        super().all_gather(send, receive + (self.rank == self.size - 1), count, dtype)


class BesideBackend(LoopmeshBackend):
    """The mesh with that offset."""

    mesh = BesideMesh


@pytest.mark.parametrize(
    ("backend", "requirement", "step"), [(OwnCacheBackend, "RDV-1", "connect"), (BesideBackend, "COLL-1", "all_gather")]
)
def test_a_fault_is_found(backend: type[LoopmeshBackend], requirement: str, step: str, tmp_path: Path) -> None:
    """A cache that each rank asks for itself keeps ranks apart; an offset of one rank gives it wrong bytes."""
    with pytest.raises(ConformanceError, match=rf"{requirement} is broken in step \d+ \({step}\)"):
        run_conformance(
            backend,
            ranks=2,
            programs=10,
            requirements=(requirement,),
            case_dir=tmp_path,
            deadline_s=1,
            reduce_s=5,
        )
    assert list(tmp_path.glob(f"{requirement}-*.json"))
