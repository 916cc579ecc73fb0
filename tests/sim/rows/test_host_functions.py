"""Functions of the program that a stream calls, from the text of `cuda.h`."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest

from allranks import sim
from tests.sim.rows.driver_client import RESULT, driver, expect, ok, read

pytestmark = pytest.mark.usefixtures("process")

HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)


def launch(body: Callable[[Any], None], stream: Any = 0, data: int = 0) -> Any:
    """Enqueue a call; the function has to live until it was called."""
    function = HOST_FUNCTION(body)
    pointer = driver.CUhostFn(_ptr=ctypes.addressof(ctypes.c_void_p.from_buffer(function)))
    ok(driver.cuLaunchHostFunc(stream, pointer, data))
    return function


def add(body: Callable[[Any, int, Any], None], stream: Any = 0) -> Any:
    """Add a callback; the function has to live until it was called."""
    function = CALLBACK(body)
    pointer = driver.CUstreamCallback(_ptr=ctypes.addressof(ctypes.c_void_p.from_buffer(function)))
    ok(driver.cuStreamAddCallback(stream, pointer, 0, 0))
    return function


def test_it_is_called_after_what_comes_before_with_its_data() -> None:
    pointer = int(ok(driver.cuMemHostAlloc(8, driver.CU_MEMHOSTALLOC_DEVICEMAP)))
    seen: list[tuple[int, bytes]] = []
    ok(driver.cuMemsetD8Async(pointer, 7, 8, 0))
    kept = launch(lambda data: seen.append((data, ctypes.string_at(pointer, 8))), data=42)
    ok(driver.cuMemsetD8Async(pointer, 8, 8, 0))
    assert seen == []
    ok(driver.cuStreamSynchronize(0))
    assert (seen, kept is not None) == ([(42, b"\7" * 8)], True)


def test_it_may_not_call_the_driver() -> None:
    codes: list[Any] = []
    kept = launch(lambda data: codes.append(driver.cuCtxSynchronize()[0]))
    ok(driver.cuCtxSynchronize())
    assert (codes, kept is not None) == ([RESULT.CUDA_ERROR_NOT_PERMITTED], True)


def test_what_comes_after_sees_what_it_wrote() -> None:
    pointer, device = int(ok(driver.cuMemHostAlloc(8, 0))), int(ok(driver.cuMemAlloc(8)))

    def change(_data: Any) -> None:
        ctypes.memset(pointer, 3, 8)

    kept = launch(change)
    ok(driver.cuMemcpyHtoDAsync(device, pointer, 8, 0))
    ok(driver.cuStreamSynchronize(0))
    assert (read(device, 8), kept is not None) == (b"\3" * 8, True)


def test_a_callback_gets_the_stream_and_the_status() -> None:
    stream = ok(driver.cuStreamCreate(0))
    seen: list[tuple[int, int]] = []
    kept = add(lambda where, status, data: seen.append((where, status)), stream)
    ok(driver.cuStreamSynchronize(stream))
    assert (seen, kept is not None) == ([(int(stream), 0)], True)


def test_in_a_broken_context_callbacks_are_called_with_the_error_and_host_functions_are_not(node: sim.Node) -> None:
    address = int(ok(driver.cuMemAllocAsync(1000, 0)))
    seen: list[Any] = []
    ok(driver.cuMemsetD8Async(address, 1, 1000, 0))
    ok(driver.cuMemFree(address))  # does not wait for the fill, which breaks the context
    kept = [launch(lambda data: seen.append("host function")), add(lambda where, status, data: seen.append(status))]
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuStreamSynchronize(0))
    assert (seen, len(kept)) == ([int(RESULT.CUDA_ERROR_INVALID_VALUE)], 2)
    node.check_invariants()
