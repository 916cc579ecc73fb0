"""Worlds for the suite's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from allranks import sim
from allranks.conformance.backend import load_backend
from allranks.conformance.worlds.threads import ThreadsWorld

WorldOf = Callable[..., ThreadsWorld]


@pytest.fixture
def world_of() -> Iterator[WorldOf]:
    """Make worlds by backend's name; they end with the test."""
    made: list[ThreadsWorld] = []

    def make(backend: str, machine: sim.Machine | None = None) -> ThreadsWorld:
        world = ThreadsWorld(load_backend(backend), machine or sim.machine("h100"))
        made.append(world)
        return world

    yield make
    for world in made:
        world.close()
