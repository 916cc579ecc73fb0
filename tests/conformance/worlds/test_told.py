"""What ranks tell is not believed without looking: wrong, missing, damaged, in pieces."""

from __future__ import annotations

import random
from typing import Any

import pytest

from allranks.conformance.draws import draw_programs
from allranks.conformance.plan import planned
from allranks.conformance.program import Program
from allranks.conformance.requirements import FAMILIES
from allranks.conformance.worlds.processes.parcel import pack, unpack
from allranks.conformance.worlds.processes.wire import Frame, Garbled, Inbox, Kind, read_record, record
from allranks.conformance.worlds.told import Told, Untrue

OK = ["ok", "", "", "", (), -1, {}]
OPEN: dict[str, Any] = {"open": OK, "can": ["all_reduce"]}
END: dict[str, Any] = {"close": OK, "after": [], "probes": [], "usage": [], "contents": []}


def step(number: int, event: Any = None) -> dict[str, Any]:
    """Give the record of a step."""
    return {"step": number, "event": event or OK}


def test_a_whole_story_is_believed() -> None:
    told = Told()
    seen = ["ok", "", "", "", (), 3, {"result": b"\0\1", "reached": [[1, 2]]}]
    told.read([OPEN, step(0), {**step(1, seen), "placed": (0, (), -1)}, END], steps=2)
    assert told.capabilities == ("all_reduce",)
    assert told.events[1].rendezvous == 3
    assert told.events[1].observed["result"] == b"\0\1"
    assert told.closing is not None


@pytest.mark.parametrize(
    ("records", "why"),
    [
        ([step(0)], "the result of open is missing"),
        ([OPEN, OPEN], "open is told twice"),
        ([OPEN, step(1)], "the result of step 1 is told where that of step 0 should be"),
        ([OPEN, step(0), step(0)], "the result of step 0 is told where that of step 1 should be"),
        ([OPEN, step(0), step(1), step(2)], "the result of step 2 is told where that of step 2 should be"),
        ([OPEN, step(0), END], "the result of step 1 is missing"),
        ([OPEN, step(0), step(1), END, END], "something is told after the end"),
        ([OPEN, step(0, ["fine", "", "", "", (), -1, {}])], "status='fine'"),
        ([OPEN, step(0, ["ok"])], "a record cannot be read: ValueError"),
        ([OPEN, {"step": 0}], "a record cannot be read: KeyError"),
        ([7], "a record cannot be read: TypeError"),
    ],
)
def test_what_cannot_be_is_named(records: list[Any], why: str) -> None:
    told = Told()
    with pytest.raises(Untrue) as raised:
        told.read(records, steps=2)
    assert why in str(raised.value)


def test_a_record_comes_back_as_it_was() -> None:
    value = {"a": [1, -(2**70), 0.5, None, True, "ü", b"\xff", (1, 2)], 3: {}}
    assert read_record(record(value)) == value
    with pytest.raises(TypeError, match="a record holds plain data only"):
        record(object())


def test_every_damage_of_one_byte_is_noticed() -> None:
    whole = record({"step": 1, "event": OK})
    for place in range(len(whole)):
        damaged = bytes([*whole[:place], whole[place] ^ 0x10, *whole[place + 1 :]])
        with pytest.raises(Garbled):
            read_record(damaged)
    for size in range(len(whole)):
        with pytest.raises(Garbled):
            read_record(whole[:size])


def test_frames_are_the_same_however_the_stream_is_cut() -> None:
    frames = [Frame(Kind.MEET, 7, ("x" * size, None, None, b"y" * size)) for size in (0, 1, 300, 70_000)]
    stream = b"".join(frame.packed() for frame in frames)
    cut = random.Random(1)
    for longest in (1, 5, 1000, 200_000):
        inbox, place = Inbox(), 0
        found: list[Frame] = []
        while place < len(stream):
            size = cut.randint(1, longest) if longest > 1 or place > 400 else 1
            size = max(size, len(stream) // 300)
            found += inbox.feed(stream[place : place + size])
            place += size
        assert found == frames


@pytest.mark.parametrize("garbage", [b"garbage " * 8, bytes(64), b"\xff" * 64, Frame(Kind.DONE, 1).packed()[::-1]])
def test_what_is_no_frame_is_named_at_once(garbage: bytes) -> None:
    with pytest.raises(Garbled):
        list(Inbox().feed(garbage))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_program_arrives_as_it_was_sent(family: str) -> None:
    seen = []

    def use(program: Program, number: int) -> None:
        plan = list(planned(program))
        assert unpack(pack(program, plan)) == (program, plan)
        seen.append(number)

    draw_programs(family, 12, use, seed=2, max_ranks=4)
    assert seen
