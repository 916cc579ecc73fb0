"""What every front end does: check what it was asked for, run families of Programs, and keep what came of them.

`allranks check`, the pytest plugin and `run_conformance` differ in how they are asked and in what they print.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from allranks.conformance.backend import Backend, load_backend, make_backend
from allranks.conformance.cases import shipped
from allranks.conformance.drawer import Drawer
from allranks.conformance.engine import CASES, FAULTS, Engine
from allranks.conformance.isolated import reduce_findings, run_jobs
from allranks.conformance.kept import keep, kept_at_once, replay_line
from allranks.conformance.launchers import Launcher, wire_name
from allranks.conformance.narrowing import contract_of
from allranks.conformance.over_processes import ProcessesEngine
from allranks.conformance.report import describe, differing, exit_code
from allranks.conformance.requirements import REQUIREMENTS
from allranks.conformance.result import Finding, Ran, Result
from allranks.conformance.settings import CASE_DIR, DEFAULT_RANKS, Settings, WorldName, settings_of
from allranks.conformance.worlds import few_collected
from allranks.conformance.worlds.crew import LaunchedCrew
from allranks.conformance.worlds.launched import LaunchedWorld
from allranks.conformance.worlds.processes.world import ProcessesWorld
from allranks.conformance.worlds.threads import QUIET_TIMEOUT_S
from allranks.conformance.worlds.together import check_together


class ConformanceError(AssertionError):
    """A communicator does not conform; the text tells how."""


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
    with Drawer() as drawer, contextlib.closing(_engine(settings, progress, drawer)) as engine:
        with few_collected():
            engine.check(sources, settings.programs)
        engine.confirm()
        engine.reduce(settings.reduce_s)
        engine.show()
        return engine.result


def _engine(settings: Settings, progress: Callable[[Ran], None], drawer: Drawer) -> ProcessesEngine:
    return ProcessesEngine(
        make_world(settings),
        settings.machine,
        settings.requirements,
        seed=settings.seed,
        max_ranks=settings.ranks,
        progress=progress,
        strict=settings.strict,
        draw=drawer.draw_programs,
    )


def make_world(settings: Settings) -> ProcessesWorld | LaunchedWorld:
    """Make the world of processes that the settings ask for.

    Raises
    ------
    allranks.errors.UsageError
        If something is missing that it needs.
    """
    if settings.world == "processes":
        return ProcessesWorld(settings.backend, deadline_s=settings.deadline_s, driver=settings.driver)
    if settings.launch is None:
        raise ValueError(f"launcher={settings.launcher!r}: starts nothing")
    wire = wire_name(settings.launcher)
    told = {"backend": settings.backend, "wire": wire, "deadline_s": settings.deadline_s}
    crew = LaunchedCrew(settings.launch, settings.ranks, told)
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
        result = check(settings, progress=(lambda ran: None) if in_threads else kept_at_once(settings, case_dir))
        reduce_all(settings, result)
    else:
        result = _check_here(made, settings)
    if exit_code(result, settings.expected, strict=strict):
        raise ConformanceError("\n".join(_said(result, settings, Path(case_dir))))
    return result


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
