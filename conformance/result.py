"""What running Programs comes to: what each of them came to, what was found, and how much was looked at."""

from __future__ import annotations

from dataclasses import dataclass, field

from allranks.conformance.checks import Violation
from allranks.conformance.narrowing import Narrowing
from allranks.conformance.program import Program
from allranks.conformance.requirements import REQUIREMENTS
from allranks.conformance.schedules import realised
from allranks.conformance.trace import Trace


@dataclass(slots=True, kw_only=True)
class Finding:
    """A requirement broken by a Program."""

    requirement: str
    program: Program
    violation: Violation
    trace: Trace
    source: str
    examples: int  # how many Programs of the source had been run by then
    shown: tuple[int, int] | None = None  # how often it showed, of how many times that it was run again

    @property
    def vanished(self) -> bool:
        """Whether it was run again, and did not show any more."""
        return self.shown is not None and self.shown[0] == 0


@dataclass(slots=True)
class Tally:
    """How much was looked at for a requirement."""

    evaluated: int = 0
    inconclusive: int = 0
    violations: int = 0

    def add(self, other: Tally) -> None:
        """Count what was judged of other Programs too."""
        self.evaluated += other.evaluated
        self.inconclusive += other.inconclusive
        self.violations += other.violations


@dataclass(slots=True, kw_only=True)
class Ran:
    """What one Program came to.

    Parameters
    ----------
    source, examples
        Where it comes from, and its number there, from 1.
    capabilities : tuple of str
        What the backend says that it has.
    tallies : mapping of str to Tally
        How much was looked at, by requirement.
    findings : list of Finding
        What it breaks, as far as that was not known before.
    differs : Finding, optional
        That the Program was run again and gave another Trace.
    interruption : Finding, optional
        That the backend kept its turn for ever outside of the driver, or ended the process.
    narrowed : mapping of Narrowing to int
        How many steps were brought back within the library's contract.
    facts : mapping of str to str
        Versions of what is under test, as far as the world knows them.
    """

    source: str
    examples: int
    capabilities: tuple[str, ...] = ()
    tallies: dict[str, Tally] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    differs: Finding | None = None
    interruption: Finding | None = None
    narrowed: dict[Narrowing, int] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)


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
    nondeterministic: list[Finding] = field(default_factory=list)
    interruptions: list[Finding] = field(default_factory=list)
    draws: dict[str, str] = field(default_factory=dict)  # digest of the Programs drawn, by family
    stopped: dict[str, int] = field(default_factory=dict)  # sources given up, and after how many Programs
    unseen: frozenset[str] = frozenset()  # requirements that cannot be evaluated in the world
    narrowed: dict[Narrowing, int] = field(default_factory=dict)  # steps brought back within the library's contract
    facts: dict[str, str] = field(default_factory=dict)  # versions of what was under test

    def __post_init__(self) -> None:
        for name in self.requirements:
            self.tallies.setdefault(name, Tally())

    def add(self, ran: Ran) -> None:
        """Take in what one more Program came to."""
        self.programs += 1
        self.capabilities = ran.capabilities or self.capabilities
        for name, tally in ran.tallies.items():
            self.tallies[name].add(tally)
        for finding in ran.findings:
            self.findings.setdefault(finding.requirement, finding)
        if ran.differs is not None:
            self.nondeterministic.append(ran.differs)
        if ran.interruption is not None:
            self.interruptions.append(ran.interruption)
        self._note(ran)

    def _note(self, other: Ran | Result) -> None:
        for one, steps in other.narrowed.items():
            self.narrowed[one] = self.narrowed.get(one, 0) + steps
        self.facts.update(other.facts)

    def absorb(self, other: Result) -> None:
        """Take in the result of other Programs, which are judged by some or all of the same requirements."""
        self.programs += other.programs
        self.capabilities = other.capabilities or self.capabilities
        for name, tally in other.tallies.items():
            self.tallies[name].add(tally)
        for name, finding in other.findings.items():
            self.findings.setdefault(name, finding)
        self.nondeterministic += other.nondeterministic
        self.interruptions += other.interruptions
        self.draws.update(other.draws)
        self.stopped.update(other.stopped)
        self._note(other)

    def status(self, requirement: str) -> str:
        """Give "fail", "pass", "not supported" or "not run"."""
        if requirement in self.findings:
            return "fail"
        if requirement in self.unseen:
            return "not supported"
        needs = REQUIREMENTS[requirement].capabilities
        if needs and not set(needs) & set(self.capabilities):
            return "not supported"
        return "pass" if self.tallies[requirement].evaluated else "not run"


def finding_of(program: Program, trace: Trace, violation: Violation, source: str, examples: int) -> Finding:
    """Make the finding that a Program breaks a requirement."""
    return Finding(
        requirement=violation.requirement,
        program=realised(program, trace),
        violation=violation,
        trace=trace,
        source=source,
        examples=examples,
    )


def interruption(program: Program, trace: Trace, evidence: str, source: str, examples: int) -> Finding:
    """Make the finding that a Program never came to its end: no collective step may do that, whatever was asked for."""
    return Finding(
        requirement="RDV-1",
        program=program,
        violation=Violation(requirement="RDV-1", rank=-1, step=-1, operation="run", evidence=evidence),
        trace=trace,
        source=source,
        examples=examples,
    )
