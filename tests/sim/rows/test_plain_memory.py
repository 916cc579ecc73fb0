"""`cuMemAlloc`, `cuMemFree`, and what an address belongs to. Measured on 2 x H200, driver 580 (CUDA 13.0)."""

from __future__ import annotations

import ctypes

import pytest

from allranks import sim
from tests.sim.rows.driver_client import (
    GRANULE,
    RESULT,
    address_range,
    buffer_id,
    driver,
    expect,
    ok,
    read,
    simulated_only,
    write,
)

pytestmark = pytest.mark.usefixtures("process")


def allocate(size: int) -> int:
    return int(ok(driver.cuMemAlloc(size)))


def test_range_inside_an_allocation_of_1000_bytes() -> None:
    address = allocate(1000)
    assert address_range(address + 999) == (address, 1000)
    expect(RESULT.CUDA_ERROR_NOT_FOUND, driver.cuMemGetAddressRange(address + 1000))


def test_two_allocations_of_256_bytes_in_a_row() -> None:
    first, second = allocate(256), allocate(256)
    assert second - first == 512
    assert address_range(first) == (first, 256)
    assert address_range(second) == (second, 256)
    assert buffer_id(first) != buffer_id(second)


@pytest.mark.parametrize("size", [256, 1000, GRANULE, 5 * GRANULE + 7])
def test_free_then_allocate_gives_the_same_address_and_a_new_buffer_id(size: int) -> None:
    address = allocate(size)
    first = buffer_id(address)
    ok(driver.cuMemFree(address))
    assert allocate(size) == address
    assert buffer_id(address) != first


def test_allocate_nothing() -> None:
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemAlloc(0))


def test_allocate_more_than_there_is() -> None:
    expect(RESULT.CUDA_ERROR_OUT_OF_MEMORY, driver.cuMemAlloc(256 << 30))


def test_free_of_an_inner_pointer() -> None:
    address = allocate(1000)
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemFree(address + 512))
    ok(driver.cuMemFree(address))


def test_free_of_a_host_pointer() -> None:
    data = ctypes.create_string_buffer(64)
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemFree(ctypes.addressof(data)))


def test_free_twice() -> None:
    address = allocate(1000)
    ok(driver.cuMemFree(address))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemFree(address))


def test_free_of_null() -> None:
    ok(driver.cuMemFree(0))


def test_an_address_is_not_memory_of_the_host(process: sim.Process) -> None:
    """It is outside of what user space can map, so that host code which follows it faults, as on hardware."""
    assert allocate(GRANULE) >= 1 << 48
    assert process.view(allocate(64), 64).nbytes == 64


def test_copy_past_the_end() -> None:
    """An assumption: hardware maps whole pages and would let some of this pass; compute-sanitizer would not."""
    address = allocate(1000)
    data = bytearray(1001)
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemcpyDtoH(data, address, 1001))


def test_bytes_survive_the_way_there_and_back() -> None:
    source, destination = allocate(1000), allocate(1000)
    write(source, bytes(range(250)) * 4)
    ok(driver.cuMemcpyDtoD(destination, source, 1000))
    assert read(destination, 1000) == bytes(range(250)) * 4


def test_memset_of_words() -> None:
    address = allocate(16)
    ok(driver.cuMemsetD32(address, 0x04030201, 4))
    assert read(address, 16) == b"\1\2\3\4" * 4
    ok(driver.cuMemsetD16(address, 0x0605, 2))
    assert read(address, 6) == b"\5\6\5\6\1\2"


def test_pointer_attributes_of_an_address_that_means_nothing() -> None:
    attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuPointerGetAttribute(attribute, 4096))


@simulated_only("a device answers success, and what it does then nobody says")
@pytest.mark.parametrize("count", [(1 << 62) + 1, 1 << 62, (1 << 63) + 1, (1 << 64) - 1])
@pytest.mark.parametrize("name", ["cuMemsetD8", "cuMemsetD16", "cuMemsetD32", "cuMemsetD16Async", "cuMemsetD32Async"])
def test_a_fill_whose_bytes_do_not_fit_a_word_is_refused(name: str, count: int) -> None:
    address = ok(driver.cuMemAlloc(4096))
    stream = (0,) if name.endswith("Async") else ()
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, getattr(driver, name)(address, 1, count, *stream))
    ok(driver.cuMemFree(address))


@pytest.mark.parametrize("name", ["cuMemcpy", "cuMemcpyAsync"])
@pytest.mark.parametrize("nowhere", [1, 8, 1 << 62, (1 << 64) - 4])
def test_a_copy_by_numbers_that_lead_to_no_host_memory_is_refused(name: str, nowhere: int) -> None:
    address = allocate(4096)
    stream = (0,) if name.endswith("Async") else ()
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, getattr(driver, name)(address, nowhere, 4096, *stream))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, getattr(driver, name)(nowhere, address, 4096, *stream))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, getattr(driver, name)(nowhere, nowhere, 1 << 40, *stream))


def test_a_copy_by_numbers_between_buffers_of_the_program() -> None:
    source, destination = ctypes.create_string_buffer(b"x" * 100), ctypes.create_string_buffer(100)
    ok(driver.cuMemcpy(ctypes.addressof(destination), ctypes.addressof(source), 100))
    assert destination.raw == b"x" * 100
