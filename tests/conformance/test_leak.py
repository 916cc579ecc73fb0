"""A leaking multicast object makes a loop fail exactly when the capacity is used up, and the report says what leaks."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from allranks import sim
from allranks.conformance.checks import judge
from allranks.conformance.program import Allocate, Bind, CloseGroup, Free, OpenGroup, Operand, Program, Repeat
from allranks.conformance.worlds.threads import ThreadsWorld

WorldOf = Callable[..., ThreadsWorld]


GIB, MIB = sim.GIB, sim.MIB
BODY = 5  # steps of a round
OPEN = 1  # the one that fails


def _rounds(size: int, times: int) -> Program:
    body = (
        Allocate(size_bytes=size),
        OpenGroup(capacity_bytes=size),
        Bind(buffer=Operand(0)),
        CloseGroup(),
        Free(),
    )
    return Program(rank_count=2, steps=(Repeat(times=times, steps=body),))


@pytest.mark.parametrize("size", [1 * GIB, 512 * MIB + 12, 3 * MIB])
@pytest.mark.parametrize("capacity", [8 * GIB, 9 * GIB + 2 * MIB, 16 * GIB])
@pytest.mark.parametrize("backend", ["kept-handle", "plain-kept-handle"])
def test_the_leak_runs_out_at_the_right_round(backend: str, capacity: int, size: int, world_of: WorldOf) -> None:
    if size < 100 * MIB:
        capacity //= 64  # as many rounds as with the large ones
    unit = 2 * MIB
    rounded = -(-size // unit) * unit
    fits = capacity // rounded
    machine = sim.machine("h100", devices=2, multicast_capacity_bytes=capacity)
    program = _rounds(size, fits + 2)
    trace = world_of(backend, machine).run(program)
    for events in trace.events:
        failed = [number for number, event in enumerate(events) if event.status == "error"]
        assert divmod(failed[0], BODY) == (fits, OPEN)  # counted from 0: round fits + 1
        assert "CUDA_ERROR_OUT_OF_MEMORY" in events[failed[0]].error
    (violation,) = judge(program, trace, ("LIFE-2",))["LIFE-2"].violations
    assert "multicast capacity grew" in violation.evidence
    assert (
        "alive at the end: multicast 0 of rank 0 from cuMulticastCreate in step 1, 1 references" in violation.evidence
    )


def test_on_h100_the_leak_of_one_gib_runs_out_between_120_and_130(world_of: WorldOf) -> None:
    trace = world_of("kept-handle").run(_rounds(1 * GIB, 132))
    first = next(number for number, event in enumerate(trace.events[0]) if event.status == "error")
    assert 120 <= first // BODY + 1 <= 130


def test_the_reference_goes_on_for_200_rounds(world_of: WorldOf) -> None:
    program = _rounds(1 * GIB, 200)
    trace = world_of("refimpl").run(program)
    assert trace.ledger == ()
    assert judge(program, trace, ("LIFE-2",))["LIFE-2"].evaluated == 1
    assert trace.first_trouble() is None


def test_what_the_user_holds_on_to_is_no_leak(world_of: WorldOf) -> None:
    """Small groups go, oldest first, and larger ones come: as many as before, and more memory, at the user's wish."""
    small = tuple(OpenGroup(capacity_bytes=2 * MIB) for _ in range(6))
    turn = (OpenGroup(capacity_bytes=4 * MIB), CloseGroup())
    program = Program(rank_count=2, steps=(*small, Repeat(times=6, steps=turn)))
    trace = world_of("refimpl").run(program)
    assert [entry.multicast_bytes for entry in trace.usage] == sorted({e.multicast_bytes for e in trace.usage})
    assert judge(program, trace, ("LIFE-2",))["LIFE-2"].violations == []


def test_what_the_user_has_frozen_stays_so(world_of: WorldOf) -> None:
    world = world_of("plain")
    program = _rounds(2 * MIB, 1)
    kept: list[list[int]] = [[] for _ in range(100)]
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        assert frozen >= len(kept)
        world.run(program)
        assert gc.get_freeze_count() >= frozen - len(kept) // 2  # but for what has ended meanwhile
    finally:
        gc.unfreeze()
    world.run(program)
    assert gc.get_freeze_count() == 0
