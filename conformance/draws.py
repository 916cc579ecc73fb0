"""How values are drawn: by Hypothesis, independently of each other, and the same for the same seed everywhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from allranks.conformance.program import Program
from allranks.conformance.strategies import programs

T = TypeVar("T")

# Of a run of ten or more Hypothesis makes some very small, and varies others, instead of drawing them independently.
_DRAWN_AT_ONCE: Final = 8
_MOST_RUNS: Final = 1_000_000

# For the environment of a process that draws: Hypothesis would leave a folder where the user is, and does without what
# it cannot write.
WITHOUT_FOLDER: Final = {"HYPOTHESIS_STORAGE_DIRECTORY": os.path.join(os.devnull, "hypothesis")}


def draw_values(strategy: st.SearchStrategy[T], count: int, use: Callable[[T], None], *, seed: int) -> None:
    """Draw `count` values and use each: generated only, nothing kept, nothing shrunk, no health checks.

    Hypothesis begins every run with the simplest value, and lets each one after the tenth be followed by up to five
    variations of it, which say little that it does not. So there are many short runs, with a seed each; what all of
    them begin with is used once.
    """
    runs = _Runs(strategy, use)
    for run in range(-(-count // _DRAWN_AT_ONCE)):
        runs.draw(count, seed=seed, run=run)


def drawn_values(strategy: st.SearchStrategy[T], count: int, *, seed: int) -> Iterator[T]:
    """Give what `draw_values` draws, a few values at a time, to one who may not want them all."""
    values: list[T] = []
    runs = _Runs(strategy, values.append)
    for run in range(-(-count // _DRAWN_AT_ONCE)):
        runs.draw(count, seed=seed, run=run)
        yield from values
        values.clear()


class _Runs(Generic[T]):
    """Short runs of Hypothesis on a strategy.

    One test serves all runs of a length: of a new one Hypothesis reads the source, which takes longer than to draw a
    value.
    """

    def __init__(self, strategy: st.SearchStrategy[T], use: Callable[[T], None]) -> None:
        self._strategy = strategy
        self._use = use
        self._passed_over = False  # the simplest value, which every run begins with
        self._tests: dict[int, Callable[[], None]] = {}
        self._failed: Exception | None = None

    def draw(self, total: int, *, seed: int, run: int) -> None:
        """Draw one of the runs that make up `total` values."""
        simplest = run == 0
        most = min(total - run * _DRAWN_AT_ONCE, _DRAWN_AT_ONCE) + (not simplest)
        if most not in self._tests:
            self._tests[most] = self._test(most)
        self._passed_over = simplest
        hypothesis.seed(seed * _MOST_RUNS + run)(self._tests[most])()
        if self._failed is not None:
            raise self._failed

    def _test(self, most: int) -> Callable[[], None]:
        @settings(
            max_examples=most,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @hypothesis.given(self._strategy)
        def each(value: T) -> None:
            if self._passed_over and self._failed is None:
                try:
                    self._use(value)
                except Exception as error:  # noqa: BLE001 -- Hypothesis would try again what it sees fail
                    self._failed = error
            self._passed_over = True

        test: Callable[[], None] = each
        return test


def draw_programs(family: str, count: int, use: Callable[[Program, int], None], *, seed: int, max_ranks: int) -> None:
    """Draw `count` Programs of a family, and use each with its number, from 1. They depend on the arguments alone."""
    examples = 0

    def numbered(program: Program) -> None:
        nonlocal examples
        examples += 1
        use(program, examples)

    draw_values(programs(family, max_ranks=max_ranks), count, numbered, seed=seed)
