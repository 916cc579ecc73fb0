"""Multicast groups and switch channels: offsets, reach, reuse, refusals; and what a mutant of each does.

Not verified here: multicast on hardware, which this project never creates.
"""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest

from allranks import refimpl, sim
from allranks.errors import DriverError, UsageError
from tests.refimpl.ranks_world import Rank, run_ranks

MIB = 1 << 20


@pytest.mark.parametrize("rank_count", [1, 2, 3, 8])
def test_each_binding_reaches_its_own_buffer_and_no_other_byte(rank_count: int) -> None:
    sizes = (1000, 2 * MIB + 5, 4 * MIB, 3)

    def body(rank: Rank) -> list[int]:
        comm = rank.open()
        buffers = [rank.allocate(size, fill=0) for size in sizes]
        group = comm.open_multicast(12 * MIB)
        bindings = [group.bind(buffer.address, buffer.size) for buffer in buffers]
        for i, (buffer, binding) in enumerate(zip(buffers, bindings, strict=True)):
            if rank.rank == i % rank_count:
                binding.store(0, bytes([i + 1]) * buffer.size)
            pieces = rank.process.resolve(binding.address, buffer.size)
            assert {piece.device for piece in pieces} == set(range(rank_count))
        comm.all_reduce(0, 0, 0, "int8", "sum")  # everybody has stored
        for i, buffer in enumerate(buffers):
            everything = np.frombuffer(
                rank.driver.copy_from_device(buffer.address, buffer.mapped_bytes), dtype=np.uint8
            )
            assert (everything[: buffer.size] == i + 1).all()
            assert (everything[buffer.size :] == 0).all()
        offsets = [binding.offset_bytes for binding in bindings]
        group.close()
        comm.close()
        for buffer in buffers:
            buffer.free()
        return offsets

    assert run_ranks(rank_count, body).succeed() == [[0, 2 * MIB, 6 * MIB, 10 * MIB]] * rank_count


def test_offsets_agree_whatever_order_ranks_unbind_in() -> None:
    def body(rank: Rank) -> list[int]:
        comm = rank.open()
        buffers = [rank.allocate(2 * MIB) for _ in range(3)]
        group = comm.open_multicast(6 * MIB)
        bindings = [group.bind(buffer.address, buffer.size) for buffer in buffers]
        order = [0, 2] if rank.rank == 0 else [2, 0]
        for i in order:
            bindings[i].unbind()
        again = [group.bind(buffers[i].address, 2 * MIB) for i in order]
        assert again[0].offset_bytes == 0
        again[1].store(0, b"abcd")
        offsets = [binding.offset_bytes for binding in again]
        group.close()
        comm.close()
        for buffer in buffers:
            buffer.free()
        return offsets

    assert run_ranks(2, body).succeed() == [[0, 4 * MIB]] * 2


def test_a_dropped_binding_frees_its_range_once_every_rank_has_dropped_it() -> None:
    def body(rank: Rank) -> list[int]:
        comm = rank.open()
        buffer = rank.allocate(2 * MIB)
        group = comm.open_multicast(4 * MIB)
        first = group.bind(buffer.address, 2 * MIB)
        if rank.rank == 0:
            del first
        second = group.bind(buffer.address, 2 * MIB)
        offsets = [second.offset_bytes]
        with pytest.raises(UsageError, match="no room for 2097152 bytes"):
            group.bind(buffer.address, 2 * MIB)
        if rank.rank == 1:
            del first
        third = group.bind(buffer.address, 2 * MIB)
        offsets.append(third.offset_bytes)
        group.close()
        comm.close()
        buffer.free()
        return offsets

    assert run_ranks(2, body).succeed() == [[2 * MIB, 0]] * 2


def test_unbound_and_closed_channels_refuse() -> None:
    def body(rank: Rank) -> None:
        comm = rank.open()
        buffer = rank.allocate(100)
        group = comm.open_multicast(1)
        assert group.capacity_bytes == group.granularity_bytes
        binding = group.bind(buffer.address, 100)
        with pytest.raises(UsageError, match="beyond the 100 bytes"):
            binding.store(97, b"abcd")
        with pytest.raises(UsageError, match="does not reduce this pair"):
            binding.load_reduce(0, 4, "int8", "sum")
        with pytest.raises(UsageError, match="data_type='int7'"):
            binding.load_reduce(0, 4, cast(refimpl.DataType, "int7"), "sum")
        binding.unbind()
        with pytest.raises(UsageError, match="not bound any more"):
            binding.store(0, b"abcd")
        group.close()
        group.close()
        with pytest.raises(UsageError, match="the multicast group is closed"):
            group.bind(buffer.address, 100)
        comm.close()
        buffer.free()

    run_ranks(2, body).succeed()


@pytest.mark.parametrize("culprit", [0, 1])
def test_what_one_rank_cannot_bind_no_rank_binds(culprit: int) -> None:
    def body(rank: Rank) -> None:
        comm = rank.open()
        plain, good = rank.allocate_plain(1000), rank.allocate(2 * MIB, fill=0)
        group = comm.open_multicast(8 * MIB)
        first = group.bind(good.address, 1000)
        bad = rank.rank == culprit
        with pytest.raises(UsageError, match=f"rank {culprit}: bind .* only memory of cuMemCreate can be bound"):
            group.bind(plain.address if bad else good.address, 1000)
        with pytest.raises(UsageError, match="no offset reaches both"):
            group.bind(good.address + (4 if bad else 0), 1000)
        with pytest.raises(UsageError, match="a collective step is the same on every rank"):
            group.bind(good.address, 1000 + (4 if bad else 0))
        if rank.rank == 0:
            first.store(4, b"still works")
        second = group.bind(good.address, 1000)
        assert second.offset_bytes == 2 * MIB
        assert good.read(count=11, offset=4).tobytes() == b"still works"
        group.close()
        comm.close()
        plain.free()
        good.free()

    run_ranks(2, body).succeed()


