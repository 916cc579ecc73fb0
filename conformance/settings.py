"""What a check is asked for: which backend, requirements, world, and how much of it. Every front end makes these."""

from __future__ import annotations

import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from allranks import sim
from allranks.conformance.backend import Backend, load_backend, spaces_of
from allranks.conformance.casefile import Case
from allranks.conformance.cases import shipped
from allranks.conformance.checks import FAULTED
from allranks.conformance.engine import CASES, FAULTS, families_of
from allranks.conformance.expected import NOTHING_EXPECTED, Expected, load_expected
from allranks.conformance.launchers import Launch, Launcher, launch, launcher_of
from allranks.conformance.requirements import select
from allranks.conformance.worker import Job
from allranks.conformance.worlds.hardware import DriverName, check_driver, check_gpus
from allranks.conformance.worlds.processes.world import DEADLINE_S
from allranks.conformance.worlds.threads import QUIET_TIMEOUT_S
from allranks.errors import UsageError

# Generated Programs a family. `ci` draws the same Programs in every run, whatever the seed.
EFFORT: Final = {"quick": 40, "ci": 100, "standard": 400, "deep": 4000}
DEFAULT_EFFORT: Final = "standard"
DEFAULT_MACHINE: Final = "h100"
DEFAULT_RANKS: Final = 4
MOST_RANKS: Final = 128
CASE_DIR: Final = Path("allranks-cases")
_DEVICES: Final = 8
_SHORTEST_DEADLINE_S: Final = 0.1  # what a busy machine may keep a rank waiting for its processor

