"""Host memory as a user has it: placement, reuse, what is freed, and what the world cannot tell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from allranks.conformance import program as p
from allranks.conformance.checks import OF_CALLS, judge
from allranks.conformance.program import Operand, Program, Region
from allranks.conformance.trace import Event, Trace
from allranks.conformance.worlds.arena import Arena, OutOfRoom
from allranks.conformance.worlds.host_site import HostSite
from allranks.conformance.worlds.memory import UserMemory
from allranks.errors import UsageError

PAGE = 4096
SIZE = 2 << 20


@pytest.fixture
def arena() -> Iterator[Arena]:
    made = Arena(size_bytes=64 << 20, equal_bytes=32 << 20)
    yield made
    made.close()


@pytest.fixture
def memory(arena: Arena) -> UserMemory:
    site = HostSite(arena)
    site.open()
    return UserMemory(site, 0)


def test_a_freed_address_is_given_again_to_a_buffer_of_the_same_size(memory: UserMemory) -> None:
    step = p.Allocate(size_bytes=SIZE)
    for ordinal in range(3):
        memory.allocate(ordinal, step, ordinal)
    freed = memory.live[1].address
    memory.free(1)
    assert memory.allocate(3, step, 3).same_base_as == 1
    assert memory.live[3].address == freed


def test_high_never_reuse_and_reuse_are_honoured(memory: UserMemory) -> None:
    for ordinal, placement in enumerate(("low", "high", "never_reuse")):
        memory.allocate(ordinal, p.Allocate(size_bytes=SIZE, placement=placement), ordinal)  # type: ignore[arg-type]
    low, high, fresh = (memory.live[ordinal].address for ordinal in range(3))
    assert low < high
    memory.free(0)
    memory.allocate(3, p.Allocate(size_bytes=SIZE, placement="never_reuse"), 3)
    assert memory.live[3].address not in (low, fresh)
    memory.free(2)
    assert memory.allocate(4, p.Allocate(size_bytes=64, kind="plain", placement="reuse"), 4).same_base_as == 2


def test_equal_addresses_are_equal_whatever_came_before() -> None:
    found = []
    for shift, before in ((0, 0), (SIZE, 3)):
        arena = Arena(size_bytes=64 << 20, equal_bytes=32 << 20)
        site = HostSite(arena, shift)
        site.open()
        memory = UserMemory(site, 0)
        for ordinal in range(before):
            memory.allocate(ordinal, p.Allocate(size_bytes=SIZE), ordinal)
        memory.allocate(7, p.Allocate(size_bytes=SIZE, placement="equal"), 7)
        memory.allocate(8, p.Allocate(size_bytes=SIZE), 8)
        found.append((memory.live[7].address - arena.base, memory.live[8].address - arena.base))
        arena.close()
    assert found[0][0] == found[1][0]
    assert found[0][1] != found[1][1]  # the shift, and three buffers


@pytest.mark.parametrize("kind", ["plain", "vmm", "segments"])
@pytest.mark.parametrize("size", [1, 511, PAGE, 3 * PAGE + 5, SIZE])
def test_what_is_freed_is_gone(arena: Arena, kind: str, size: int) -> None:
    whole = kind != "plain"
    keep = arena.allocate(100, whole_pages=False)
    address = arena.allocate(size, whole_pages=whole)
    arena.poke(keep, b"k" * 100)
    arena.poke(address, np.full(size, 7, np.uint8))
    assert arena.peek(address, size) == b"\7" * size
    arena.free(address)
    with pytest.raises(ValueError, match="not within a live block"):
        arena.peek(address, size)
    assert arena.allocate(size, whole_pages=whole) == address
    assert arena.peek(address, size) == bytes(size)
    assert arena.peek(keep, 100) == b"k" * 100


def test_blocks_never_overlap_under_any_history(arena: Arena) -> None:
    random = np.random.default_rng(5)
    live: dict[int, bytes] = {}
    for turn in range(400):
        if live and random.integers(3) == 0:
            arena.free(live_address := list(live)[int(random.integers(len(live)))])
            del live[live_address]
        else:
            size = int(random.integers(1, 40_000))
            rule = ("low", "high", "never_reuse")[int(random.integers(3))]
            wish = next(iter(live)) + int(random.integers(4)) * PAGE if live and turn % 3 == 0 else 0
            address = arena.allocate(size, whole_pages=bool(turn % 2), rule=rule, wish=wish)  # type: ignore[arg-type]
            assert address not in live
            live[address] = random.bytes(size)
            arena.poke(address, live[address])
    assert all(arena.peek(address, len(held)) == held for address, held in live.items())


def test_an_arena_that_is_full_says_so(arena: Arena) -> None:
    with pytest.raises(OutOfRoom, match=f"no room for {1 << 30} bytes in an arena of {64 << 20}"):
        arena.allocate(1 << 30, whole_pages=True)


def test_there_is_no_driver(memory: UserMemory) -> None:
    with pytest.raises(UsageError, match=r"driver\.mem_alloc: this world has host memory"):
        memory.site.driver.mem_alloc(4)


def test_what_the_world_does_not_record_is_inconclusive_and_never_passed() -> None:
    region = Operand(Region())
    program = Program(rank_count=2, steps=(p.Allocate(size_bytes=SIZE), p.Connect(region=region)))
    events = [[Event(status="ok"), Event(status="ok")] for _ in range(2)]
    closing = [Event(status="ok") for _ in range(2)]
    trace = Trace(backend="b", machine="host", rank_count=2, events=events, opening=closing, closing=closing)
    found = judge(program, trace)
    for name in {*OF_CALLS, "LIFE-1", "LIFE-2", "LIFE-3", "CACHE-6"}:
        assert found[name].evaluated == 0, name
    assert found["LIFE-1"].inconclusive
    assert found["RDV-1"].evaluated
    opened = Program(
        rank_count=1,
        steps=(p.Allocate(size_bytes=SIZE), p.OpenGroup(capacity_bytes=SIZE), p.Bind(buffer=Operand(0))),
    )
    seen: dict[str, Any] = {"capacity_bytes": SIZE, "offset_bytes": 0, "reached": None, "shares_addresses_with": []}
    blind = Trace(
        backend="b",
        machine="host",
        rank_count=1,
        events=[[Event(status="ok", observed=seen) for _ in range(3)]],
        opening=closing[:1],
        closing=closing[:1],
    )
    assert (judge(opened, blind)["NVLS-1"].evaluated, judge(opened, blind)["NVLS-1"].inconclusive) == (0, 1)