@pytest.mark.parametrize(
    ("data_type", "operation"), [("float32", "sum"), ("int32", "max"), ("int64", "sum"), ("float16", "sum")]
)
def test_load_reduce(data_type: refimpl.DataType, operation: refimpl.Operation) -> None:
    def body(rank: Rank) -> None:
        comm = rank.open()
        count = 40000  # more than the staging memory holds
        buffer = rank.allocate(8 * count)
        values = (np.arange(count) % 100 * (rank.rank + 1)).astype(data_type)
        buffer.write(values)
        group = comm.open_multicast(8 * count)
        binding = group.bind(buffer.address, buffer.size)
        width = values.itemsize
        got = np.frombuffer(binding.load_reduce(3 * width, count - 5, data_type, operation), dtype=data_type)
        factor = 6 if operation == "sum" else 3
        assert (got == (np.arange(count) % 100 * factor).astype(data_type)[3:-2]).all()
        comm.all_reduce(0, 0, 0, "int8", "sum")
        group.close()
        comm.close()
        buffer.free()

    run_ranks(3, body).succeed()


def test_memory_freed_while_bound_stays_until_it_is_unbound() -> None:
    def body(rank: Rank) -> None:
        comm = rank.open()
        group = comm.open_multicast(2 * MIB)
        for _ in range(3):
            buffer = rank.allocate(1000)
            binding = group.bind(buffer.address, 1000)
            buffer.free()
            binding.store(0, b"abcd")
            binding.unbind()
        group.close()
        comm.close()

    machine = sim.machine("h100", devices=2, binding_on_free="unbind_reports_error")
    run_ranks(2, body, machine=machine).succeed()


def test_without_multicast_the_group_is_refused_and_collectives_go_another_way() -> None:
    def body(rank: Rank) -> None:
        comm = rank.open(refimpl.Options(timeout_s=None, multicast_threshold_bytes=1))
        assert "multicast" not in comm.capabilities
        with pytest.raises(UsageError, match="multicast is not supported by every rank's device"):
            comm.open_multicast(1000)
        buffer = rank.allocate(4000)
        buffer.write(np.ones(1000, dtype=np.float32))
        comm.all_reduce(buffer.address, buffer.address, 1000, "float32", "sum")
        comm.synchronize()
        assert comm.last_algorithm == "scratch"
        assert (buffer.read("float32") == 2).all()
        comm.close()
        buffer.free()

    run_ranks(2, body, machine=sim.machine("no-multicast", devices=2)).succeed()


def test_without_room_for_its_object_a_collective_goes_another_way() -> None:
    def body(rank: Rank) -> None:
        comm = rank.open(refimpl.Options(timeout_s=None, multicast_threshold_bytes=1))
        group = comm.open_multicast(64 * MIB)
        with pytest.raises(DriverError) as caught:
            comm.open_multicast(2 * MIB)
        assert (caught.value.name, caught.value.rank) == ("CUDA_ERROR_OUT_OF_MEMORY", 0)
        buffer = rank.allocate(4000)
        buffer.write(np.ones(1000, dtype=np.float32))
        comm.all_reduce(buffer.address, buffer.address, 1000, "float32", "sum")
        comm.synchronize()
        assert comm.last_algorithm == "scratch"
        group.close()
        comm.close()
        buffer.free()

    run_ranks(2, body, machine=sim.machine("tiny", devices=2, multicast_charge="create")).succeed()


class OffsetZero(refimpl.MulticastPolicy):
    """Takes every binding to be at the object's first byte: microsoft/mscclpp#535."""

    def address_of(self, base: int, offset: int) -> int:
        return base


def test_mapping_every_buffer_at_offset_0_writes_into_the_first() -> None:
    def body(rank: Rank) -> tuple[bytes, bytes]:
        comm = rank.open(refimpl.Options(timeout_s=None, multicast=OffsetZero()))
        first, second = rank.allocate(4096, fill=0), rank.allocate(4096, fill=0)
        group = comm.open_multicast(4 * MIB)
        bindings = [group.bind(buffer.address, 4096) for buffer in (first, second)]
        if rank.rank == 0:
            bindings[1].store(0, b"second")
        group.close()
        comm.close()
        seen = first.read(count=6).tobytes(), second.read(count=6).tobytes()
        first.free()
        second.free()
        return seen

    assert run_ranks(2, body).succeed() == [(b"second", bytes(6))] * 2


class KeepsTheObject(refimpl.ReleasePolicy):
    """Never releases a multicast object: microsoft/mscclpp#535 and #759."""

    def gives_back(self, resource: str) -> bool:
        return resource != "multicast_object"


def test_keeping_the_object_uses_the_fabric_up() -> None:
    rounds: list[int] = []

    def body(rank: Rank) -> None:
        comm = rank.open(refimpl.Options(timeout_s=None, release=KeepsTheObject()))
        for round_number in range(100):
            if rank.rank == 0:
                rounds.append(round_number)
            comm.open_multicast(16 * MIB).close()

    outcome = run_ranks(2, body, machine=sim.machine("tiny", devices=2))
    assert isinstance(outcome.errors[0], DriverError)
    assert outcome.errors[0].name == "CUDA_ERROR_OUT_OF_MEMORY"
    assert rounds[-1] == 4
