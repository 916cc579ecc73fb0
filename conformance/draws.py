"""How values are drawn: by Hypothesis, independently of each other, and the same for the same seed everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeVar

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from allranks.conformance.program import Program
from allranks.conformance.strategies import programs

T = TypeVar("T")

# Of a run of ten or more Hypothesis makes some very small, and varies others, instead of drawing them independently.
_DRAWN_AT_ONCE: Final = 8
_MOST_RUNS: Final = 1_000_000


def draw_values(strategy: st.SearchStrategy[T], count: int, use: Callable[[T], None], *, seed: int) -> None:
    """Draw `count` values and use each: generated only, nothing kept, nothing shrunk, no health checks.

    Hypothesis begins every run with the simplest value, and lets each one after the tenth be followed by up to five
    variations of it, which say little that it does not. So there are many short runs, with a seed each; what all of
    them begin with is used once.
    """
    for run in range(-(-count // _DRAWN_AT_ONCE)):
        _draw_run(strategy, count, use, seed=seed, run=run)


def drawn_values(strategy: st.SearchStrategy[T], count: int, *, seed: int) -> Iterator[T]:
    """Give what `draw_values` draws, a few values at a time, to one who may not want them all."""
    for run in range(-(-count // _DRAWN_AT_ONCE)):
        values: list[T] = []
        _draw_run(strategy, count, values.append, seed=seed, run=run)
        yield from values


def _draw_run(strategy: st.SearchStrategy[T], total: int, use: Callable[[T], None], *, seed: int, run: int) -> None:
    count = min(total - run * _DRAWN_AT_ONCE, _DRAWN_AT_ONCE)
    simplest = passed_over = run == 0

    @hypothesis.seed(seed * _MOST_RUNS + run)
    @settings(
        max_examples=count + (not simplest),
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(strategy)
    def each(value: T) -> None:
        nonlocal passed_over
        if passed_over:
            use(value)
        passed_over = True

    each()


def draw_programs(family: str, count: int, use: Callable[[Program, int], None], *, seed: int, max_ranks: int) -> None:
    """Draw `count` Programs of a family, and use each with its number, from 1. They depend on the arguments alone."""
    examples = 0

    def numbered(program: Program) -> None:
        nonlocal examples
        examples += 1
        use(program, examples)

    draw_values(programs(family, max_ranks=max_ranks), count, numbered, seed=seed)
