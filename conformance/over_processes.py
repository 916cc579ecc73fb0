"""Checking a backend in world `processes`: run, keep what is found at once, see it again in fresh workers, reduce it.

A run costs milliseconds to seconds there, and may not show the same again. So Hypothesis only generates; what is found
is written as a case file before anything else is done with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from allranks import sim
from allranks.conformance.backend import versions_of
from allranks.conformance.cases import shipped
from allranks.conformance.checks import UNSEEN_IN_HOST, Violation, judge
from allranks.conformance.draws import draw_programs
from allranks.conformance.engine import CASES, DrawPrograms, Engine
from allranks.conformance.narrowing import contract_of
from allranks.conformance.program import Program
from allranks.conformance.reduce import reduce_program
from allranks.conformance.result import Finding, Ran, Result
from allranks.conformance.trace import Trace
from allranks.conformance.worlds.launched import LaunchedWorld
from allranks.conformance.worlds.processes.world import ProcessesWorld

# How often what was found is run again in fresh workers; where a run ends at the deadline, less often.
CONFIRMATIONS: Final = 5
_CONFIRMATIONS_AT_DEADLINE: Final = 2
# How often a candidate is tried, while reducing, when what was found does not show every time.
_TRIES: Final = 3


def _by_program(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Put findings together that the same Program shows."""
    found: dict[str, list[Finding]] = {}
    for finding in findings:
        found.setdefault(repr(finding.program), []).append(finding)
    return list(found.values())


class ProcessesEngine:
    """An engine in a world of processes.

    Parameters
    ----------
    world : ProcessesWorld or LaunchedWorld
        Where Programs run; it is closed with the engine.
    machine : sim.Machine
        Says how many ranks there may be; nothing is simulated.
    requirements : tuple of str
        Which checks to apply.
    seed, max_ranks
        What Programs depend on.
    progress : callable (Ran)
        Told after every Program.
    strict : bool
        Whether Programs also go beyond what the library's contract offers.
    draw : callable
        Draws Programs.
    """

    def __init__(
        self,
        world: ProcessesWorld | LaunchedWorld,
        machine: sim.Machine,
        requirements: tuple[str, ...],
        *,
        seed: int,
        max_ranks: int,
        progress: Callable[[Ran], None] = lambda ran: None,
        strict: bool = False,
        draw: DrawPrograms = draw_programs,
    ) -> None:
        self.world = world
        self.engine = Engine(
            self.world.backend,
            machine,
            requirements,
            seed=seed,
            max_ranks=max_ranks,
            progress=progress,
            world=self.world,
            unseen=UNSEEN_IN_HOST,
            contract=contract_of(world.backend, strict=strict),
            draw=draw,
        )
        if isinstance(world, ProcessesWorld):
            self.result.machine = world.machine_name
            self.result.facts.update(versions_of(world.backend))

    @property
    def result(self) -> Result:
        """What it came to so far."""
        return self.engine.result

    def check(self, sources: Sequence[str], count: int) -> None:
        """Run the shipped cases, and `count` Programs of each family, as far as they are named."""
        for source in sources:
            if source == CASES:
                self.engine.run_cases(shipped().items())
            else:
                self.engine.run_family(source, count)

    def confirm(self) -> None:
        """Run what was found again, each time in fresh workers, and note how often it showed."""
        for findings in _by_program(self.result.findings.values()):
            times = _CONFIRMATIONS_AT_DEADLINE if findings[0].trace.waited else CONFIRMATIONS
            seen = dict.fromkeys((finding.requirement for finding in findings), 0)
            for _ in range(times):
                self.world.renew()
                trace, broken = self._broken(findings[0].program, tuple(seen))
                for finding in findings:
                    if finding.requirement in broken:
                        seen[finding.requirement] += 1
                        finding.trace, finding.violation = trace, broken[finding.requirement]
            for finding in findings:
                finding.shown = (seen[finding.requirement], times)

    def _broken(self, program: Program, requirements: tuple[str, ...]) -> tuple[Trace, dict[str, Violation]]:
        trace = self.world.run(program)
        judged = judge(program, trace, requirements)
        return trace, {name: outcome.violations[0] for name, outcome in judged.items() if outcome.violations}

    def reduce(self, budget_s: float) -> None:
        """Make the Programs of all findings small, within so many seconds for all of them together."""
        until = time.monotonic() + budget_s
        findings = list(self.result.findings.values())
        for done, finding in enumerate(findings):
            mine = time.monotonic() + max(0.0, until - time.monotonic()) / (len(findings) - done)
            self._reduce(finding, mine)

    def _reduce(self, finding: Finding, until: float) -> None:
        name = finding.requirement
        steady = finding.shown is None or finding.shown[0] == finding.shown[1]
        shown: list[tuple[Program, Trace, Violation]] = []

        def still_fails(program: Program) -> bool:
            for _ in range(1 if steady else _TRIES):
                trace, broken = self._broken(program, (name,))
                if name in broken:
                    shown.append((program, trace, broken[name]))
                    return True
            return False

        small = reduce_program(finding.program, still_fails, out_of_time=lambda: time.monotonic() >= until)
        for program, trace, violation in reversed(shown):
            if program == small:
                self.result.findings[name] = replace(finding, program=small, trace=trace, violation=violation)
                return

    def show(self) -> None:
        """Run what was found, and stalls, once more, for native stacks where a tool is installed that can tell them."""
        stalled = [finding for finding in self.result.findings.values() if finding.trace.stalled]
        self.world.native_stacks = True
        for findings in _by_program(stalled):
            names = tuple(finding.requirement for finding in findings)
            trace, broken = self._broken(findings[0].program, names)
            for finding in findings:
                if finding.requirement in broken:
                    finding.trace, finding.violation = trace, broken[finding.requirement]
        self.world.native_stacks = False

    def close(self) -> None:
        """End the world."""
        self.engine.close()
