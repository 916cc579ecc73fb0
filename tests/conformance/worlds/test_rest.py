"""When ranks that a launcher has started are at rest: not before each of them is known to be, by real processes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from allranks.conformance.worlds.rest import BOARD_BYTES, Rest, Signs
from allranks.processes.stillness import STILL_S
from tests.processes.test_watch import FIFO, at, settled

# The main thread watches, as that of a rank does; another one is in the communicator under test.
RANK = "threading.Thread(target={target}, args={given}, daemon=True).start()\ntime.sleep(3600)"
BLOCKED = FIFO + RANK.format(target="os.read", given="(r, 1)")
TIMED = RANK.format(target="time.sleep", given="(1800,)")
CALLS = {BLOCKED: "read", TIMED: "clock_nanosleep"}
LONG_S = 10 * STILL_S


class Ranks:
    """Ranks as processes, and the signs that they would give."""

    def __init__(self, pids: list[int]) -> None:
        self.board = [0] * (BOARD_BYTES // 8)
        self.pids = dict(enumerate(pids))
        self.signs = [Signs(self.board, rank) for rank in self.pids]
        self.rest = Rest(self.board, self.pids, len(pids))
        self.now = 0.0
        for signs, pid in zip(self.signs, pids, strict=True):
            signs.plays(max(map(int, os.listdir(f"/proc/{pid}/task"))))

    def look(self, *through: int) -> bool:
        """Look, long after the last time."""
        self.now += LONG_S
        return self.rest.reached(self.now, through)

    def at_rest(self, *through: int) -> bool:
        """Look twice: once is never enough."""
        self.rest.forget()
        assert not self.look(*through)
        return self.look(*through)


@contextlib.contextmanager
def ranks(*texts: str) -> Iterator[Ranks]:
    """Give ranks that are where they are to be."""
    with contextlib.ExitStack() as stack:
        pids = [stack.enter_context(at(text)) for text in texts]
        for text, pid in zip(texts, pids, strict=True):
            settled(pid, "clock_nanosleep", CALLS[text])
        yield Ranks(pids)


def test_ranks_whose_threads_are_blocked_are_at_rest_whatever_their_main_thread_does() -> None:
    with ranks(BLOCKED, BLOCKED) as both:
        assert both.at_rest()
        event = both.rest.event(1)
        assert (event.status, event.error_type) == ("stalled", "Blocked")
        assert event.error == "waits in read on a pipe, without a time-out, for ever"


def test_one_that_waits_with_a_timeout_keeps_all_from_being_at_rest() -> None:
    with ranks(BLOCKED, TIMED) as both:
        assert not both.at_rest()


def test_one_that_is_not_known_to_play_is_on_its_way_unless_it_is_through() -> None:
    with ranks(BLOCKED, BLOCKED) as both:
        both.signs[1].plays(0)
        assert not both.at_rest()
        assert both.at_rest(1)


def test_one_of_another_machine_is_not_known() -> None:
    with ranks(BLOCKED, BLOCKED) as both:
        both.rest = Rest(both.board, {0: both.pids[0]}, 2)
        assert not both.at_rest()


def test_one_that_waits_in_the_world_is_at_rest_once_it_has_looked_in_vain() -> None:
    with ranks(BLOCKED, TIMED) as both:
        both.signs[1].waits("after the last step")
        assert not both.at_rest()  # something may be on its way
        for _ in range(2):
            both.signs[1].looked()
        assert both.look()
        assert both.rest.event(1).error == "waits in the world itself for the other ranks, for ever"
        both.signs[1].waits(None)
        assert not both.at_rest()


def test_ranks_that_wait_for_each_other_in_the_same_place_are_about_to_go_on() -> None:
    with ranks(TIMED, TIMED) as both:
        for signs in both.signs:
            signs.waits("the same")
        assert not both.at_rest()
        for signs in both.signs:
            for _ in range(2):
                signs.looked()
        assert not both.look()
        both.signs[0].waits("another")
        assert not both.at_rest()
        for signs in both.signs:
            for _ in range(2):
                signs.looked()
        assert both.look()


def test_of_ranks_that_nobody_sees_nothing_is_known_however_long_they_take() -> None:
    labels = [0, 0]  # of a job that this process is a rank of: there are no signs beside them
    rest = Rest(labels, {}, len(labels))
    assert not rest.reached(0.0, ())
    assert not rest.reached(LONG_S, ())
