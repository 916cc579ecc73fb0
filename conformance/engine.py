"""Running many Programs on a backend, and keeping the first failure of each requirement.

Every Program is run once and judged by every check that was asked for. The first hit of a requirement is kept at once,
then reduced with that requirement's own predicate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import hypothesis
from hypothesis import HealthCheck, Phase, settings

from allranks import sim
from allranks.conformance.backend import Backend
from allranks.conformance.casefile import Case
from allranks.conformance.checks import FAULTED, Violation, judge
from allranks.conformance.faults import PROGRAMS, with_faults
from allranks.conformance.plan import planned
from allranks.conformance.program import Program
from allranks.conformance.reduce import reduce_program
from allranks.conformance.requirements import FAMILIES, REQUIREMENTS
from allranks.conformance.schedules import realised
from allranks.conformance.strategies import programs
from allranks.conformance.trace import Trace
from allranks.conformance.worlds.threads import RunOptions, ThreadsWorld


@dataclass(slots=True, kw_only=True)
class Finding:
    """A requirement broken by a Program."""

    requirement: str
    program: Program
    violation: Violation
    trace: Trace
    source: str
    examples: int  # how many Programs of the source had been run by then


@dataclass(slots=True)
class Tally:
    """How much was looked at for a requirement."""

    evaluated: int = 0
    inconclusive: int = 0
    violations: int = 0


@dataclass(slots=True)
class Result:
    """What a check of a backend came to."""

    backend: str
    machine: str
    seed: int
    rank_count: int
    requirements: tuple[str, ...]
    capabilities: tuple[str, ...] = ()
    programs: int = 0
    tallies: dict[str, Tally] = field(default_factory=dict)
    findings: dict[str, Finding] = field(default_factory=dict)
    nondeterministic: list[Program] = field(default_factory=list)

    def status(self, requirement: str) -> str:
        """Give "fail", "pass", "not supported" or "not run"."""
        if requirement in self.findings:
            return "fail"
        needs = REQUIREMENTS[requirement].capabilities
        if needs and not set(needs) & set(self.capabilities):
            return "not supported"
        return "pass" if self.tallies[requirement].evaluated else "not run"


Progress = Callable[[str, int], None]


class Engine:
    """Checks a backend in world `threads`.

    Parameters
    ----------
    backend : Backend
        The communicator under test.
    machine : sim.Machine
        What it runs on.
    requirements : tuple of str
        Which checks to apply.
    seed : int
        What the Programs depend on.
    max_ranks : int
        Ranks at most.
    progress : callable (source, programs run)
        Told after every Program.
    """

    def __init__(
        self,
        backend: Backend,
        machine: sim.Machine,
        requirements: tuple[str, ...],
        *,
        seed: int,
        max_ranks: int,
        progress: Progress = lambda source, count: None,
    ) -> None:
        self.world = ThreadsWorld(backend, machine)
        self.max_ranks = max_ranks
        self.progress = progress
        self.result = Result(backend.name, machine.name, seed, max_ranks, requirements)
        self.result.tallies = {name: Tally() for name in requirements}

    def run_case(self, name: str, case: Case) -> Trace:
        """Run one case and judge it."""
        return self._run(case.program, name, 1)

    def run_cases(self, cases: Iterable[tuple[str, Case]]) -> None:
        """Run cases that the machine has room for."""
        for name, case in cases:
            if case.program.rank_count <= self.world.machine.device_count:
                self.run_case(name, case)

    def run_family(self, family: str, count: int) -> None:
        """Generate `count` Programs of a family and run them."""
        examples = 0

        @hypothesis.seed(self.result.seed)
        @settings(
            max_examples=count,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @hypothesis.given(programs(family, max_ranks=self.max_ranks))
        def generated(program: Program) -> None:
            nonlocal examples
            examples += 1
            self._run(program, family, examples)

        generated()
        if family == "LIFE":
            self.run_faults()

    def run_faults(self) -> None:
        """Let every driver call fail that the communicator makes in a few Programs, one call a run."""
        if FAULTED.isdisjoint(self.result.requirements):
            return
        examples = 0
        for program in PROGRAMS:
            if program.rank_count > self.max_ranks:
                continue
            for faulted in with_faults(program, self.world.run(program)):
                examples += 1
                self._run(faulted, "faults", examples)

    def families(self) -> list[str]:
        """Give the families whose Programs the requirements need."""
        wanted = {REQUIREMENTS[name].family for name in self.result.requirements}
        return [family for family in FAMILIES if family in wanted]

    def _run(self, program: Program, source: str, examples: int) -> Trace:
        result = self.result
        plan = list(planned(program))
        trace = self.world.run(program, plan=plan)
        result.programs += 1
        result.capabilities = trace.capabilities or result.capabilities
        # One run in 50 is done twice: a difference is a finding of its own, about the backend or about us.
        if (
            result.programs % 50 == 1
            and not trace.outside
            and self.world.run(program, plan=plan).digest() != trace.digest()
        ):
            result.nondeterministic.append(program)
        for name, outcome in judge(program, trace, result.requirements, plan=plan).items():
            tally = result.tallies[name]
            tally.evaluated += outcome.evaluated
            tally.inconclusive += outcome.inconclusive
            tally.violations += len(outcome.violations)
            if outcome.violations and name not in result.findings:
                result.findings[name] = Finding(
                    requirement=name,
                    program=realised(program, trace),
                    violation=outcome.violations[0],
                    trace=trace,
                    source=source,
                    examples=examples,
                )
        self.progress(source, 1)
        return trace

    def violation_of(self, program: Program, requirement: str) -> tuple[Trace, Violation] | None:
        """Run a Program and give how it breaks the requirement, if it does."""
        trace = self.world.run(program)
        violations = judge(program, trace, (requirement,))[requirement].violations
        return (trace, violations[0]) if violations else None

    def reduce(self, finding: Finding, max_runs: int = 1000) -> Finding:
        """Make a finding's Program small."""
        requirement = finding.requirement
        small = reduce_program(
            finding.program, lambda candidate: self.violation_of(candidate, requirement) is not None, max_runs=max_runs
        )
        shown = self.violation_of(small, requirement)
        if shown is None:
            return finding
        trace, violation = shown
        return Finding(
            requirement=requirement,
            program=small,
            violation=violation,
            trace=trace,
            source=finding.source,
            examples=finding.examples,
        )

    def close(self) -> None:
        """End the world."""
        self.world.close()


def run_once(backend: Backend, machine: sim.Machine, program: Program, options: RunOptions | None = None) -> Trace:
    """Run one Program in a world of its own."""
    with ThreadsWorld(backend, machine) as world:
        return world.run(program, options)
