"""What goes wrong on one rank is an error on all, nothing is left behind, and no later call is wrong because of it.

Not verified here: ranks that are killed, faults while a graph is replayed.
"""

from __future__ import annotations

import collections
from collections.abc import Callable

import numpy as np
import pytest

from allranks import refimpl, sim
from allranks.errors import DriverError, PeerLost, Timeout, UsageError, WorldError
from tests.refimpl.ranks_world import Outcome, Rank, run_ranks

CUDA_ERROR_UNKNOWN = 999


def attempt(work: Callable[[], object]) -> BaseException | None:
    try:
        work()
    except (UsageError, WorldError) as error:
        return error.with_traceback(None)
    return None


def use_once(rank: Rank) -> list[BaseException]:
    """Open, connect, reduce, gather, bind, close; give what was raised. Closes whatever happens, as programs do."""
    send, receive = rank.buffers

    def use(comm: refimpl.Communicator) -> None:
        channels = comm.connect(send.address, 4096)
        comm.all_reduce(send.address, receive.address, 100, "float32", "sum")
        comm.all_gather(send.address, receive.address, 2048, "uint8")
        comm.synchronize()
        group = comm.open_multicast(2 << 20)
        binding = group.bind(send.address, 4096)
        binding.unbind()
        group.close()
        channels.close()

    try:
        comm = rank.open(refimpl.Options(timeout_s=5.0, multicast_threshold_bytes=2000))
    except (UsageError, WorldError) as error:
        return [error.with_traceback(None)]
    found = [attempt(work) for work in (lambda: use(comm), comm.close)]
    return [error for error in found if error is not None]


def with_fault(victim: int, call: str, k: int) -> Callable[[Rank], tuple[BaseException | None, list[tuple[str, int]]]]:
    def body(rank: Rank) -> tuple[BaseException | None, list[tuple[str, int]]]:
        rank.buffers += [rank.allocate(4096), rank.allocate(65536)]
        first = rank.process.calls().size
        if rank.rank == victim and call:
            rank.process.fault(call, k, CUDA_ERROR_UNKNOWN)
        errors = use_once(rank)
        made = [(sim.call_name(int(entry["call"])), int(entry["result"])) for entry in rank.process.calls(first)]
        rank.process.faults_clear()
        for buffer in rank.buffers:
            buffer.free()
        return errors[0] if errors else None, made

    return body


def check_fault(outcome: Outcome, victim: int, where: str) -> None:
    values = outcome.succeed()
    assert all(error is not None for error, _ in values), f"{where}: {[error for error, _ in values]}"
    for rank, (_, made) in enumerate(values):
        failed = [entry for entry in made if entry[1] != 0]
        wanted = [(where.split()[0], CUDA_ERROR_UNKNOWN)] if rank == victim else []
        assert failed == wanted, f"{where}: rank {rank}"
    error = values[victim][0]
    assert isinstance(error, DriverError), f"{where}: {error!r}"
    assert (error.call, error.name) == (where.split()[0], "CUDA_ERROR_UNKNOWN"), where
    outcome.node.close()


@pytest.mark.parametrize("victim", [0, 1])
def test_whatever_call_fails_every_rank_raises_and_nothing_is_left(victim: int) -> None:
    plain = run_ranks(2, with_fault(victim, "", 0)).succeed()
    assert [error for error, _ in plain] == [None, None]
    counts = collections.Counter(name for name, _ in plain[victim][1])
    assert len(counts) > 20
    for call, count in counts.items():
        for k in range(count):
            check_fault(run_ranks(2, with_fault(victim, call, k)), victim, f"{call} #{k}")


def test_a_bad_operand_on_one_rank_is_refused_on_all_and_changes_nothing() -> None:
    def body(rank: Rank) -> list[str]:
        comm = rank.open()
        send, receive, hidden = rank.allocate(4096), rank.allocate(65536), rank.allocate(4096, shareable=False)
        send.write(np.ones(10, dtype=np.float32))
        here = send.address
        bad = rank.rank == 1
        refusals = [
            attempt(lambda: comm.all_reduce(0 if bad else here, receive.address, 10, "float32", "sum")),
            attempt(lambda: comm.all_reduce(here + (1 if bad else 0), receive.address, 10, "float32", "sum")),
            attempt(lambda: comm.all_reduce(here, here + 4 if bad else receive.address, 10, "float32", "sum")),
            attempt(lambda: comm.all_reduce(here, receive.address, 11 if bad else 10, "float32", "sum")),
            attempt(lambda: comm.all_reduce(here, receive.address, 10, "float32", "max" if bad else "sum")),
            attempt(lambda: comm.all_gather(here, receive.address, 1 << 59 if bad else 10, "float32")),
            attempt(lambda: comm.connect(hidden.address if bad else here, 4096)),
            attempt(lambda: comm.connect(0x1234 if bad else here, 4096)),
        ]
        assert not comm.broken
        assert comm.cached_connections == 0
        comm.all_reduce(here, receive.address, 10, "float32", "sum")
        comm.synchronize()
        assert (receive.read("float32", 10) == 3).all()
        comm.close()
        for buffer in (send, receive, hidden):
            buffer.free()
        assert all(isinstance(error, UsageError) and error.rank == 1 for error in refusals), refusals
        return [str(error) for error in refusals]

    values = run_ranks(3, body).succeed()
    assert values[0] == values[1] == values[2]
    assert "rank 1: all_reduce #1 (10 float32, sum): send_address=0x0 (40 bytes): no device memory" in values[0][0]


