"""Sequences, drawn by Hypothesis: mostly calls that should succeed on objects that are alive, and wrong values.

Wrong values are those whose error is defined: sizes of 0 or off the granularity, addresses with nothing mapped, devices
that are not there, unknown flags, attributes of what is no device memory. Nothing is drawn whose outcome CUDA leaves
open: the books (`world`) say what is alive, and `execution` refuses what would be undefined after all.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis import strategies as st

from tests.driver.differential import draw_contents, draw_memory, draw_streams
from tests.driver.differential.drawer import WORD, Drawer
from tests.driver.differential.execution import Step

MIN_STEPS: Final = 15
MAX_STEPS: Final = 22

CHOICES: Final[Sequence[tuple[int, Callable[[Drawer], None]]]] = (
    *draw_memory.CHOICES,
    *draw_contents.CHOICES,
    *draw_streams.CHOICES,
)
_SEEDS: Final = st.binary(min_size=8, max_size=8)
_WEIGHED: Final = [draw for weight, draw in CHOICES for _ in range(weight)]


@st.composite
def sequences(draw: st.DrawFn) -> list[Step]:
    """Draw the steps of one sequence.

    All choices come from one drawn value: Hypothesis varies the values of an example to make the next ones, which would
    be sequences that differ in one step only.
    """
    chosen = random.Random(draw(_SEEDS))
    drawer = Drawer(lambda: chosen.randrange(WORD))
    length = MIN_STEPS + drawer.index(MAX_STEPS - MIN_STEPS + 1)
    while len(drawer.steps) < length:
        made = len(drawer.steps)
        drawer.of(_WEIGHED)(drawer)
        if len(drawer.steps) == made:  # nothing to do that to
            draw_memory.create(drawer)
    return drawer.steps


def draw_sequences(count: int, number: int) -> Iterator[list[Step]]:
    """Draw so many different sequences; the same ones for the same number and version of Hypothesis."""
    found: dict[str, list[Step]] = {}
    round_number = 0
    while len(found) < count:

        @seed(number + round_number * 1_000_003)
        @settings(
            max_examples=max(50, count - len(found)),  # the first ones of a round are simple ones
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
            verbosity=Verbosity.quiet,
        )
        @given(sequences())
        def collect(steps: list[Any]) -> None:
            found.setdefault(repr(steps), steps)

        collect()
        round_number += 1
    yield from list(found.values())[:count]
