"""Page-locked host memory. From the text of `cuda.h`; that freeing it waits for the device is known from use."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import pytest

from allranks import sim
from tests.sim.rows.driver_client import RESULT, buffer_id, driver, expect, ok, read, simulated_only

pytestmark = pytest.mark.usefixtures("process")

MAPPED = driver.CU_MEMHOSTALLOC_DEVICEMAP
ATTRIBUTE = driver.CUpointer_attribute


def allocate(size: int, flags: int = MAPPED) -> int:
    return int(ok(driver.cuMemHostAlloc(size, flags)))


def ask(attribute: str, address: int) -> Any:
    return ok(driver.cuPointerGetAttribute(getattr(ATTRIBUTE, f"CU_POINTER_ATTRIBUTE_{attribute}"), address))


def test_it_is_zeroed_and_the_host_writes_there() -> None:
    pointer = allocate(10000)
    assert ctypes.string_at(pointer, 10000) == bytes(10000)
    ctypes.memset(pointer, 5, 10000)
    ok(driver.cuMemFreeHost(pointer))


def test_copies_and_fills_reach_it_from_both_sides() -> None:
    pointer, device = allocate(4096), int(ok(driver.cuMemAlloc(4096)))
    ctypes.memset(pointer, 5, 4096)
    ok(driver.cuMemcpyHtoD(device, pointer, 4096))
    assert read(device, 4096) == b"\5" * 4096
    ok(driver.cuMemsetD32(pointer, 0x04030201, 2))
    assert ctypes.string_at(pointer, 9) == b"\1\2\3\4\1\2\3\4\5"
    ok(driver.cuMemcpyDtoD(device, pointer, 4096))
    assert read(device, 9) == b"\1\2\3\4\1\2\3\4\5"
    ok(driver.cuMemsetD8(device, 9, 16))
    ok(driver.cuMemcpy(pointer, device, 16))
    assert ctypes.string_at(pointer, 17) == b"\t" * 16 + b"\5"


@simulated_only("a stream's work is done when somebody waits for it; a device does it meanwhile")
def test_a_copy_from_it_takes_the_source_when_the_stream_gets_there() -> None:
    """From pageable memory it takes the source when the call is made."""
    stream = ok(driver.cuStreamCreate(0))
    locked, device = allocate(64), int(ok(driver.cuMemAlloc(64)))
    pageable = ctypes.create_string_buffer(b"\1" * 64, 64)
    ctypes.memset(locked, 1, 64)
    ok(driver.cuMemcpyHtoDAsync(device, locked, 32, stream))
    ok(driver.cuMemcpyHtoDAsync(device + 32, ctypes.addressof(pageable), 32, stream))
    ctypes.memset(locked, 2, 64)
    ctypes.memset(pageable, 2, 64)
    ok(driver.cuStreamSynchronize(stream))
    assert read(device, 64) == b"\2" * 32 + b"\1" * 32


def test_pointer_attributes_say_host() -> None:
    pointer = allocate(1000)
    assert int(ask("MEMORY_TYPE", pointer)) == int(driver.CUmemorytype.CU_MEMORYTYPE_HOST)
    assert (int(ask("DEVICE_POINTER", pointer + 8)), int(ask("HOST_POINTER", pointer + 8))) == (
        pointer + 8,
        pointer + 8,
    )
    assert (int(ask("RANGE_START_ADDR", pointer + 8)), int(ask("RANGE_SIZE", pointer + 8))) == (pointer, 1000)
    assert (int(ask("DEVICE_ORDINAL", pointer)), int(ask("MAPPED", pointer)), int(ask("IS_MANAGED", pointer))) == (
        0,
        1,
        0,
    )
    assert int(ask("CONTEXT", pointer)) == int(ok(driver.cuCtxGetCurrent()))
    assert buffer_id(pointer) != buffer_id(allocate(1000))


def test_the_device_pointer_and_flags() -> None:
    pointer = allocate(1000, MAPPED | driver.CU_MEMHOSTALLOC_WRITECOMBINED)
    assert int(ok(driver.cuMemHostGetDevicePointer(pointer, 0))) == pointer
    assert int(ok(driver.cuMemHostGetFlags(pointer + 8))) == MAPPED | driver.CU_MEMHOSTALLOC_WRITECOMBINED
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemHostGetDevicePointer(pointer, 1))
    ok(driver.cuMemFreeHost(pointer))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemHostGetFlags(pointer))


def test_what_cannot_be_allocated_or_freed() -> None:
    assert int(ok(driver.cuMemHostAlloc(0, 0))) == 0
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemHostAlloc(100, 64))
    expect(RESULT.CUDA_ERROR_OUT_OF_MEMORY, driver.cuMemHostAlloc(1 << 60, 0))
    pointer = allocate(1000)
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemFreeHost(pointer + 8))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemFree(pointer))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemRetainAllocationHandle(pointer))
    ok(driver.cuMemFreeHost(pointer))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemFreeHost(pointer))


def test_freeing_waits_for_the_device() -> None:
    pointer, device = allocate(64), int(ok(driver.cuMemAlloc(64)))
    stream = ok(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
    ctypes.memset(pointer, 6, 64)
    ok(driver.cuMemcpyHtoDAsync(device, pointer, 64, stream))
    ok(driver.cuMemFreeHost(pointer))
    assert read(device, 64) == b"\6" * 64


def test_memory_of_the_program_is_registered_and_unregistered(node: sim.Node) -> None:
    with mmap.mmap(-1, 8192) as memory:
        view = ctypes.c_char.from_buffer(memory)
        pointer = ctypes.addressof(view)
        ok(driver.cuMemHostRegister(pointer, 8192, driver.CU_MEMHOSTREGISTER_DEVICEMAP))
        ok(driver.cuMemsetD8(pointer + 4096, 3, 100))
        assert memory[4095:4097] == b"\0\3"
        expect(RESULT.CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, driver.cuMemHostRegister(pointer + 4096, 100, 0))
        expect(RESULT.CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, driver.cuMemHostUnregister(pointer + 4096))
        expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemFreeHost(pointer))
        expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemHostGetFlags(pointer))
        assert [(entry.kind, entry.bytes) for entry in node.ledger()] == [("context", 0), ("host", 8192)]
        ok(driver.cuMemHostUnregister(pointer))
        expect(RESULT.CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, driver.cuMemHostUnregister(pointer))
        expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemsetD8(pointer, 3, 100))
        del view


def test_what_cannot_be_registered() -> None:
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemHostRegister(0, 100, 0))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemHostRegister(4096, 100, 0))
    expect(RESULT.CUDA_ERROR_NOT_SUPPORTED, driver.cuMemHostRegister(1 << 63, 1 << 62, 0))
    expect(RESULT.CUDA_ERROR_NOT_SUPPORTED, driver.cuMemHostRegister(1 << 63, 1 << 63, 0))
    pointer = allocate(1000)
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemHostRegister(pointer, 1 << 62, 0))
    read_only = driver.CU_MEMHOSTREGISTER_READ_ONLY
    expect(RESULT.CUDA_ERROR_NOT_SUPPORTED, driver.cuMemHostRegister(pointer, 1000, read_only))
    expect(RESULT.CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, driver.cuMemHostRegister(pointer, 1000, 0))


def test_it_goes_with_its_context_and_is_the_same_for_another_process_by_number_only(
    node: sim.Node, process: sim.Process
) -> None:
    pointer = allocate(1000)
    assert [entry.kind for entry in node.ledger()] == ["context", "host"]
    ok(driver.cuDevicePrimaryCtxReset(0))
    assert node.ledger() == [] or [entry.kind for entry in node.ledger()] == ["context"]
    node.check_invariants()
    ok(driver.cuDevicePrimaryCtxRetain(0))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemFreeHost(pointer))
    process.close()
    assert node.ledger() == []


def test_more_than_the_host_has() -> None:
    expect(RESULT.CUDA_ERROR_OUT_OF_MEMORY, driver.cuMemHostAlloc(1 << 45, MAPPED))
