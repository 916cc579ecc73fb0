"""Which world runs the Programs of a check, as plain data that goes from process to process."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from allranks.conformance.backend import Backend, load_backend
from allranks.conformance.launchers import LAUNCHERS, Launcher, launch
from allranks.conformance.narrowing import Contract, narrowings_of
from allranks.errors import UsageError

WorldKind = Literal["threads", "mpi"]
WORLDS: Final[tuple[WorldKind, ...]] = get_args(WorldKind)
DEADLINE_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldChoice:
    """What runs Programs.

    Parameters
    ----------
    kind : {"threads", "mpi"}
        Threads of one process under the turnstile, or processes that a launcher starts.
    launcher : {"mpiexec", "srun", "torchrun", "none"}
        What starts them; "none": they are there already, and this process is the first of them.
    deadline_s : float
        How long a rank may come no further.
    nodes : int
        Nodes that the ranks of this machine shall think they are on.
    strict : bool
        Whether Programs also go beyond what the library's contract offers.
    """

    kind: WorldKind = "threads"
    launcher: Launcher = "mpiexec"
    deadline_s: float = DEADLINE_S
    nodes: int = 1
    strict: bool = False

    def contract(self, backend: Backend) -> Contract:
        """Give what Programs are brought within."""
        return Contract(() if self.strict else narrowings_of(backend))

    def room(self, devices: int, max_ranks: int) -> int:
        """Give how many ranks a Program may have."""
        return devices if self.kind == "threads" else max_ranks

    @property
    def wire(self) -> str:
        """Give what ranks talk over: MPI, or the store of ``torchrun``, if that has started them."""
        if self.launcher == "none":
            return "store" if "TORCHELASTIC_RUN_ID" in os.environ else "mpi"
        return "store" if self.launcher == "torchrun" else "mpi"

    def make(self, backend: str, ranks: int, beat: Callable[[], None] = lambda: None) -> Any:
        """Make the world; None: the one of threads, which an engine makes for itself.

        Raises
        ------
        allranks.errors.UsageError
            If something that it needs is missing.
        """
        if self.kind == "threads":
            return None
        from allranks.conformance.worlds.crew import LaunchedCrew
        from allranks.conformance.worlds.launched import LaunchedWorld

        told = {"backend": backend, "wire": self.wire, "deadline_s": self.deadline_s}
        crew = LaunchedCrew(launch(self.launcher, ranks, nodes=self.nodes), ranks, told, beat=beat)
        return LaunchedWorld(load_backend(backend), crew, deadline_s=self.deadline_s, beat=beat)


def choice_of(
    backend: Backend,
    *,
    world: str | None = None,
    launcher: str | None = None,
    deadline_s: float = DEADLINE_S,
    nodes: int = 1,
    strict: bool = False,
) -> WorldChoice:
    """Check what was asked for; what was not is as the backend wants it.

    Raises
    ------
    allranks.errors.UsageError
        For the first thing that is wrong.
    """
    spaces = getattr(backend, "memory_spaces", ("device",))
    kind = world or ("threads" if "device" in spaces else "mpi")
    if kind not in WORLDS:
        raise UsageError(f"world={kind!r}: one of {', '.join(WORLDS)}")
    if kind == "threads":
        if "device" not in spaces:
            raise UsageError(f"world='threads': backend {backend.name} works on host memory; take world mpi")
        for name, given in (("launcher", launcher), ("nodes", nodes if nodes != 1 else None)):
            if given is not None:
                raise UsageError(f"{name}={given!r}: only for world mpi; backend {backend.name} runs in world threads")
        return WorldChoice(strict=strict)
    if "host" not in spaces:
        raise UsageError(
            f"world='mpi': backend {backend.name} works on device memory, which there is none of without a GPU; "
            "world threads has a simulated one"
        )
    chosen = launcher or getattr(backend, "launcher", "mpiexec")
    if chosen not in LAUNCHERS:
        raise UsageError(f"launcher={chosen!r}: one of {', '.join(LAUNCHERS)}")
    if not 0 < deadline_s < float("inf"):
        raise UsageError(f"deadline={deadline_s}: seconds, more than 0")
    if nodes < 1:
        raise UsageError(f"nodes={nodes}: a whole number from 1 on")
    if nodes > 1 and chosen != "mpiexec":
        raise UsageError(f"nodes={nodes}: nodes are simulated with launcher mpiexec only")
    return WorldChoice(kind="mpi", launcher=chosen, deadline_s=deadline_s, nodes=nodes, strict=strict)
