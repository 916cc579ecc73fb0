"""What every front end does: check what it was asked for, run families of Programs, and keep what came of them.

`allranks check`, the pytest plugin and `run_conformance` differ in how they are asked and in what they print.
"""

from __future__ import annotations

import shlex
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from allranks import sim
from allranks.conformance.backend import Backend, load_backend, make_backend, spaces_of
from allranks.conformance.casefile import Case, dumps
from allranks.conformance.cases import shipped
from allranks.conformance.checks import FAULTED
from allranks.conformance.engine import CASES, FAULTS, Engine, Finding, Ran, Result, families_of
from allranks.conformance.expected import NOTHING_EXPECTED, Expected, load_expected
from allranks.conformance.isolated import reduce_findings, run_jobs
from allranks.conformance.launchers import Launcher, launch, launcher_of, wire_name
from allranks.conformance.narrowing import contract_of
from allranks.conformance.over_processes import ProcessesEngine
from allranks.conformance.report import describe, differing, exit_code
from allranks.conformance.requirements import REQUIREMENTS, select
from allranks.conformance.worker import Job
from allranks.conformance.worlds.crew import LaunchedCrew
from allranks.conformance.worlds.launched import LaunchedWorld
from allranks.conformance.worlds.processes.world import DEADLINE_S, ProcessesWorld
from allranks.conformance.worlds.threads import QUIET_TIMEOUT_S
from allranks.conformance.worlds.together import check_together
from allranks.errors import UsageError

# Generated Programs a family. `ci` draws the same Programs in every run, whatever the seed.
EFFORT: Final = {"quick": 40, "ci": 100, "standard": 400, "deep": 4000}
DEFAULT_EFFORT: Final = "standard"
DEFAULT_MACHINE: Final = "h100"
DEFAULT_RANKS: Final = 4
MOST_RANKS: Final = 128
CASE_DIR: Final = Path("allranks-cases")
_DEVICES: Final = 8

WorldName = Literal["threads", "processes", "mpi"]
WORLDS: Final = typing.get_args(WorldName)
REDUCE_S: Final = 60.0


class ConformanceError(AssertionError):
    """A communicator does not conform; the text tells how."""


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
    strict : bool
        Whether Programs also go beyond what the library's contract offers.
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
    strict: bool = False

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
    world = world or world_of(made)
    _check_world(made, world, machine, deadline_s, reduce_s)
    chosen = launcher_of(made, world, launcher, nodes)
    return Settings(
        launcher=chosen,
        nodes=nodes or 1,
        strict=strict,
        backend=backend,
        machine=machine_of(machine, ranks),
        ranks=ranks,
        seed=seed or 0,
        programs=programs or EFFORT[effort],
        requirements=select(list(requirements)),
        expected=load_expected(expected_failures) if expected_failures is not None else NOTHING_EXPECTED,
        quiet_timeout_s=quiet_timeout_s,
        world=world,
        deadline_s=DEADLINE_S if deadline_s is None else deadline_s,
        reduce_s=REDUCE_S if reduce_s is None else reduce_s,
    )


def world_of(backend: Backend) -> WorldName:
    """Give the world that a backend runs in where none is asked for."""
    if "device" in spaces_of(backend):
        return "threads"
    wanted: WorldName = getattr(backend, "world", "processes")
    return wanted


def _check_world(
    backend: Backend, world: WorldName, machine: str | None, deadline_s: float | None, reduce_s: float | None
) -> None:
    """Check that the world can do what was asked for."""
    if world not in WORLDS:
        raise UsageError(f"world={world!r}: one of {', '.join(WORLDS)}")
    if world != "threads":
        if machine is not None:
            raise UsageError(f"machine={machine!r}: world {world} has host memory and no simulated machine")
        if "host" not in spaces_of(backend):
            raise UsageError(
                f"world={world!r}: backend {backend.name} works on device memory, which takes a GPU that is not there; "
                "world threads has a simulated one"
            )
        return
    if "device" not in spaces_of(backend):
        other = world_of(backend)
        raise UsageError(f"world='threads': backend {backend.name} works on host memory; take world {other}")
    if deadline_s is not None:
        raise UsageError(f"deadline={deadline_s:g}: world threads knows at once when nothing can go on; it has none")
    if reduce_s is not None:
        raise UsageError(f"reduce={reduce_s:g}: world threads reduces by a number of runs, not by time")


