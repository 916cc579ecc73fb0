"""A small world for the turnstile's tests: one thread a rank, each a task of a run, and a log of who did what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from allranks import sim

QUIET_LIMIT_S = 60.0
Schedule = Sequence[tuple[int, int]] | Callable[[int, int], int]


class World:
    """Ranks that take turns on one simulated host."""

    def __init__(self, rank_count: int) -> None:
        self.node = sim.Node(sim.machine("tiny", devices=1))
        self.processes = [self.node.create_process(rank) for rank in range(rank_count)]
        self.log: list[str] = []

    def run(self, body: Callable[[int], None], schedule: Schedule = ()) -> list[str]:
        """Run `body(rank)` on every rank, one turn at a time; give what they logged."""
        self.log = []

        def rank_main(rank: int) -> None:
            self.processes[rank].enter(rank)
            try:
                body(rank)
            finally:
                sim.leave()

        ranks = range(len(self.processes))
        self.node.run_begin(len(ranks), schedule)
        with ThreadPoolExecutor(len(ranks)) as pool:
            # The order of turns does not come from the order of starting.
            futures = [pool.submit(rank_main, rank) for rank in reversed(ranks)]
            assert self.node.run_wait(QUIET_LIMIT_S)
        for future in futures:
            future.result()
        return self.log

    def say(self, text: str) -> None:
        """Log; no lock is needed, for only one rank runs."""
        self.log.append(text)

    def close(self) -> None:
        """Check the books and end the host."""
        self.node.check_invariants()
        self.node.close()


def wait_for(condition: Callable[[], bool], **more: Any) -> sim.WaitResult:
    """Wait for a condition in the name of a test; `more` as for `sim.wait`."""
    return sim.wait(condition, call="test.wait", object="flag", **more)
