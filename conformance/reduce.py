"""Making a failing Program small: delta debugging on its steps, then on what they say.

Greedy and deterministic: a change is kept if the failure is still there, and the search goes on where it is, so that
what did not help is tried again only once all the rest has been. Large changes come first: half of the steps, all
values of a step, all steps at once. A schedule that is not needed goes first; one that is needed is reduced last.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator

from allranks.conformance.program import Program
from allranks.conformance.shorter import (
    doing_something,
    fewer_ranks,
    fewer_steps,
    flatter,
    folded,
    fused,
    looped,
    without_pairs,
)
from allranks.conformance.simpler import simpler_values, simplest_values

StillFails = Callable[[Program], bool]
Candidates = Callable[[Program], Iterator[Program]]


def _fewer_deviations(program: Program) -> Iterator[Program]:
    schedule = program.schedule
    for count in sorted({len(schedule), len(schedule) // 2, 1}, reverse=True):
        for start in range(0, len(schedule), max(1, count)):
            if count:
                yield dataclasses.replace(program, schedule=schedule[:start] + schedule[start + count :])
    for index, (decision, choice) in enumerate(schedule):
        if choice > 1:
            yield dataclasses.replace(
                program, schedule=(*schedule[:index], (decision, choice - 1), *schedule[index + 1 :])
            )


class _OutOfRuns(Exception):  # noqa: N818 -- no error: it ends the search
    """As many Programs as allowed have been tried, or for as long as allowed."""


class _Search:
    """The smallest failing Program so far, and what has been tried."""

    def __init__(
        self, program: Program, still_fails: StillFails, max_runs: int, out_of_time: Callable[[], bool]
    ) -> None:
        self.program = program
        self.still_fails = still_fails
        self.runs_left = max_runs
        self.out_of_time = out_of_time
        self.seen = {repr(program)}

    def attempt(self, candidate: Program) -> bool:
        """Try a Program that was not tried before, and keep it if it fails."""
        key = repr(candidate)
        if key in self.seen:
            return False
        self.seen.add(key)
        if self.runs_left == 0 or self.out_of_time():
            raise _OutOfRuns
        self.runs_left -= 1
        if not self.still_fails(candidate):
            return False
        self.program = candidate
        return True

    def sweep(self, candidates: Candidates) -> bool:
        """Go once through the candidates; after one that fails, on with those of the smaller Program."""
        index, changed, progress = 0, False, True
        while progress:
            progress = False
            for candidate in itertools.islice(candidates(self.program), index, None):
                if self.attempt(candidate):
                    changed = progress = True
                    break
                index += 1
        return changed


def reduce_program(
    program: Program,
    still_fails: StillFails,
    *,
    max_runs: int = 2000,
    out_of_time: Callable[[], bool] = lambda: False,
) -> Program:
    """Give a small Program that still fails.

    Parameters
    ----------
    program : Program
        One that fails.
    still_fails : callable
        Whether a Program shows the failure that is meant.
    max_runs : int
        How many Programs to try at most.
    out_of_time : callable
        Asked before each Program whether it is enough.
    """
    search = _Search(program, still_fails, max_runs, out_of_time)
    try:
        if program.schedule:
            search.attempt(dataclasses.replace(program, schedule=()))
        changed = True
        while changed:
            changed = False
            for candidates in (
                *(fewer_ranks, doing_something, fewer_steps, flatter, fused, folded),
                *(simplest_values, simpler_values, _fewer_deviations),
            ):
                changed |= search.sweep(candidates)
            if not changed:
                changed = search.sweep(without_pairs) or search.sweep(looped)
    except _OutOfRuns:
        pass
    return search.program
