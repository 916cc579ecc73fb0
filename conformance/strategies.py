"""Strategies: Programs for Hypothesis to draw.

Length is drawn first, then steps and situations, each from the family's table of kinds. Tables are weighted by what
divides ranks: buffers that one rank alone frees, moves, or addresses differently.
"""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from allranks.conformance import program as p
from allranks.conformance.drawing import MIB, SHIFTS
from allranks.conformance.program import Operand, Region, Step
from allranks.conformance.situations import Situations

# What each family is made of; a kind that is listed twice comes twice as often.
TABLES: Final[dict[str, tuple[str, ...]]] = {
    "RDV": (
        *("connect", "move", "allocate", "put", "all_reduce", "all_gather", "free", "uneven", "exchange"),
        *("reconnect", "churn", "grow", "renewed", "some_then_all", "let_go"),
    ),
    "CACHE": (
        *("exchange", "put", "move", "allocate", "free", "renewed", "shared", "crossed", "pieces", "windows"),
        *("reconnect", "renewed", "churn", "connect_loop", "pieces"),
    ),
    "NVLS": (
        *("bind", "open_group", "multicast_store", "multicast_reduce", "unbind", "allocate", "close_group", "bind"),
        *("rebind", "two_groups", "reopen", "no_room", "move", "multicast_store"),
    ),
    "LIFE": (
        *("loop", "drop", "bind", "connect", "open_group", "free", "allocate", "connect_loop"),
        *("drops", "exchange", "grow", "bind"),
    ),
    # No connect here: peers need not reach memory of the plain kind.
    "COLL": ("all_reduce", "all_gather", "all_reduce", "all_gather", "move", "allocate_either", "all_reduce", "churn"),
}
# How many of them a Program has, at least and at most.
_LENGTHS: Final = {"RDV": (3, 7), "CACHE": (2, 5), "NVLS": (3, 7), "LIFE": (2, 6), "COLL": (3, 8)}
# With so many steps, times ranks, a Program is long enough: what many ranks do takes its time, and what connects every
# pair of them takes the most.
ROOM: Final = {"RDV": 112, "CACHE": 112, "NVLS": 144, "LIFE": 128, "COLL": 128}
# Of so many Programs one has one rank, where nothing divides.
_ONE_RANK_IN: Final = 12

# What a Program of the family starts with, so that its steps have something to refer to.
_STARTS: Final[dict[str, tuple[Step, ...]]] = {
    "RDV": (p.Allocate(size_bytes=2 * MIB), p.Connect(region=Operand(Region()))),
    "CACHE": (p.Allocate(size_bytes=2 * MIB), p.Connect(region=Operand(Region()))),
    "NVLS": (
        p.Allocate(size_bytes=3_000_001),
        p.Allocate(size_bytes=2 * MIB),
        p.OpenGroup(capacity_bytes=16 * MIB),
    ),
    "LIFE": (),
    "COLL": (p.Allocate(size_bytes=2 * MIB), p.Allocate(size_bytes=5 * MIB + 12)),
}


def programs(
    family: str, *, max_ranks: int, min_ranks: int = 1, min_steps: int | None = None, max_steps: int | None = None
) -> SearchStrategy[p.Program]:
    """Programs of a family.

    Parameters
    ----------
    family : str
        One of the keys of `TABLES`.
    max_ranks, min_ranks : int
        Ranks at most, and at least. A Program shrinks towards two.
    min_steps, max_steps : int, optional
        Steps and situations beside what the family starts with; as many as are usual in the family by default. Of
        many ranks there are fewer, see `ROOM`.
    """
    shortest, longest = _LENGTHS[family]
    shortest, longest = (shortest if min_steps is None else min_steps), (longest if max_steps is None else max_steps)
    counts = _rank_counts(min_ranks, max_ranks)

    @st.composite
    def drawn(draw: DrawFn) -> p.Program:
        drawer = Situations(draw, draw(st.sampled_from(counts), label="ranks"), list(_STARTS[family]))
        length = draw(st.integers(shortest, longest), label="length")
        for _ in range(length):
            if drawer.step_count * drawer.rank_count >= ROOM[family]:
                break
            drawer.draw_kind(drawer.pick(TABLES[family], "kind"))
        shift = drawer.diverging(0, lambda: drawer.pick(SHIFTS, "shift"))
        return p.Program(
            rank_count=drawer.rank_count,
            steps=tuple(drawer.steps),
            seed=drawer.index(100, "seed"),
            shift_bytes=shift,
            schedule=drawer.schedule(),
        )

    return drawn()


def _rank_counts(least: int, most: int) -> list[int]:
    """Give what is drawn from, two first; one rank is in the middle, for the ends of a table are drawn more often."""
    several = list(range(max(2, least), most + 1))
    if least > 1 or not several:
        return several or [1]
    several *= -(-_ONE_RANK_IN // len(several))
    return [*several[: len(several) // 2], 1, *several[len(several) // 2 :]]
