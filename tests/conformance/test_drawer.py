"""Programs that a process of their own draws are those that are drawn here, whatever becomes of the process."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from allranks.conformance.drawer import Drawer, Draws
from allranks.conformance.draws import draw_programs, draw_values
from allranks.conformance.program import Program
from allranks.processes.watch import children

GIVEN = {"seed": 3, "max_ranks": 3}
COUNT = 40  # more than fit into a pipe
ENDS_S = 30.0  # a test that fails takes so long


@pytest.fixture
def drawer() -> Iterator[Drawer]:
    with Drawer() as one:
        yield one


def here(family: str, count: int = COUNT) -> list[Program]:
    found: list[Program] = []
    draw_programs(family, count, lambda program, number: found.append(program), **GIVEN)
    return found


def there(drawer: Drawer, family: str, count: int = COUNT) -> list[Program]:
    found: list[Program] = []

    def use(program: Program, number: int) -> None:
        found.append(program)
        assert number == len(found)

    drawer.draw_programs(family, count, use, **GIVEN)
    return found


def test_it_draws_the_same(drawer: Drawer) -> None:
    assert [there(drawer, family) for family in ("RDV", "COLL")] == [here("RDV"), here("COLL")]


def test_bounds_are_kept(drawer: Drawer) -> None:
    draws = Draws(family="CACHE", count=12, seed=1, min_ranks=2, max_ranks=2, min_steps=1, max_steps=2)
    found: list[Program] = []
    draw_values(draws.strategy(), draws.count, found.append, seed=draws.seed)
    assert list(drawer.drawn(draws)) == found


def test_what_a_killed_one_has_not_drawn_is_drawn_here(drawer: Drawer) -> None:
    found = []
    for number, program in enumerate(drawer.drawn(Draws(family="LIFE", count=COUNT, **GIVEN))):
        found.append(program)
        if number == 2:
            os.kill(drawer.pid, signal.SIGKILL)
    assert found == here("LIFE")
    assert there(drawer, "RDV", 5) == here("RDV", 5)


def test_one_that_was_left_in_the_middle_begins_anew(drawer: Drawer) -> None:
    drawn = drawer.drawn(Draws(family="COLL", count=COUNT, **GIVEN))
    next(drawn)
    drawn.close()
    assert there(drawer, "RDV", 5) == here("RDV", 5)


def test_what_cannot_be_drawn_fails_here(drawer: Drawer) -> None:
    with pytest.raises(KeyError, match="NONE"):
        there(drawer, "NONE")


def test_nothing_is_left_of_it() -> None:
    with Drawer() as drawer:
        assert drawer.pid in children(os.getpid())
    assert drawer.pid not in children(os.getpid())


def test_it_ends_with_who_started_it() -> None:
    script = (
        "from allranks.conformance.drawer import Drawer, Draws; drawer = Drawer(); "
        "drawn = drawer.drawn(Draws(family='COLL', count=1000, seed=0, max_ranks=2)); next(drawn); "
        "print(drawer.pid, flush=True); input()"
    )
    command = [sys.executable, "-P", "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        handle = os.pidfd_open(int(running.stdout.readline()))
        running.kill()
    try:
        assert select.select([handle], [], [], ENDS_S)[0]
    finally:
        os.close(handle)
