"""all_reduce and all_gather against NumPy: every type and operation, by each of the three ways, for 1 to 8 ranks.

Values are small integers, which every type holds exactly for every number of ranks, so results are compared by bits.

Not verified here: rounding of sums, weak memory order, GPUs.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final, Literal, cast

import numpy as np
import numpy.typing as npt
import pytest

from allranks import refimpl, sim
from tests.refimpl.ranks_world import Buffer, Rank, run_ranks

Way = Literal["scratch", "direct", "multicast"]
WAYS: Final[tuple[Way, ...]] = ("scratch", "direct", "multicast")
COUNTS: Final = (1, 7, 1000)
NUMPY: Final[dict[str, Callable[..., npt.NDArray[Any]]]] = {
    "sum": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}


def options(way: Way, block_count: int = 0) -> refimpl.Options:
    return refimpl.Options(
        timeout_s=None,
        block_count=block_count,
        multicast_threshold_bytes=1 if way == "multicast" else None,
        zero_copy=way == "direct",
    )


def item_bytes(data_type: str) -> int:
    return 2 if data_type == "bfloat16" else np.dtype(data_type).itemsize


def to_device(values: npt.NDArray[np.float64], data_type: str) -> bytes:
    """Values as elements; a bfloat16 is the upper half of a float32."""
    if data_type == "bfloat16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()
    if data_type.startswith(("int", "uint")):
        return values.astype(np.int64).astype(data_type).tobytes()
    return values.astype(data_type).tobytes()


def operands(rank_count: int, count: int, data_type: str, operation: str) -> list[npt.NDArray[np.float64]]:
    limit = 3 if operation == "prod" else 10
    low = 0 if data_type.startswith("u") else -limit
    return [
        np.random.default_rng((rank, count)).integers(low, limit, count).astype(np.float64)
        for rank in range(rank_count)
    ]


def expected(parts: list[npt.NDArray[np.float64]], data_type: str, operation: str) -> bytes:
    if data_type.startswith(("int", "uint")):
        wide: npt.NDArray[Any] = parts[0].astype(np.int64)
        for part in parts[1:]:
            wide = NUMPY[operation](wide, part.astype(np.int64))
        return wide.astype(data_type).tobytes()
    total = parts[0]
    for part in parts[1:]:
        total = NUMPY[operation](total, part)
    return to_device(total, data_type)


def way_of(way: Way, rank_count: int, data_type: str, operation: str) -> str:
    if rank_count == 1:
        return "scratch"
    return "scratch" if way == "multicast" and not fabric_reduces(data_type, operation) else way


def fabric_reduces(data_type: str, operation: str) -> bool:
    if operation == "prod" or data_type in {"int8", "uint8", "int16", "uint16"}:
        return False
    return operation == "sum" or not data_type.startswith(("float", "bfloat"))


def reduce_everything(rank: Rank, way: Way) -> None:
    """One rank's part of `test_all_reduce`."""
    comm = rank.open()
    send, receive = rank.allocate(16384), rank.allocate(16384)
    for data_type in refimpl.DATA_TYPES:
        for operation in refimpl.OPERATIONS:
            for count in COUNTS:
                check_reduce(rank, comm, way, send, receive, data_type, operation, count)
    comm.close()
    send.free()
    receive.free()


def check_reduce(
    rank: Rank,
    comm: refimpl.Communicator,
    way: Way,
    send: Buffer,
    receive: Buffer,
    data_type: str,
    operation: str,
    count: int,
) -> None:
    width = item_bytes(data_type)
    parts = operands(rank.rank_count, count, data_type, operation)
    offset = width * ((3 * rank.rank + 1) % 5)  # another place on each rank
    for target in (receive, send):
        send.write(to_device(parts[rank.rank], data_type), offset)
        target_before = target.read()
        channels = []
        if way == "direct":
            channels = [comm.connect(buffer.address + offset, count * width) for buffer in (send, target)]
        comm.all_reduce(
            send.address + offset,
            target.address + offset,
            count,
            cast(refimpl.DataType, data_type),
            cast(refimpl.Operation, operation),
        )
        comm.synchronize()
        assert comm.last_algorithm == way_of(way, rank.rank_count, data_type, operation)
        after = target.read().tobytes()
        assert after[offset : offset + count * width] == expected(parts, data_type, operation), (
            f"{data_type=} {operation=} {count=} in_place={target is send} rank={rank.rank} of {rank.rank_count}"
        )
        assert after[:offset] == target_before[:offset].tobytes()
        assert after[offset + count * width :] == target_before[offset + count * width :].tobytes()
        if target is receive:
            assert send.read(offset=offset)[: count * width].tobytes() == to_device(parts[rank.rank], data_type)
        for channel in channels:
            channel.close()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("rank_count", "lanes", "block_count"), [(1, 1, 0), (2, 1, 0), (3, 4, 3), (4, 1, 0), (4, 32, 1)]
)
def test_all_reduce(rank_count: int, lanes: int, block_count: int, way: Way) -> None:
    machine = sim.machine("h100", devices=rank_count, lanes=lanes)
    outcome = run_ranks(
        rank_count, lambda rank: reduce_everything(rank, way), machine=machine, options=options(way, block_count)
    )
    outcome.succeed()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(("rank_count", "lanes"), [(1, 1), (2, 4), (3, 1), (8, 1)])
