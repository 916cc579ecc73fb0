"""Streams that wait for words, and functions that streams call, in deterministic runs; calls go through ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pytest

from allranks import sim
from tests.sim.turnstile_world import World, wait_for

LAUNCH_TIMEOUT = 702
EQUAL = 1
HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

library = ctypes.CDLL(str(sim.library_path()))


def ok(code: int) -> None:
    assert code == 0, f"expected CUDA_SUCCESS, got {code}"


def start() -> None:
    """Make device 0's primary context current."""
    context = ctypes.c_void_p()
    ok(library.cuInit(0))
    ok(library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    ok(library.cuCtxSetCurrent(context))


def host_word() -> ctypes.c_uint32:
    """Give a page-locked word that the host writes too."""
    pointer = ctypes.c_void_p()
    ok(library.cuMemHostAlloc(ctypes.byref(pointer), ctypes.c_size_t(4), 2))
    assert pointer.value is not None
    return ctypes.c_uint32.from_address(pointer.value)


def wait_value(word: ctypes.c_uint32, value: int) -> None:
    address = ctypes.c_uint64(ctypes.addressof(word))
    ok(library.cuStreamWaitValue32_v2(None, address, ctypes.c_uint32(value), EQUAL))


def test_a_word_that_nobody_writes_is_a_stall(make_world: Callable[[int], World]) -> None:
    world = make_world(1)

    def body(_: int) -> None:
        start()
        wait_value(host_word(), 1)
        world.say(str(library.cuStreamSynchronize(None)))

    world.run(body)
    assert world.log == [str(LAUNCH_TIMEOUT)]
    (moment,) = world.node.run_report()["moments"]
    calls = {wait["task"]: wait["call"] for wait in moment["waits"]}
    assert calls == {"rank 0": "cuStreamSynchronize", "rank 0 default stream": "cuStreamWaitValue32"}


@pytest.mark.parametrize("schedule", [(), [(0, 1)], [(1, 1)], [(0, 1), (2, 1)]])
def test_the_host_writes_a_word_without_a_call(
    make_world: Callable[[int], World], schedule: list[tuple[int, int]]
) -> None:
    """Rank 0 waits for its stream, and that for a word that rank 1 writes from the host's side."""
    world = make_world(2)
    words: list[ctypes.c_uint32] = []

    def body(rank: int) -> None:
        start()
        if rank == 0:
            words.append(host_word())
            wait_value(words[0], 7)
            sim.notify(1)
            ok(library.cuStreamSynchronize(None))
            world.say("went on")
        else:
            wait_for(lambda: bool(words), key=1)
            world.say("writes")
            words[0].value = 7

    assert world.run(body, schedule) == ["writes", "went on"]
    assert not world.node.stalled


def test_a_stream_calls_a_function_of_the_program(make_world: Callable[[int], World]) -> None:
    world = make_world(2)
    functions = [HOST_FUNCTION(lambda data: world.say(f"called with {data}")) for _ in range(2)]

    def body(rank: int) -> None:
        start()
        ok(library.cuLaunchHostFunc(None, functions[rank], ctypes.c_void_p(rank + 1)))
        ok(library.cuStreamSynchronize(None))
        world.say(f"{rank} went on")

    first = world.run(body)
    assert sorted(first) == ["0 went on", "1 went on", "called with 1", "called with 2"]
    assert first.index("called with 1") < first.index("0 went on")
    assert first.index("called with 2") < first.index("1 went on")
