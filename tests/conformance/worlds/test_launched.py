"""World `mpi` as the one sees it who gives ranks their Programs; the ranks here are played by the test."""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import Any

from allranks.conformance import program as p
from allranks.conformance.backends.plain import PlainBackend
from allranks.conformance.program import Program
from allranks.conformance.trace import CLOSING, Event
from allranks.conformance.worlds.launched import LaunchedWorld
from allranks.conformance.worlds.launched_rank import Answer, Play
from allranks.conformance.worlds.player import Played
from allranks.conformance.worlds.rest import BOARD_BYTES, Rest
from allranks.conformance.worlds.told import Told

PROGRAM = Program(rank_count=2, steps=(p.Allocate(size_bytes=64),))
WELL = Event(status="ok")


class HalfSilentCrew:
    """Rank 0 is through with every Program at once; rank 1 stops in close, and says nothing any more."""

    size = 2
    facts: dict[str, str] = {}  # noqa: RUF012 -- of the protocol
    pids: list[int] = []  # noqa: RUF012 -- as above

    def __init__(self) -> None:
        self.board: MutableSequence[int] = [0, 0]
        self.said: list[tuple[int, Any]] = []
        self.started = 1

    def send(self, rank: int, message: object) -> None:
        assert isinstance(message, Play)
        self.board[rank] = CLOSING
        if rank == 0:
            told = Told(events=[WELL], opening=WELL, closing=WELL)
            self.said.append((0, Answer(message.run, Played(rank=0, over=True, at=CLOSING, told=told))))

    def receive(self, timeout_s: float) -> tuple[int, Any] | None:
        return self.said.pop(0) if self.said else None

    def state(self, rank: int) -> str:
        return "its process is stopped"

    def rest(self, rank_count: int) -> Rest:
        return Rest([0] * (BOARD_BYTES // 8), {}, rank_count)

    def again(self) -> bool:
        self.started += 1
        return True

    def close(self) -> None:
        pass


def test_a_rank_that_says_nothing_is_replaced_though_all_others_are_through() -> None:
    crew = HalfSilentCrew()
    with LaunchedWorld(PlainBackend(), crew, deadline_s=0.1) as world:
        trace = world.run(PROGRAM)
    assert trace.closing[1].error == "its process is stopped"
    assert crew.started == 2
