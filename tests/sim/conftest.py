"""The rows are collected by the child process of `test_driver_rows.py` only; worlds of ranks for the turnstile."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from tests.sim.turnstile_world import World

collect_ignore = [] if "ALLRANKS_DRIVER_ROWS" in os.environ else ["rows"]


@pytest.fixture
def make_world() -> Iterator[Callable[[int], World]]:
    """Give a maker of worlds with so many ranks, whose books are checked at the end of the test."""
    worlds: list[World] = []

    def make(rank_count: int) -> World:
        worlds.append(World(rank_count))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()
