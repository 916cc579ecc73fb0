"""Programs drawn ahead by a thread: the same ones, in order, and none of it left when nobody wants them any more.

Not verified: how much time it saves (`allranks bench engine --world processes` does that).
"""

from __future__ import annotations

import contextlib
import sys
import threading

import pytest

from allranks.conformance import draws
from allranks.conformance.draws import draw_values, drawn_ahead
from allranks.conformance.program import Program
from allranks.conformance.strategies import programs


def drawing() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("allranks-draw")]


@pytest.mark.parametrize("count", [1, 8, 21])
def test_they_are_what_is_drawn_without_a_thread(count: int) -> None:
    wanted: list[Program] = []
    draw_values(programs("CACHE", max_ranks=3), count, wanted.append, seed=4)
    assert list(drawn_ahead(programs("CACHE", max_ranks=3), count, seed=4, most=2)) == wanted
    assert len(wanted) == count
    assert drawing() == []


def test_nothing_is_left_when_nobody_wants_more() -> None:
    interval = sys.getswitchinterval()
    with contextlib.closing(drawn_ahead(programs("RDV", max_ranks=2), 200, seed=1, most=1)) as ahead:
        assert isinstance(next(ahead), Program)
        assert drawing() == ["allranks-draw"]
        assert sys.getswitchinterval() < interval
    assert drawing() == []
    assert sys.getswitchinterval() == interval


def test_an_error_in_drawing_is_raised_where_programs_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("drawn by nobody")

    monkeypatch.setattr(draws, "_draw_run", broken)
    with pytest.raises(ZeroDivisionError, match="drawn by nobody"):
        list(drawn_ahead(programs("RDV", max_ranks=2), 3, seed=1))
    assert drawing() == []