def check(
    settings: Settings,
    *,
    sources: Sequence[str] | None = None,
    processes: int = 1,
    progress: Callable[[Ran], None] = lambda ran: None,
) -> Result:
    """Run everything, in processes of its own, and give what came of it; nothing is reduced yet.

    In world `processes` it is run again as often as it takes to know how reliably it shows, and then reduced.
    """
    chosen = settings.sources if sources is None else sources
    if settings.together:
        return check_together(settings, chosen, progress)
    if settings.world != "threads":
        return _check_processes(settings, chosen, progress)
    total = Result(
        load_backend(settings.backend).name, settings.machine.name, settings.seed, settings.ranks, settings.requirements
    )
    jobs = [settings.job(source) for source in chosen]
    for result, _ in run_jobs(jobs, processes=processes, progress=progress):
        total.absorb(result)
    return total


def _check_processes(settings: Settings, sources: Sequence[str], progress: Callable[[Ran], None]) -> Result:
    engine = ProcessesEngine(
        make_world(settings),
        settings.machine,
        settings.requirements,
        seed=settings.seed,
        max_ranks=settings.ranks,
        progress=progress,
        strict=settings.strict,
    )
    try:
        engine.check(sources, settings.programs)
        engine.confirm()
        engine.reduce(settings.reduce_s)
        engine.show()
    finally:
        engine.close()
    return engine.result


def make_world(settings: Settings) -> ProcessesWorld | LaunchedWorld:
    """Make the world of processes that the settings ask for.

    Raises
    ------
    allranks.errors.UsageError
        If something is missing that it needs.
    """
    if settings.world == "processes":
        return ProcessesWorld(settings.backend, deadline_s=settings.deadline_s)
    wire = wire_name(settings.launcher)
    told = {"backend": settings.backend, "wire": wire, "deadline_s": settings.deadline_s}
    crew = LaunchedCrew(launch(settings.launcher, settings.ranks, nodes=settings.nodes), settings.ranks, told)
    return LaunchedWorld(load_backend(settings.backend), crew, deadline_s=settings.deadline_s)


def reduce_all(settings: Settings, result: Result, *, processes: int = 1) -> None:
    """Make the Programs of a result's findings small, unless the world has done so."""
    if settings.world != "threads":
        return
    names = list(result.findings)
    findings = [*(result.findings[name] for name in names), *result.nondeterministic[:1]]
    reduced = reduce_findings(findings, settings.job(CASES), processes=processes)
    result.findings.update(zip(names, reduced, strict=False))
    result.nondeterministic[:1] = reduced[len(names) :]


def _check_here(backend: Backend, settings: Settings) -> Result:
    """Run everything in this process, for a backend that has no name that another one could find it by."""
    engine = Engine(
        backend,
        settings.machine,
        settings.requirements,
        seed=settings.seed,
        max_ranks=settings.ranks,
        quiet_timeout_s=settings.quiet_timeout_s,
        contract=contract_of(backend, strict=settings.strict),
    )
    try:
        engine.run_cases(shipped().items())
        for family in engine.families():
            engine.run_family(family, settings.programs)
        if FAULTS in settings.sources:
            engine.run_faults(engine.faulted())
        for name, finding in list(engine.result.findings.items()):
            engine.result.findings[name] = engine.reduce(finding)
        differing = engine.result.nondeterministic
        differing[:1] = [engine.reduce(finding) for finding in differing[:1]]
    finally:
        engine.close()
    return engine.result


