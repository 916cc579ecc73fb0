"""What every front end does: check what it was asked for, run families of Programs, and keep what came of them.

`allranks check`, the pytest plugin and `run_conformance` differ in how they are asked and in what they print.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from allranks import sim
from allranks.conformance.backend import Backend, load_backend, make_backend
from allranks.conformance.casefile import Case, dumps
from allranks.conformance.cases import shipped
from allranks.conformance.checks import FAULTED
from allranks.conformance.engine import CASES, FAULTS, Engine, Finding, Ran, Result, families_of
from allranks.conformance.expected import NOTHING_EXPECTED, Expected, load_expected
from allranks.conformance.isolated import reduce_findings, run_jobs
from allranks.conformance.report import describe, differing, exit_code
from allranks.conformance.requirements import REQUIREMENTS, select
from allranks.conformance.worker import Job
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
    """

    backend: str
    machine: sim.Machine
    ranks: int
    seed: int
    programs: int
    requirements: tuple[str, ...]
    expected: Expected
    quiet_timeout_s: float

    @property
    def sources(self) -> list[str]:
        """Where Programs come from: the shipped cases, the families and the faults that the requirements need."""
        faults = [] if FAULTED.isdisjoint(self.requirements) else [FAULTS]
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
        )

    def total(self, source: str) -> int | None:
        """Give how many Programs a source has, at most; None: it depends on the backend."""
        if source == FAULTS:
            return None
        if source != CASES:
            return self.programs
        return sum(case.program.rank_count <= self.machine.device_count for case in shipped().values())


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
    return Settings(
        backend=backend,
        machine=machine_of(machine, ranks),
        ranks=ranks,
        seed=seed or 0,
        programs=programs or EFFORT[effort],
        requirements=select(list(requirements)),
        expected=load_expected(expected_failures) if expected_failures is not None else NOTHING_EXPECTED,
        quiet_timeout_s=quiet_timeout_s,
    )


def check(settings: Settings, *, processes: int = 1, progress: Callable[[Ran], None] = lambda ran: None) -> Result:
    """Run everything, in processes of its own, and give what came of it; nothing is reduced yet."""
    total = Result(
        load_backend(settings.backend).name, settings.machine.name, settings.seed, settings.ranks, settings.requirements
    )
    jobs = [settings.job(source) for source in settings.sources]
    for result, _ in run_jobs(jobs, processes=processes, progress=progress):
        total.absorb(result)
    return total


def reduce_all(settings: Settings, result: Result, *, processes: int = 1) -> None:
    """Make the Programs of a result's findings small."""
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
    )
    if isinstance(backend, str):
        result = check(settings)
        reduce_all(settings, result)
    else:
        result = _check_here(made, settings)
    if exit_code(result, settings.expected):
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


def replay_line(path: Path, settings: Settings) -> str:
    """Give the command that runs a case file again."""
    return shlex.join(["allranks", "replay", str(path), "--backend", settings.backend])


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