WorldName = Literal["threads", "processes", "mpi"]
WORLDS: Final = typing.get_args(WorldName)
REDUCE_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What to check, and how; made by `settings_of`, which checks it.

    Parameters
    ----------
    backend : str
        Name, or ``module:Class``.
    machine : sim.Machine
        What it runs on.
    ranks : int
        Ranks at most.
    seed : int
        What the Programs depend on.
    programs : int
        Programs a family.
    requirements : tuple of str
        Which checks to apply.
    expected : Expected
        What is known to fail.
    quiet_timeout_s : float
        Real seconds that a backend may stay away from the driver.
    world : {"threads", "processes", "mpi"}
        Where ranks run.
    deadline_s : float
        Seconds without progress that end a run in a world of processes.
    reduce_s : float
        Seconds for making small what is found there.
    launcher : {"mpiexec", "srun", "torchrun", "none"}
        What starts the ranks of world `mpi`; "none": it has done so, and this process is one of them.
    nodes : int
        Nodes that the ranks of world `mpi` shall think they are on, all of which are this machine.
    launch : Launch, optional
        The command that starts the ranks of world `mpi`; None: there is none to be started.
    strict : bool
        Whether Programs also go beyond what the library's contract offers.
    driver : {"sim", "cuda"}
        Whose the device memory is; "cuda": real GPUs, one for each rank of world `processes`.
    """

    backend: str
    machine: sim.Machine
    ranks: int
    seed: int
    programs: int
    requirements: tuple[str, ...]
    expected: Expected
    quiet_timeout_s: float
    world: WorldName = "threads"
    deadline_s: float = DEADLINE_S
    reduce_s: float = REDUCE_S
    launcher: Launcher = "mpiexec"
    nodes: int = 1
    launch: Launch | None = None
    strict: bool = False
    driver: DriverName = "sim"

    @property
    def together(self) -> bool:
        """Whether this process is one of the ranks."""
        return self.world == "mpi" and self.launcher == "none"

    @property
    def sources(self) -> list[str]:
        """Where Programs come from: the shipped cases, the families and the faults that the requirements need."""
        faults = [] if FAULTED.isdisjoint(self.requirements) or self.world != "threads" else [FAULTS]
        return [CASES, *families_of(self.requirements), *faults]

    def job(self, source: str) -> Job:
        """Give the job that runs the Programs of a source."""
        return Job(
            backend=self.backend,
            machine=self.machine,
            requirements=self.requirements,
            seed=self.seed,
            max_ranks=self.ranks,
            quiet_timeout_s=self.quiet_timeout_s,
            source=source,
            count=self.programs,
            strict=self.strict,
        )

    def total(self, source: str) -> int | None:
        """Give how many Programs a source has, at most; None: it depends on the backend."""
        if source == FAULTS:
            return None
        if source != CASES:
            return self.programs
        return len(self.cases())

    def cases(self) -> list[tuple[str, Case]]:
        """Give the shipped cases that there is room for."""
        room = self.machine.device_count if self.world == "threads" else self.ranks
        return [(name, case) for name, case in shipped().items() if case.program.rank_count <= room]


def machine_of(name: str | None, ranks: int) -> sim.Machine:
    """Give the machine for a number of ranks; one that is named has as many devices as they need.

    Raises
    ------
    allranks.errors.UsageError
        If there is no machine of that name, or none is named and the usual one is too small.
    """
    if name is None and ranks > _DEVICES:
        raise UsageError(
            f"ranks={ranks}: the usual machine has {_DEVICES} devices; a machine that is named, such as "
            f"{DEFAULT_MACHINE}, gets one for each rank"
        )
    return sim.machine(name or DEFAULT_MACHINE, devices=max(_DEVICES, ranks))


def settings_of(
    *,
    backend: str,
    ranks: int = DEFAULT_RANKS,
    machine: str | None = None,
    seed: int | None = None,
    effort: str = DEFAULT_EFFORT,
    programs: int | None = None,
    requirements: tuple[str, ...] = (),
    expected_failures: Path | None = None,
    quiet_timeout_s: float = QUIET_TIMEOUT_S,
    world: WorldName | None = None,
    deadline_s: float | None = None,
    reduce_s: float | None = None,
    launcher: Launcher | None = None,
    nodes: int | None = None,
    strict: bool = False,
    driver: DriverName = "sim",
    made: Backend | None = None,
) -> Settings:
    """Check what was asked for, before anything runs.

    Raises
    ------
    allranks.errors.UsageError
        For the first thing that is wrong: its name, its value, and the rule that it breaks.
    """
    if not 1 <= ranks <= MOST_RANKS:
        raise UsageError(f"ranks={ranks}: from 1 to {MOST_RANKS}")
    if effort not in EFFORT:
        raise UsageError(f"effort={effort!r}: one of {', '.join(EFFORT)}")
    if effort == "ci" and seed:
        raise UsageError(f"seed={seed}: effort ci draws the same Programs in every run; take another effort")
    if programs is not None and programs < 1:
        raise UsageError(f"programs={programs}: a whole number from 1 on")
    if not quiet_timeout_s > 0:
        raise UsageError(f"quiet_timeout={quiet_timeout_s}: seconds, more than 0")
    made = made or load_backend(backend)
    world = world or world_of(made, driver)
    check_driver(made, driver, world)
    _check_world(made, world, machine, deadline_s, reduce_s, driver)
    chosen = launcher_of(made, world, launcher, nodes)
    if nodes is not None and nodes > ranks:
        raise UsageError(f"nodes={nodes}: at most one for each of the {ranks} ranks")
    wanted, known = select(list(requirements)), NOTHING_EXPECTED
    if expected_failures is not None:
        known = load_expected(expected_failures)
    starts = world == "mpi" and chosen != "none"
    if driver == "cuda":
        check_gpus(ranks)
    return Settings(
        launcher=chosen,
        launch=launch(chosen, ranks, nodes=nodes or 1) if starts else None,
        nodes=nodes or 1,
        strict=strict,
        driver=driver,
        backend=backend,
        machine=machine_of(machine, ranks),
        ranks=ranks,
        seed=seed or 0,
        programs=programs or EFFORT[effort],
        requirements=wanted,
        expected=known,
        quiet_timeout_s=quiet_timeout_s,
        world=world,
        deadline_s=DEADLINE_S if deadline_s is None else deadline_s,
        reduce_s=REDUCE_S if reduce_s is None else reduce_s,
    )


def world_of(backend: Backend, driver: DriverName = "sim") -> WorldName:
    """Give the world that a backend runs in where none is asked for."""
    if driver == "cuda":
        return "processes"
    if "device" in spaces_of(backend):
        return "threads"
    wanted: WorldName = getattr(backend, "world", "processes")
    return wanted


def _check_world(
    backend: Backend,
    world: WorldName,
    machine: str | None,
    deadline_s: float | None,
    reduce_s: float | None,
    driver: DriverName,
) -> None:
    """Check that the world can do what was asked for."""
    if world not in WORLDS:
        raise UsageError(f"world={world!r}: one of {', '.join(WORLDS)}")
    if world != "threads":
        if deadline_s is not None and deadline_s < _SHORTEST_DEADLINE_S:
            raise UsageError(f"deadline={deadline_s:g}: seconds, {_SHORTEST_DEADLINE_S:g} at least")
        if machine is not None:
            raise UsageError(f"machine={machine!r}: world {world} has no simulated machine")
        if driver == "sim" and "host" not in spaces_of(backend):
            raise UsageError(
                f"world={world!r}: backend {backend.name} works on device memory; across processes the simulated "
                "driver executes no kernels (it does in world threads), and real GPUs are --driver cuda"
            )
        return
    if "device" not in spaces_of(backend):
        other = world_of(backend)
        raise UsageError(f"world='threads': backend {backend.name} works on host memory; take world {other}")
    if deadline_s is not None:
        raise UsageError(f"deadline={deadline_s:g}: world threads knows at once when nothing can go on; it has none")
    if reduce_s is not None:
        raise UsageError(f"reduce={reduce_s:g}: world threads reduces by a number of runs, not by time")
