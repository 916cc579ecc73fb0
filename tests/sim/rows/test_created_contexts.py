"""Contexts of `cuCtxCreate`, what contexts can be told, copies between them, and questions about capture.

From the text of `cuda.h`, except where a row says otherwise.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import pytest

from allranks import sim
from tests.sim.rows.driver_client import (
    ON_HARDWARE,
    RESULT,
    driver,
    expect,
    loaded_driver,
    ok,
    read,
    simulated_only,
    write,
)

pytestmark = pytest.mark.usefixtures("process")


def made(device: int = 0) -> Any:
    return ok(driver.cuCtxCreate(None, 0, device))


def test_it_is_current_and_pushed() -> None:
    primary = ok(driver.cuCtxGetCurrent())
    context = made(1)
    assert int(ok(driver.cuCtxGetCurrent())) == int(context) != int(primary)
    assert int(ok(driver.cuCtxGetDevice())) == 1
    ok(driver.cuCtxDestroy(context))
    assert int(ok(driver.cuCtxGetCurrent())) == int(primary)


def test_its_end_gives_back_what_it_holds(node: sim.Node) -> None:
    kept = int(ok(driver.cuMemAlloc(1000)))
    context = made()
    ok(driver.cuMemAlloc(4 << 20))
    ok(driver.cuMemAllocAsync(1000, 0))
    ok(driver.cuMemHostAlloc(1000, 0))
    stream, event = ok(driver.cuStreamCreate(0)), ok(driver.cuEventCreate(0))
    ok(driver.cuEventRecord(event, stream))
    assert len(node.ledger()) == 8
    ok(driver.cuCtxDestroy(context))
    node.check_invariants()
    assert [entry.kind for entry in node.ledger()] == ["plain", "context"]
    expect(RESULT.CUDA_ERROR_INVALID_HANDLE, driver.cuStreamQuery(stream))
    ok(driver.cuMemsetD8(kept, 1, 1000))


def test_contexts_of_one_device_have_streams_of_their_own() -> None:
    first = ok(driver.cuStreamCreate(0))
    context = made()
    second = ok(driver.cuStreamCreate(0))
    assert int(first) != int(second)
    assert int(ok(driver.cuStreamGetCtx(second))) == int(context)
    assert int(ok(driver.cuStreamGetCtx(first))) != int(context)
    identifiers = {int(ok(driver.cuStreamGetId(stream))) for stream in (first, second, 0)}
    assert len(identifiers) == 3
    assert int(ok(driver.cuStreamGetDevice(second))) == 0


def test_another_thread_finds_it_destroyed(process: sim.Process) -> None:
    context = made()
    current, destroyed = threading.Event(), threading.Event()
    codes = []

    def other() -> None:
        process.bind()
        ok(driver.cuCtxSetCurrent(context))
        current.set()
        assert destroyed.wait(60)
        codes.append(driver.cuMemAlloc(1000)[0])
        sim.unbind()

    thread = threading.Thread(target=other)
    thread.start()
    assert current.wait(60)
    ok(driver.cuCtxDestroy(context))
    destroyed.set()
    thread.join(60)
    assert codes == [RESULT.CUDA_ERROR_CONTEXT_IS_DESTROYED]
    expect(RESULT.CUDA_ERROR_INVALID_CONTEXT, driver.cuCtxDestroy(context))


def test_contexts_that_cannot_be_made_or_destroyed() -> None:
    expect(RESULT.CUDA_ERROR_INVALID_DEVICE, driver.cuCtxCreate(None, 0, 9))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuCtxCreate(None, 3, 0))
    expect(RESULT.CUDA_ERROR_INVALID_CONTEXT, driver.cuCtxDestroy(ok(driver.cuCtxGetCurrent())))


@pytest.mark.parametrize(
    "symbol",
    [pytest.param("cuCtxCreate", marks=simulated_only("the oldest symbol says OUT_OF_MEMORY there")), "cuCtxCreate_v2"],
)
def test_older_names_take_their_older_arguments(symbol: str) -> None:
    library, _ = loaded_driver()
    context = ctypes.c_void_p()
    assert getattr(library, symbol)(ctypes.byref(context), 0, 1) == 0
    assert int(ok(driver.cuCtxGetDevice())) == 1
    assert library.cuCtxDestroy(context) == 0


def test_each_context_has_a_number() -> None:
    first = int(ok(driver.cuCtxGetId(0)))
    context = made()
    assert int(ok(driver.cuCtxGetId(context))) == int(ok(driver.cuCtxGetId(0))) != first


def test_limits_and_the_cache_are_kept() -> None:
    limit = driver.CUlimit
    ok(driver.cuCtxSetLimit(limit.CU_LIMIT_MALLOC_HEAP_SIZE, 1 << 20))
    assert int(ok(driver.cuCtxGetLimit(limit.CU_LIMIT_MALLOC_HEAP_SIZE))) == 1 << 20
    expect(RESULT.CUDA_ERROR_UNSUPPORTED_LIMIT, driver.cuCtxSetLimit(limit.CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, 1))
    wanted = driver.CUfunc_cache.CU_FUNC_CACHE_PREFER_L1
    ok(driver.cuCtxSetCacheConfig(wanted))
    assert ok(driver.cuCtxGetCacheConfig()) == wanted


def test_peer_access_is_between_two_contexts() -> None:
    primary = ok(driver.cuCtxGetCurrent())
    there = made(1)
    address = int(ok(driver.cuMemAlloc(64)))
    ok(driver.cuCtxSetCurrent(primary))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemsetD8(address, 1, 64))
    ok(driver.cuCtxEnablePeerAccess(there, 0))
    expect(RESULT.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, driver.cuCtxEnablePeerAccess(there, 0))
    ok(driver.cuMemsetD8(address, 1, 64))
    ok(driver.cuCtxDisablePeerAccess(there))
    expect(RESULT.CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, driver.cuCtxDisablePeerAccess(there))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemsetD8(address, 1, 64))
    ok(driver.cuCtxEnablePeerAccess(there, 0))
    ok(driver.cuCtxDestroy(there))
    expect(RESULT.CUDA_ERROR_CONTEXT_IS_DESTROYED, driver.cuCtxDisablePeerAccess(there))


def test_copies_between_contexts_need_no_peer_access() -> None:
    primary = ok(driver.cuCtxGetCurrent())
    source = int(ok(driver.cuMemAlloc(64)))
    write(source, b"\4" * 64)
    there = made(1)
    destination = int(ok(driver.cuMemAlloc(64)))
    ok(driver.cuMemcpyDtoD(destination + 48, source, 16))
    ok(driver.cuMemcpyPeer(destination, there, source, primary, 32))
    ok(driver.cuMemcpyPeerAsync(destination + 32, there, source, primary, 16, 0))
    ok(driver.cuStreamSynchronize(0))
    assert read(destination, 64) == b"\4" * 64
    ok(driver.cuMemcpyPeer(destination, there, source, there, 64))  # whose memory it is, is known anyway
    if not ON_HARDWARE:  # a number that is no context ends the process there
        expect(RESULT.CUDA_ERROR_INVALID_CONTEXT, driver.cuMemcpyPeer(destination, 12345, source, primary, 64))


def test_nothing_is_captured() -> None:
    none = driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE
    assert ok(driver.cuStreamIsCapturing(0)) == none
    assert ok(driver.cuStreamGetCaptureInfo(0))[0] == none
    mode = driver.CUstreamCaptureMode
    relaxed = mode.CU_STREAM_CAPTURE_MODE_RELAXED
    assert ok(driver.cuThreadExchangeStreamCaptureMode(relaxed)) == mode.CU_STREAM_CAPTURE_MODE_GLOBAL
    assert ok(driver.cuThreadExchangeStreamCaptureMode(mode.CU_STREAM_CAPTURE_MODE_GLOBAL)) == relaxed


@simulated_only("streams are not captured by the simulated driver")
def test_capture_itself_is_not_simulated() -> None:
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
    stream = ok(driver.cuStreamCreate(0))
    expect(RESULT.CUDA_ERROR_NOT_SUPPORTED, driver.cuStreamBeginCapture(stream, mode))


@simulated_only("the simulated driver has no descriptors of address ranges")
def test_no_descriptor_of_a_range() -> None:
    """What the device attribute says."""
    address = int(ok(driver.cuMemAlloc(4096)))
    kind = driver.CUmemRangeHandleType.CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
    expect(RESULT.CUDA_ERROR_NOT_SUPPORTED, driver.cuMemGetHandleForAddressRange(address, 4096, kind, 0))


def test_events_time_work_on_the_nodes_clock() -> None:
    start, end = ok(driver.cuEventCreate(0)), ok(driver.cuEventCreate(0))
    expect(RESULT.CUDA_ERROR_INVALID_HANDLE, driver.cuEventElapsedTime(start, end))
    ok(driver.cuEventRecord(start, 0))
    ok(driver.cuEventRecord(end, 0))
    if not ON_HARDWARE:  # a device may be done by now
        expect(RESULT.CUDA_ERROR_NOT_READY, driver.cuEventElapsedTime(start, end))
    ok(driver.cuEventSynchronize(end))
    assert ok(driver.cuEventElapsedTime(start, end)) >= 0
    untimed = ok(driver.cuEventCreate(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING))
    ok(driver.cuEventRecord(untimed, 0))
    expect(RESULT.CUDA_ERROR_INVALID_HANDLE, driver.cuEventElapsedTime(start, untimed))
