"""Primary contexts. Measured on one H200, driver 580 (CUDA 13.0)."""

from __future__ import annotations

import threading

import pytest

from allranks import sim
from tests.sim.rows.driver_client import RESULT, create, driver, expect, mapped, ok

pytestmark = pytest.mark.usefixtures("process")


def test_a_released_context_stays_current_and_is_destroyed() -> None:
    context = ok(driver.cuCtxGetCurrent())
    ok(driver.cuDevicePrimaryCtxRelease(0))
    assert int(ok(driver.cuCtxGetCurrent())) == int(context)
    expect(RESULT.CUDA_ERROR_CONTEXT_IS_DESTROYED, driver.cuMemAlloc(1000))
    expect(RESULT.CUDA_ERROR_CONTEXT_IS_DESTROYED, driver.cuCtxSynchronize())
    assert int(ok(driver.cuCtxGetDevice())) == 0


def test_the_next_retain_brings_it_back() -> None:
    context = ok(driver.cuCtxGetCurrent())
    ok(driver.cuDevicePrimaryCtxRelease(0))
    assert int(ok(driver.cuDevicePrimaryCtxRetain(0))) == int(context)
    ok(driver.cuMemFree(ok(driver.cuMemAlloc(1000))))


def test_the_last_release_gives_plain_memory_back_and_keeps_mapped_memory(node: sim.Node) -> None:
    ok(driver.cuMemAlloc(1000))
    address = mapped(create())
    ok(driver.cuDevicePrimaryCtxRelease(0))
    kinds = [entry.kind for entry in node.ledger()]
    assert sorted(kinds) == ["allocation", "mapping", "reservation"]
    ok(driver.cuMemRetainAllocationHandle(address))


def test_one_release_too_many() -> None:
    ok(driver.cuDevicePrimaryCtxRelease(0))
    expect(RESULT.CUDA_ERROR_INVALID_CONTEXT, driver.cuDevicePrimaryCtxRelease(0))


def test_reset_keeps_what_was_retained() -> None:
    ok(driver.cuDevicePrimaryCtxReset(0))
    assert ok(driver.cuDevicePrimaryCtxGetState(0)) == (0, 0)
    expect(RESULT.CUDA_ERROR_CONTEXT_IS_DESTROYED, driver.cuMemAlloc(1000))
    ok(driver.cuDevicePrimaryCtxRelease(0))
    expect(RESULT.CUDA_ERROR_INVALID_CONTEXT, driver.cuDevicePrimaryCtxRelease(0))


def test_release_while_another_thread_has_it_current(process: sim.Process) -> None:
    context = ok(driver.cuCtxGetCurrent())
    codes = []
    released, current = threading.Event(), threading.Event()

    def other() -> None:
        process.bind()
        ok(driver.cuCtxSetCurrent(context))
        current.set()
        assert released.wait(60)
        codes.append(driver.cuCtxSynchronize()[0])
        sim.unbind()

    thread = threading.Thread(target=other)
    thread.start()
    assert current.wait(60)
    ok(driver.cuDevicePrimaryCtxRelease(0))
    released.set()
    thread.join(60)
    assert codes == [RESULT.CUDA_ERROR_CONTEXT_IS_DESTROYED]


def test_peer_access_to_itself() -> None:
    context = ok(driver.cuCtxGetCurrent())
    expect(RESULT.CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, driver.cuCtxEnablePeerAccess(context, 0))
    expect(RESULT.CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, driver.cuCtxDisablePeerAccess(context))


def test_a_limit_that_is_not_supported() -> None:
    limit = driver.CUlimit
    assert int(ok(driver.cuCtxGetLimit(limit.CU_LIMIT_MALLOC_HEAP_SIZE))) == 8388608
    expect(RESULT.CUDA_ERROR_UNSUPPORTED_LIMIT, driver.cuCtxGetLimit(limit.CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH))


def test_without_a_current_context_memory_can_still_be_mapped_and_freed() -> None:
    address = ok(driver.cuMemAlloc(1000))
    ok(driver.cuCtxPopCurrent())
    mapped(create())
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemFree(4096))
    ok(driver.cuMemFree(address))
    expect(RESULT.CUDA_ERROR_INVALID_CONTEXT, driver.cuCtxPopCurrent())
