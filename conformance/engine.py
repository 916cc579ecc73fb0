"""Running many Programs on a backend, and keeping the first failure of each requirement.

Every Program is run once and judged by every check that was asked for. The first hit of a requirement is kept at once,
then reduced with that requirement's own predicate.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, MutableSequence
from dataclasses import dataclass
from typing import Final, Protocol

from allranks import sim
from allranks.conformance.backend import Backend
from allranks.conformance.casefile import Case
from allranks.conformance.checks import Violation, judge
from allranks.conformance.determinism import DETERMINISM, RUNS, parting
from allranks.conformance.draws import draw_programs
from allranks.conformance.faults import PROGRAMS, in_turn, with_faults
from allranks.conformance.narrowing import Contract, Narrowing
from allranks.conformance.plan import Planned, planned
from allranks.conformance.program import Program
from allranks.conformance.reduce import reduce_program
from allranks.conformance.requirements import FAMILIES, REQUIREMENTS
from allranks.conformance.result import Finding, Ran, Result, Tally, finding_of, interruption
from allranks.conformance.trace import HOST, Trace
from allranks.conformance.worlds import Ahead, World
from allranks.conformance.worlds.threads import QUIET_TIMEOUT_S, RunOptions, ThreadsWorld

# What shipped cases are counted under, beside the families.
CASES: Final = "cases"
# What a few Programs are counted under of which one driver call fails in each run.
FAULTS: Final = "faults"
# A backend that hangs or ends its process this often among the Programs of one source is not asked for more of them:
# each such Program costs a time-out, or a new process.
MOST_INTERRUPTIONS: Final = 3
# Where time is real, a Program that went wrong and took longer than this counts as one of those: each of its steps may
# cost a time-out of the library's own.
LONG_S: Final = 10.0


Progress = Callable[[Ran], None]
Starting = Callable[[int], None]


class DrawPrograms(Protocol):
    """How the Programs of a family are drawn: as `draws.draw_programs` does."""

    def __call__(
        self, family: str, count: int, use: Callable[[Program, int], None], *, seed: int, max_ranks: int
    ) -> None:
        """Draw so many Programs and use each with its number, from 1."""


@dataclass(slots=True)
class _AtWork:
    """A Program that has begun, and its Trace once it is at its end."""

    program: Program
    plan: list[Planned]
    source: str
    examples: int
    narrowed: dict[Narrowing, int]
    started: float
    trace: Trace | None = None


class Engine:
    """Checks a backend in a world.

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
    progress : callable (Ran)
        Told after every Program.
    starting : callable (number of the Program)
        Told before every Program; 0 for one that is passed over.
    quiet_timeout_s : float
        Real seconds that a rank may keep the turn without coming by the driver.
    board : mutable sequence of int, optional
        Where ranks write what they do; see `ThreadsWorld`.
    world : World, optional
        Where Programs run; a `ThreadsWorld` by default. It is closed with the engine.
    unseen : frozenset of str
        Requirements that cannot be evaluated in that world.
    contract : Contract, optional
        What every Program is brought within.
    draw : callable
        Draws Programs; what it draws depends on its arguments alone.
    """

    def __init__(
        self,
        backend: Backend,
        machine: sim.Machine,
        requirements: tuple[str, ...],
        *,
        seed: int,
        max_ranks: int,
        progress: Progress = lambda ran: None,
        starting: Starting = lambda examples: None,
        quiet_timeout_s: float = QUIET_TIMEOUT_S,
        board: MutableSequence[int] | None = None,
        world: World | None = None,
        unseen: frozenset[str] = frozenset(),
        contract: Contract | None = None,
        draw: DrawPrograms = draw_programs,
    ) -> None:
        self._draw = draw
        self.contract = contract or Contract()
        self.world = world or ThreadsWorld(backend, machine, quiet_timeout_s=quiet_timeout_s, board=board)
        self._long: Counter[str] = Counter()
        self.most_ranks = machine.device_count if world is None else max_ranks
        self.max_ranks = max_ranks
        self._judged = tuple(name for name in requirements if name not in unseen)
        self.progress = progress
        self.starting = starting
        self.result = Result(
            backend.name, machine.name if world is None else HOST, seed, max_ranks, requirements, unseen=unseen
        )

    def run_case(self, name: str, case: Case) -> Trace:
        """Run one case and judge it; one that is about differing Traces is run again until it gives another."""
        return self._run(case.program, name, 1, again=RUNS if DETERMINISM in case.requirements else 1)

    def run_cases(self, cases: Iterable[tuple[str, Case]], *, skip: int = 0) -> None:
        """Run cases that the machine has room for, but for the first `skip` of them."""
        fitting = [case for _, case in cases if case.program.rank_count <= self.most_ranks]
        for examples, case in enumerate(fitting, start=1):
            if examples > skip and not self._gives_up(CASES, examples):
                self._run(case.program, CASES, examples)

    def run_family(self, family: str, count: int, *, skip: int = 0) -> None:
        """Generate `count` Programs of a family and run them, but for the first `skip` of them."""
        drawn = hashlib.sha256()
        at_work: list[_AtWork] = []  # at most one Program, while the next is drawn

        def use(program: Program, examples: int) -> None:
            drawn.update(repr(program).encode())
            before = at_work.pop() if at_work else None
            if before is not None and self._ends_well(before):
                # The ranks go on meanwhile: that nothing stops them is known from the Trace.
                at_work.append(self._begin(program, family, examples))
                self._judged_of(before)
                return
            if before is not None:
                self._judged_of(before)
            if examples <= skip:
                self.starting(0)
            elif not self._gives_up(family, examples):
                begun = self._begin(program, family, examples)
                if isinstance(self.world, Ahead):
                    at_work.append(begun)
                else:
                    self._judged_of(begun)

        self._draw(family, count, use, seed=self.result.seed, max_ranks=self.max_ranks)
        while at_work:
            self._judged_of(at_work.pop())
        self.result.draws[family] = drawn.hexdigest()

    def faulted(self) -> list[Program]:
        """Give a few Programs in which one driver call fails, for every call that the communicator makes in them."""
        return in_turn(
            faulted
            for program in PROGRAMS
            if program.rank_count <= self.max_ranks
            for faulted in with_faults(program, self.world.run(program))
        )

    def run_faults(self, faulted: list[Program], *, skip: int = 0) -> None:
        """Run what `faulted` gave, but for the first `skip` of them."""
        for examples, program in enumerate(faulted, start=1):
            if examples > skip and not self._gives_up(FAULTS, examples):
                self._run(program, FAULTS, examples)

    def families(self) -> list[str]:
        """Give the families whose Programs the requirements need."""
        return families_of(self.result.requirements)

    def _gives_up(self, source: str, examples: int) -> bool:
        interrupted = sum(finding.source == source for finding in self.result.interruptions)
        if interrupted + self._long[source] < MOST_INTERRUPTIONS:
            return False
        self.result.stopped.setdefault(source, examples - 1)
        return True

    def _run(self, program: Program, source: str, examples: int, *, again: int = 1) -> Trace:
        return self._judged_of(self._begin(program, source, examples), again)

    def _begin(self, program: Program, source: str, examples: int) -> _AtWork:
        """Begin a Program; the one before has to be at its end."""
        self.starting(examples)
        before = dict(self.contract.changed)
        program = self.contract.within(program)
        narrowed = self.contract.changed_since(before)
        plan = list(planned(program))
        begun = _AtWork(program, plan, source, examples, narrowed, time.monotonic())
        if isinstance(self.world, Ahead):
            self.world.begin(program, plan=plan)
        return begun

    def _trace_of(self, begun: _AtWork) -> Trace:
        """Wait for the end of a Program that has begun."""
        if begun.trace is None:
            world = self.world
            begun.trace = world.end() if isinstance(world, Ahead) else world.run(begun.program, plan=begun.plan)
            long = not world.deterministic and time.monotonic() - begun.started >= LONG_S
            self._long[begun.source] += long and not begun.trace.waited and begun.trace.first_trouble() is not None
        return begun.trace

    def _ends_well(self, begun: _AtWork) -> bool:
        """Wait for a Program's end; whether it says nothing of going on, and nothing of it has to be run again."""
        trace = self._trace_of(begun)
        return not self.world.deterministic and not trace.outside and trace.first_trouble() is None

    def _judged_of(self, begun: _AtWork, again: int = 1) -> Trace:
        """Wait for a Program's end and judge it."""
        trace = self._trace_of(begun)
        ran = Ran(
            source=begun.source, examples=begun.examples, capabilities=trace.capabilities, narrowed=begun.narrowed
        )
        self._judge(ran, begun.program, begun.plan, trace, again)
        return trace

    def _judge(self, ran: Ran, program: Program, plan: list[Planned], trace: Trace, again: int) -> None:
        """Note what a Program came to, and tell."""
        result, source, examples = self.result, ran.source, ran.examples
        ran.facts = dict(getattr(self.world, "facts", {}))
        # One run in 50 is done twice: a difference is a finding of its own, about the backend or about us.
        if self.world.deterministic and examples % 50 == 1 and not trace.outside:
            differs = parting(trace, lambda: self.world.run(program, plan=plan), plan, times=again)
            if differs is not None:
                ran.differs = finding_of(program, trace, differs, source, examples)
        for name, outcome in judge(program, trace, self._judged, plan=plan).items():
            ran.tallies[name] = Tally(outcome.evaluated, outcome.inconclusive, len(outcome.violations))
            if outcome.violations and name not in result.findings:
                ran.findings.append(finding_of(program, trace, outcome.violations[0], source, examples))
        if trace.outside:
            ran.interruption = interruption(
                program, trace, f"a rank kept its turn without coming by the driver:\n{trace.outside}", source, examples
            )
        elif trace.waited:
            ran.interruption = interruption(
                program, trace, "it did not come to its end before the world's deadline", source, examples
            )
        result.add(ran)
        self.progress(ran)

    def violation_of(self, program: Program, requirement: str) -> tuple[Trace, Violation] | None:
        """Run a Program and give how it breaks the requirement, if it does."""
        trace = self.world.run(program)
        if requirement == DETERMINISM:
            plan = list(planned(program))
            differs = None if trace.outside else parting(trace, lambda: self.world.run(program), plan, times=2)
            return None if differs is None else (trace, differs)
        violations = judge(program, trace, (requirement,))[requirement].violations
        return (trace, violations[0]) if violations else None

    def reduce(self, finding: Finding, max_runs: int = 1000) -> Finding:
        """Make a finding's Program small; one that never ends stays as it is, for each run of it costs a time-out."""
        if finding.trace.outside:
            return finding
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
            shown=finding.shown,
        )

    def close(self) -> None:
        """End the world."""
        self.world.close()


def families_of(requirements: tuple[str, ...]) -> list[str]:
    """Give the families whose Programs the requirements need."""
    wanted = {REQUIREMENTS[name].family for name in requirements}
    return [family for family in FAMILIES if family in wanted]


def run_once(backend: Backend, machine: sim.Machine, program: Program, options: RunOptions | None = None) -> Trace:
    """Run one Program in a world of its own."""
    with ThreadsWorld(backend, machine) as world:
        return world.run(program, options)