def test_all_gather(rank_count: int, lanes: int, in_place: bool, way: Way) -> None:
    def body(rank: Rank) -> None:
        comm = rank.open()
        send, receive = rank.allocate(4096), rank.allocate(65536)
        for count in (1, 5, 1031):
            target = receive.address + 3
            source = target + rank.rank * count if in_place else send.address + rank.rank
            own = np.random.default_rng((rank.rank, count)).integers(0, 256, count, dtype=np.uint8)
            rank.driver.copy_to_device(source, own)
            channels = comm.connect(target, count * rank_count) if way == "direct" else None
            comm.all_gather(source, target, count, "uint8")
            comm.synchronize()
            assert comm.last_algorithm == ("scratch" if rank_count == 1 else way)
            everything = [
                np.random.default_rng((peer, count)).integers(0, 256, count, dtype=np.uint8).tobytes()
                for peer in range(rank_count)
            ]
            assert receive.read(offset=3)[: count * rank_count].tobytes() == b"".join(everything)
            if channels is not None:
                channels.close()
        comm.close()
        send.free()
        receive.free()

    machine = sim.machine("h100", devices=rank_count, lanes=lanes)
    run_ranks(rank_count, body, machine=machine, options=options(way)).succeed()


@pytest.mark.parametrize("way", WAYS)
def test_many_rounds_of_scratch_memory(way: Way) -> None:
    count = 700_000

    def body(rank: Rank) -> None:
        comm = rank.open()
        buffer = rank.allocate(4 * count)
        buffer.write(np.arange(count, dtype=np.int32) * (rank.rank + 1))
        channels = comm.connect(buffer.address, 4 * count)
        comm.all_reduce(buffer.address, buffer.address, count, "int32", "sum")
        comm.synchronize()
        assert (buffer.read("int32") == np.arange(count, dtype=np.int32) * 6).all()
        channels.close()
        comm.close()
        buffer.free()

    run_ranks(3, body, options=options(way, 2)).succeed()


def test_nothing_to_do_is_a_step_like_any_other() -> None:
    def body(rank: Rank) -> None:
        comm = rank.open()
        comm.all_reduce(0, 0, 0, "float32", "sum")
        comm.all_gather(0, 0, 0, "float32")
        assert comm.last_algorithm == "none"
        comm.close()

    run_ranks(3, body).succeed()


def test_plain_memory_goes_through_scratch_memory() -> None:
    def body(rank: Rank) -> None:
        comm = rank.open()
        send, receive = rank.allocate_plain(40), rank.allocate_plain(40)
        send.write(np.full(10, rank.rank + 1, dtype=np.float32))
        comm.all_reduce(send.address, receive.address, 10, "float32", "sum")
        comm.synchronize()
        assert (receive.read("float32") == 6).all()
        comm.close()
        send.free()
        receive.free()

    run_ranks(3, body).succeed()


@pytest.mark.parametrize("seed", range(4))
def test_any_interleaving_of_back_to_back_calls(seed: int) -> None:
    draws = random.Random(seed)

    def body(rank: Rank) -> None:
        comm = rank.open(options("multicast" if seed % 2 else "direct", 1 + seed % 2))
        first, second = rank.allocate(65536), rank.allocate(65536)
        channels = [comm.connect(buffer.address, 40000) for buffer in (first, second)]
        for step in range(5):
            first.write(np.arange(10000, dtype=np.int32) * (rank.rank + 1) + step)
            comm.all_reduce(first.address, second.address, 10000, "int32", "sum")
            comm.all_reduce(second.address, second.address, 10000, "int32", "max")
            comm.all_gather(second.address, first.address, 3000, "int32")
            comm.synchronize()
            result = np.arange(10000, dtype=np.int32) * 6 + 3 * step
            assert (second.read("int32", 10000) == result).all()
            assert (first.read("int32", 9000) == np.tile(result[:3000], 3)).all()
        for channel in channels:
            channel.close()
        comm.close()
        first.free()
        second.free()

    def schedule(_: int, runnable: int) -> int:
        return draws.randrange(runnable) if draws.random() < 0.3 else 0

    run_ranks(3, body, schedule=schedule).succeed()


def test_nan_spreads_in_minimum_and_maximum_as_in_numpy() -> None:
    def body(rank: Rank) -> list[float]:
        comm = rank.open()
        buffer = rank.allocate(8)
        values = []
        operations: tuple[refimpl.Operation, ...] = ("min", "max")
        for operation in operations:
            buffer.write(np.array([np.nan if rank.rank == 1 else 1.0, 2.0 + rank.rank], dtype=np.float32))
            comm.all_reduce(buffer.address, buffer.address, 2, "float32", operation)
            comm.synchronize()
            values += buffer.read("float32").tolist()
        comm.close()
        buffer.free()
        return values

    for values in run_ranks(3, body).succeed():
        assert np.isnan(values[0])
        assert np.isnan(values[2])
        assert (values[1], values[3]) == (2.0, 4.0)
