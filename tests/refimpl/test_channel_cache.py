"""The agreed channel cache: identity, agreement, eviction, references; and what a mutant of each does.

Not verified here: buffers of several allocations with gaps.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from allranks import refimpl, sim
from allranks.errors import Stalled, UsageError
from tests.refimpl.ranks_world import Buffer, Rank, run_ranks


def exchange(rank: Rank, channels: refimpl.Channels, source: Buffer, size: int = 64) -> None:
    """Put this rank's bytes into the next one's region, and wait for those of the one before."""
    following, preceding = (rank.rank + 1) % rank.rank_count, (rank.rank - 1) % rank.rank_count
    source.write(np.full(size, 10 + rank.rank, dtype=np.uint8))
    channels.put(following, 0, source.address, size)
    channels.signal(following)
    channels.wait(preceding)
    channels.flush()


def test_the_same_regions_again_are_a_hit_on_every_rank() -> None:
    def body(rank: Rank) -> tuple[int, int, int, int]:
        comm = rank.open()
        buffer = rank.allocate(4096)
        first = comm.connect(buffer.address, 4096)
        before = rank.process.calls().size
        again = comm.connect(buffer.address, 4096)
        made = [sim.call_name(int(call["call"])) for call in rank.process.calls(before)]
        assert set(made) <= {"cuMemRetainAllocationHandle", "cuMemRelease"}
        part = comm.connect(buffer.address + 16, 4080)
        numbers = first.connection_number, again.connection_number, part.connection_number, comm.cached_connections
        for channels in (first, again, part):
            channels.close()
        comm.close()
        buffer.free()
        return numbers

    assert run_ranks(3, body).succeed() == [(0, 0, 1, 2)] * 3


@pytest.mark.parametrize("loner", [0, 2])
def test_one_rank_with_another_buffer_makes_every_rank_create(loner: int) -> None:
    def body(rank: Rank) -> list[int]:
        comm = rank.open()
        buffer, other, source = rank.allocate(4096), rank.allocate(4096), rank.allocate(64)
        numbers = []
        for step in range(3):
            target = other if step == 1 and rank.rank == loner else buffer
            target.write(bytes(4096))
            channels = comm.connect(target.address, 4096)
            exchange(rank, channels, source)
            assert (target.read(count=64) == 10 + (rank.rank - 1) % 3).all()
            numbers.append(channels.connection_number)
            channels.close()
        comm.close()
        for memory in (buffer, other, source):
            memory.free()
        return numbers

    assert run_ranks(3, body).succeed() == [[0, 1, 0]] * 3


@pytest.mark.parametrize("who", [(0,), (0, 1, 2)])
def test_new_memory_at_an_old_address_is_new(who: tuple[int, ...]) -> None:
    def body(rank: Rank) -> list[int]:
        comm = rank.open()
        source = rank.allocate(64)
        buffer = rank.allocate(4096)
        numbers = []
        for _ in range(3):
            channels = comm.connect(buffer.address, 4096)
            numbers.append(channels.connection_number)
            exchange(rank, channels, source)
            assert (buffer.read(count=64) == 10 + (rank.rank - 1) % 3).all()
            channels.close()
            if rank.rank in who:
                old = buffer.address
                buffer.free()
                rank.process.wish(old)
                buffer = rank.allocate(4096)
                assert buffer.address == old
        comm.close()
        source.free()
        buffer.free()
        return numbers

    assert run_ranks(3, body).succeed() == [[0, 1, 2]] * 3


def test_memory_that_was_freed_is_given_up_at_the_next_step() -> None:
    def body(rank: Rank) -> None:
        comm = rank.open()
        keep, buffer = rank.allocate(4096), rank.allocate(32 << 20)
        comm.connect(buffer.address, 4096).close()
        comm.connect(keep.address, 4096).close()
        free_before, _ = rank.driver.mem_get_info()
        if rank.rank == 1:
            buffer.free()
        comm.connect(keep.address, 4096).close()
        assert comm.cached_connections == 1
        comm.all_reduce(0, 0, 0, "int8", "sum")  # every rank has given it up
        if rank.rank == 1:
            assert rank.driver.mem_get_info()[0] == free_before + (32 << 20)
        else:
            buffer.free()
        comm.close()
        keep.free()

    run_ranks(2, body).succeed()


def test_the_cache_is_bounded_and_never_evicts_what_a_rank_uses() -> None:
    def body(rank: Rank) -> list[int]:
        comm = rank.open(refimpl.Options(timeout_s=None, cache_capacity=3))
        buffers = [rank.allocate(4096) for _ in range(5)]
        used = comm.connect(buffers[0].address, 4096)
        if rank.rank == 1:
            used.close()  # in use on the other rank only
        for buffer in buffers[1:]:
            comm.connect(buffer.address, 4096).close()
            assert comm.cached_connections <= 3
        again = comm.connect(buffers[0].address, 4096)
        assert again.connection_number == 0
        held = [comm.connect(buffer.address, 4096) for buffer in buffers[1:3]]
        with pytest.raises(UsageError, match="cache_capacity=3: every cached connection is in use"):
            comm.connect(buffers[4].address, 4096)
        numbers = [channels.connection_number for channels in held]
        for channels in (used, again, *held):
            channels.close()
        comm.connect(buffers[4].address, 4096).close()
        comm.close()
        for buffer in buffers:
            buffer.free()
        return numbers

    values = run_ranks(2, body).succeed()
    assert values[0] == values[1]


def test_signals_of_an_evicted_connection_are_not_mistaken_for_new_ones() -> None:
    def body(rank: Rank) -> None:
        comm = rank.open(refimpl.Options(timeout_s=2.0, cache_capacity=1))
        first, second, source = rank.allocate(4096), rank.allocate(4096), rank.allocate(64)
        channels = comm.connect(first.address, 4096)
        channels.signal(1 - rank.rank)  # never waited for
        channels.flush()
        channels.close()
        channels = comm.connect(second.address, 4096)
        exchange(rank, channels, source)
        assert (second.read(count=64) == 10 + 1 - rank.rank).all()
        channels.close()
        comm.close()
        for buffer in (first, second, source):
            buffer.free()

    run_ranks(2, body).succeed()


def test_a_region_of_several_allocations_is_reached_whole() -> None:
    def body(rank: Rank) -> None:
        driver, size = rank.driver, 2 << 20
        base = driver.mem_address_reserve(2 * size)
        handles = [driver.mem_create(size, rank.rank) for _ in range(2)]
        for i, handle in enumerate(handles):
            driver.mem_map(base + i * size, size, handle)
        driver.mem_set_access(base, 2 * size, [rank.rank])
        comm = rank.open()
        source = rank.allocate(4096)
        source.write(np.arange(4096, dtype=np.uint16).view(np.uint8)[:4096])
        channels = comm.connect(base + 100, 2 * size - 100)
        channels.put(1 - rank.rank, size - 100 - 2048, source.address, 4096)  # half in each allocation
        channels.signal(1 - rank.rank)
        channels.wait(1 - rank.rank)
        channels.flush()
        got = driver.copy_from_device(base + size - 2048, 4096)
        assert got == source.read().tobytes()
        channels.close()
        comm.close()
        source.free()
        for i, handle in enumerate(handles):
            driver.mem_unmap(base + i * size, size)
            driver.mem_release(handle)
        driver.mem_address_free(base, 2 * size)

    run_ranks(2, body).succeed()


def test_get_reads_the_peers_region() -> None:
    def body(rank: Rank) -> None:
        comm = rank.open()
        buffer, target = rank.allocate(256), rank.allocate(256)
        buffer.write(bytes(range(256)) if rank.rank == 1 else bytes(256))
        channels = comm.connect(buffer.address, 256)
        if rank.rank == 0:
            channels.get(1, 8, target.address, 100)
            channels.flush()
            assert target.read(count=100).tobytes() == bytes(range(8, 108))
        with pytest.raises(UsageError, match="beyond the 256 bytes of rank 1's region"):
            channels.get(1, 200, target.address, 57)
        with pytest.raises(UsageError, match="peer=2: ranks are 0 to 1"):
            channels.signal(2)
        channels.close()
        with pytest.raises(UsageError, match="closed"):
            channels.put(1, 0, target.address, 4)
        comm.close()
        buffer.free()
        target.free()

    run_ranks(2, body).succeed()


class LocalKey(refimpl.ChannelCachePolicy):
    """Keys on what one rank sees, and decides alone: microsoft/mscclpp#388."""

    def key(self, region: refimpl.RegionIdentity) -> bytes:
        return b"%d,%d" % (region.address, region.size)

    def decide(self, mine: list[int], exchange: Callable[[list[int]], list[list[int]]]) -> list[int]:
        return mine


def test_a_rank_that_decides_alone_waits_alone() -> None:
    def body(rank: Rank) -> None:
        comm = rank.open(refimpl.Options(timeout_s=None, channel_cache=LocalKey()))
        buffer, other = rank.allocate(4096), rank.allocate(4096)
        comm.connect(buffer.address, 4096).close()
        comm.connect(other.address if rank.rank == 0 else buffer.address, 4096).close()
        comm.all_reduce(buffer.address, buffer.address, 4, "int32", "sum")
        comm.synchronize()

    outcome = run_ranks(3, body)
    assert outcome.stalled
    assert isinstance(outcome.errors[0], Stalled)
    waits = outcome.report["moments"][-1]["waits"]
    assert ("bootstrap.all_gather", "connect #2", [1, 2]) in [
        (wait["call"], wait["object"], wait["waits_for"]) for wait in waits if wait["rank"] == 0
    ]
    assert any("all_reduce" in wait["object"] for wait in waits)