def test_differing_steps_are_an_error_on_every_rank() -> None:
    def body(rank: Rank) -> str:
        comm = rank.open()
        buffer = rank.allocate(4096)
        if rank.rank == 0:
            error = attempt(lambda: comm.connect(buffer.address, 4096))
        else:
            error = attempt(lambda: comm.all_reduce(buffer.address, buffer.address, 4, "int32", "sum"))
        comm.close()
        buffer.free()
        assert isinstance(error, UsageError)
        return str(error)

    values = run_ranks(2, body).succeed()
    assert values[0] == values[1]
    assert values[0].startswith("rank 0 is in connect #1 while rank 1 is in all_reduce #1 (4 int32, sum)")


def test_a_rank_that_never_comes_breaks_the_communicator_on_all() -> None:
    def body(rank: Rank) -> list[BaseException | None]:
        comm = rank.open(refimpl.Options(timeout_s=3.0))
        buffer = rank.allocate(4096)
        if rank.rank == 2:
            late = rank.rendezvous.bootstrap(rank.rank)  # a wait of its own that outlasts the others'
            late.set_timeout(4.0)
            assert isinstance(attempt(late.barrier), Timeout)
        errors = [
            attempt(lambda: comm.connect(buffer.address, 4096)),
            attempt(lambda: comm.all_reduce(buffer.address, buffer.address, 4, "int32", "sum")),
        ]
        assert comm.broken
        comm.close()
        buffer.free()
        return errors

    values = run_ranks(3, body).succeed()
    assert isinstance(values[0][0], Timeout)
    assert values[0][0].ranks == (2,)
    assert all(isinstance(error, PeerLost) for errors in values for error in errors)


def test_a_launch_that_fails_ends_the_device_work_of_the_others() -> None:
    def body(rank: Rank) -> BaseException | None:
        comm = rank.open()
        buffer = rank.allocate(4096)
        comm.all_reduce(buffer.address, buffer.address, 4, "int32", "sum")
        comm.synchronize()
        if rank.rank == 1:
            rank.process.fault("cuLaunchKernel", 0, CUDA_ERROR_UNKNOWN)
        error = attempt(lambda: comm.all_reduce(buffer.address, buffer.address, 4, "int32", "sum"))
        error = error or attempt(comm.synchronize)
        assert comm.broken
        later = attempt(lambda: comm.connect(buffer.address, 4096))
        assert isinstance(later, PeerLost)
        comm.close()
        buffer.free()
        return error

    errors = run_ranks(3, body).succeed()
    assert [type(error) for error in errors] == [PeerLost, DriverError, PeerLost]
    assert errors[0].ranks == errors[2].ranks == (1,)


def test_close_is_idempotent_and_use_after_it_raises() -> None:
    def body(rank: Rank) -> None:
        comm = rank.open()
        buffer = rank.allocate(4096)
        channels = comm.connect(buffer.address, 4096)
        group = comm.open_multicast(2 << 20)
        binding = group.bind(buffer.address, 4096)
        comm.close()
        comm.close()
        for use in (
            lambda: comm.connect(buffer.address, 4096),
            lambda: comm.open_multicast(1),
            lambda: comm.all_reduce(0, 0, 0, "int8", "sum"),
            lambda: comm.synchronize(),
            lambda: channels.put(0, 0, buffer.address, 4),
            lambda: group.bind(buffer.address, 4096),
            lambda: binding.store(0, b"abcd"),
        ):
            error = attempt(use)
            assert isinstance(error, UsageError)
            assert "closed" in str(error)
        group.close()
        binding.unbind()
        channels.close()
        buffer.free()

    run_ranks(2, body).succeed()


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0, 2), (2, 0, 3, 1)])
def test_objects_may_be_dropped_in_any_order(order: tuple[int, ...]) -> None:
    def body(rank: Rank) -> None:
        buffer = rank.allocate(4096)
        for _ in range(3):
            comm = rank.open()
            group = comm.open_multicast(2 << 20)
            kept: list[object] = [comm, comm.connect(buffer.address, 4096), group, group.bind(buffer.address, 4096)]
            comm.all_reduce(0, 0, 0, "int8", "sum")
            del comm, group
            for i in order if rank.rank == 0 else reversed(order):
                kept[i] = None
        buffer.free()

    run_ranks(2, body).succeed()


def test_two_hundred_rounds_leave_nothing() -> None:
    def body(rank: Rank) -> None:
        buffer = rank.allocate(4096)
        comm = rank.open()
        for _ in range(200):
            group = comm.open_multicast(512 << 20)
            group.bind(buffer.address, 4096)
            group.close()
        comm.close()
        buffer.free()

    run_ranks(2, body).succeed()
