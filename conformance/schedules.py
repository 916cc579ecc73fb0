"""Schedules: which task goes on where more than one could, chosen while a run is under way.

A schedule is asked at every decision, with the number of tasks that can run; 0 means that the current one goes on.
What differs from 0 are *deviations*, and a list of them is a schedule too. `explore` goes through all schedules with at
most so many deviations, by running again and again: every run is asked for what it did at each decision, and each of
its decisions after the last deviation is the start of others. Fewer deviations come first, so that the first failure
has the fewest that show it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from allranks import sim
from allranks.conformance.program import Program
from allranks.conformance.trace import Trace
from allranks.conformance.worlds.ranks import RankThreads
from allranks.errors import UsageError

Deviations = tuple[tuple[int, int], ...]
Schedule = Callable[[int, int], int]

_QUIET_S = 20.0


class Asked:
    """A schedule that deviates at given decisions, and remembers how many tasks could run at each."""

    def __init__(self, deviations: Deviations) -> None:
        self.runnable: list[int] = []
        self._choices = dict(deviations)

    def __call__(self, decision: int, runnable: int) -> int:
        """Choose."""
        self.runnable.append(runnable)
        return self._choices.get(decision, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What went wrong under a schedule."""

    deviations: Deviations
    fault: str


@dataclass(slots=True, kw_only=True)
class Exploration:
    """What an exploration came to.

    Parameters
    ----------
    preemptions : int
        Deviations at most.
    explored : int
        Schedules that were run, each once.
    complete : bool
        Whether those were all that there are.
    failure : Failure or None
        The first that failed.
    longest : int
        Decisions of the longest run.
    """

    preemptions: int
    explored: int = 0
    complete: bool = False
    failure: Failure | None = None
    longest: int = 0


class UnsteadyError(Exception):
    """The same schedule led to another run: something else than the schedule decides."""


def explore(run: Callable[[Schedule], str], *, preemptions: int, most: int | None = None) -> Exploration:
    """Run everything that schedules with at most `preemptions` deviations lead to, until one fails.

    Parameters
    ----------
    run : callable (schedule) -> fault
        Runs once, from the start, and says what is wrong; empty: nothing. Its decisions depend on the schedule alone.
    preemptions : int
        Deviations at most.
    most : int, optional
        Schedules at most; more are left out, and the exploration is not complete.

    Raises
    ------
    UnsteadyError
        If a run does not repeat the decisions of the one that it starts from.
    """
    if preemptions < 0:
        raise UsageError(f"preemptions={preemptions}: a whole number from 0 on")
    result = Exploration(preemptions=preemptions)
    # Runs that others start from: deviations, and how many tasks could run at each decision.
    parents: deque[tuple[Deviations, list[int]]] = deque()
    for deviations, before in _with_children(parents):
        if most is not None and result.explored >= most:
            return result
        asked = Asked(deviations)
        fault = run(asked)
        result.explored += 1
        result.longest = max(result.longest, len(asked.runnable))
        if asked.runnable[: len(before)] != before:
            raise UnsteadyError(f"deviations={deviations}: decisions {before} at first, then {asked.runnable}")
        if fault:
            result.failure = Failure(deviations=deviations, fault=fault)
            return result
        if len(deviations) < preemptions:
            parents.append((deviations, asked.runnable))
    result.complete = True
    return result


def _with_children(parents: deque[tuple[Deviations, list[int]]]) -> Iterator[tuple[Deviations, list[int]]]:
    """Give deviations to run with, and what the run is known to begin with; runs become parents as they come back."""
    yield (), []
    while parents:
        deviations, runnable = parents.popleft()
        first = deviations[-1][0] + 1 if deviations else 0
        for decision in range(first, len(runnable)):
            for choice in range(1, runnable[decision]):
                yield (*deviations, (decision, choice)), runnable[: decision + 1]


class RankFunctions:
    """Runs bare functions of ranks under schedules; without a communicator, for protocols that are tried out.

    Parameters
    ----------
    rank_count : int
        Ranks.
    make : callable () -> (body, fault)
        Makes a fresh state, and gives what each rank does with it, and what says afterwards what is wrong. Ranks give
        others a chance with `sim.yield_turn`, and wait with `sim.wait` and `sim.notify`; nothing else interrupts them.
    """

    def __init__(self, rank_count: int, make: Callable[[], tuple[Callable[[int], None], Callable[[], str]]]) -> None:
        self.rank_count = rank_count
        self.make = make
        self._machine = sim.machine("tiny", devices=1)
        self._threads = RankThreads()

    def __enter__(self) -> RankFunctions:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.close()

    def run(self, schedule: Schedule | Deviations = ()) -> str:
        """Run once; gives what is wrong: a stall, an exception, or what the state says. Empty: nothing."""
        body, fault = self.make()
        node = sim.Node(self._machine)
        processes = [node.create_process(rank) for rank in range(self.rank_count)]
        errors: list[str] = []

        def job(rank: int) -> Callable[[], None]:
            def play() -> None:
                processes[rank].enter(rank)
                try:
                    body(rank)
                except Exception as error:  # noqa: BLE001 -- whatever it is, it is what the run showed
                    errors.append(f"rank {rank}: {type(error).__name__}: {error}")
                finally:
                    sim.leave()

            return play

        node.run_begin(self.rank_count, schedule)
        self._threads.start([job(rank) for rank in range(self.rank_count)])
        if not node.run_wait(_QUIET_S):
            stacks = self._threads.stacks(self.rank_count)
            self._threads.abandon()
            lines = [f"rank {rank}: {' < '.join(reversed(stack))}" for rank, (stack, _) in sorted(stacks.items())]
            return "\n".join(["a rank kept its turn:", *lines])
        stalled = node.stalled
        node.close()
        if stalled:
            return "nothing can go on"
        return errors[0] if errors else fault()


def realised(program: Program, trace: Trace) -> Program:
    """Give the Program with the deviations that its run really made in place of those that it asked for."""
    return program if trace.outside else replace(program, schedule=trace.deviations)