def run_conformance(
    backend: str | type[Any] | Backend,
    *,
    ranks: int = DEFAULT_RANKS,
    machine: str | None = None,
    seed: int | None = None,
    effort: str = "quick",
    programs: int | None = None,
    requirements: tuple[str, ...] = (),
    expected_failures: Path | str | None = None,
    case_dir: Path | str = CASE_DIR,
    quiet_timeout_s: float = QUIET_TIMEOUT_S,
    world: WorldName | None = None,
    deadline_s: float | None = None,
    reduce_s: float | None = None,
    launcher: Launcher | None = None,
    strict: bool = False,
) -> Result:
    """Run the conformance suite on a communicator from a test of one's own.

    Parameters
    ----------
    backend : str, class or object
        A name, ``module:Class``, or the class or object itself. What is given by name runs in a process of its own, so
        that it can end that without ending the tests; a class or an object runs in this one.
    ranks : int
        Ranks at most.
    machine : str, optional
        Name of a simulated machine.
    seed : int, optional
        What the Programs depend on; 0 by default.
    effort : {"quick", "ci", "standard", "deep"}
        How many Programs.
    programs : int, optional
        Programs a family, instead of `effort`.
    requirements : tuple of str
        Ids or families; all by default.
    expected_failures : path, optional
        TOML file of what is known to fail; see ``docs/pytest.md``.
    case_dir : path
        Folder for the case files of failures.
    quiet_timeout_s : float
        Real seconds that the backend may stay away from the driver.
    world : {"threads", "processes", "mpi"}, optional
        Where ranks run, the backend's own choice by default; in the latter two the backend is given by name.
    deadline_s, reduce_s : float, optional
        Of worlds of processes: seconds without progress that end a run, and seconds for making findings small.
    launcher : {"mpiexec", "srun", "torchrun", "none"}, optional
        Of world `mpi`: what starts ranks; "none" if this test runs in each of them.
    strict : bool
        Whether Programs also go beyond what the library's contract offers.

    Returns
    -------
    Result
        How much was looked at, requirement by requirement.

    Raises
    ------
    ConformanceError
        If a requirement is broken, an expected failure does not fail, or something was not evaluated; the text has the
        story of each.
    allranks.errors.UsageError
        If an argument is wrong.

    Examples
    --------
    >>> from allranks.conformance import run_conformance
    >>> result = run_conformance("plain", ranks=2, programs=20, requirements=("COLL-1",))
    >>> result.status("COLL-1")
    'pass'
    """
    __tracebackhide__ = True
    made = load_backend(backend) if isinstance(backend, str) else make_backend(backend)
    settings = settings_of(
        backend=backend if isinstance(backend, str) else _name_of(backend),
        ranks=ranks,
        machine=machine,
        seed=seed,
        effort=effort,
        programs=programs,
        requirements=requirements,
        expected_failures=Path(expected_failures) if expected_failures is not None else None,
        quiet_timeout_s=quiet_timeout_s,
        world=world,
        deadline_s=deadline_s,
        reduce_s=reduce_s,
        launcher=launcher,
        strict=strict,
        made=made,
    )
    if isinstance(backend, str) or settings.world != "threads":
        in_threads = settings.world == "threads"
        result = check(settings, progress=(lambda ran: None) if in_threads else _kept_at_once(settings, case_dir))
        reduce_all(settings, result)
    else:
        result = _check_here(made, settings)
    if exit_code(result, settings.expected, strict=strict):
        raise ConformanceError("\n".join(_said(result, settings, Path(case_dir))))
    return result


def keep(finding: Finding, directory: Path, settings: Settings) -> Path:
    """Write a finding as a case file, and give its path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{finding.requirement}-{finding.trace.backend}.json"
    case = Case(
        program=finding.program,
        title=finding.violation.evidence.splitlines()[0].removesuffix(":"),
        requirements=(finding.requirement,),
        machine=settings.machine.name,
    )
    path.write_text(dumps(case), encoding="utf-8")
    return path


def _kept_at_once(settings: Settings, case_dir: Path | str) -> Callable[[Ran], None]:
    """Write what is found as case files, before anything else is done with it."""

    def progress(ran: Ran) -> None:
        for finding in ran.findings:
            keep(finding, Path(case_dir), settings)

    return progress


def replay_line(path: Path, settings: Settings) -> str:
    """Give the command that runs a case file again."""
    world = [] if settings.world == "threads" else ["--world", settings.world]
    return shlex.join(["allranks", "replay", str(path), "--backend", settings.backend, *world])


def _name_of(backend: object) -> str:
    kind = backend if isinstance(backend, type) else type(backend)
    return f"{kind.__module__}:{kind.__qualname__}"


def _said(result: Result, settings: Settings, case_dir: Path) -> list[str]:
    """Say everything that is not as it should be."""
    expected = settings.expected
    lines = [f"{result.backend} does not conform ({result.programs} Programs, seed {result.seed})."]
    shown: list[Finding] = [found for name, found in result.findings.items() if not expected.reason(name)]
    if not shown:
        shown = result.interruptions[:1]
    for finding in shown:
        lines += ["", *describe(finding, replay_line(keep(finding, case_dir, settings), settings))]
    for name in result.requirements:
        if result.status(name) == "not run":
            why = "run more Programs" if REQUIREMENTS[name].checks else "it has no check yet"
            lines.append(f"{name}: nothing was evaluated; {why}")
    lines += expected.stale(result).values()
    if result.nondeterministic:
        lines += ["", differing(result)]
        first = result.nondeterministic[0]
        lines += describe(first, replay_line(keep(first, case_dir, settings), settings))
    return lines
