"""What a handle value is good for. Measured on one H200, driver 580 (CUDA 13.0)."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from allranks import sim
from tests.sim.rows.driver_client import (
    GRANULE,
    MIB,
    POSIX,
    READ_WRITE,
    RESULT,
    access,
    create,
    driver,
    expect,
    location,
    mapped,
    ok,
    properties,
    reserve,
)

pytestmark = pytest.mark.usefixtures("process")


def test_a_handle_without_references_is_good_while_it_is_mapped() -> None:
    handle = create()
    mapped(handle)
    ok(driver.cuMemRelease(handle))
    ok(driver.cuMemGetAllocationPropertiesFromHandle(handle))
    os.close(int(ok(driver.cuMemExportToShareableHandle(handle, POSIX, 0))))
    ok(driver.cuMemMap(reserve(), GRANULE, 0, handle, 0))


def test_an_imported_handle_cannot_be_exported() -> None:
    descriptor = int(ok(driver.cuMemExportToShareableHandle(create(), POSIX, 0)))
    imported = ok(driver.cuMemImportFromShareableHandle(descriptor, POSIX))
    os.close(descriptor)
    assert int(ok(driver.cuMemGetAllocationPropertiesFromHandle(imported)).requestedHandleTypes) == 0
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemExportToShareableHandle(imported, POSIX, 0))


def test_import_of_a_type_of_another_system() -> None:
    windows = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_WIN32
    expect(RESULT.CUDA_ERROR_NOT_SUPPORTED, driver.cuMemImportFromShareableHandle(3, windows))


def test_a_part_or_an_offset_is_refused_before_what_is_mapped_there() -> None:
    handle = create()
    address = mapped(handle)
    expect(RESULT.CUDA_ERROR_NOT_SUPPORTED, driver.cuMemMap(address, GRANULE, GRANULE, handle, 0))
    expect(RESULT.CUDA_ERROR_NOT_SUPPORTED, driver.cuMemMap(address, 4096, 0, handle, 0))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemMap(address, GRANULE, 0, handle, 0))


def test_more_than_the_allocation() -> None:
    expect(RESULT.CUDA_ERROR_NOT_SUPPORTED, driver.cuMemMap(reserve(2 * GRANULE), 2 * GRANULE, 0, create(), 0))


def holed() -> int:
    """Reserve four granules, with the first and the third one mapped."""
    address = reserve(4 * GRANULE)
    for offset in (0, 2 * GRANULE):
        ok(driver.cuMemMap(address + offset, GRANULE, 0, create(), 0))
    return address


def test_set_access_over_a_hole() -> None:
    address = holed()
    ok(access(address, 3 * GRANULE, 0))
    assert int(ok(driver.cuMemGetAccess(location(0), address))) == int(READ_WRITE)
    assert int(ok(driver.cuMemGetAccess(location(0), address + 2 * GRANULE))) == 0  # it goes as far as the hole


def test_unmap_over_a_hole_and_past_the_reservation() -> None:
    address = holed()
    ok(driver.cuMemUnmap(address, 2 * GRANULE))
    ok(driver.cuMemUnmap(address + GRANULE, 4 * GRANULE))
    ok(driver.cuMemAddressFree(address, 4 * GRANULE))


def test_a_wished_address() -> None:
    taken = reserve()
    assert reserve(wanted=taken) != taken
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemAddressReserve(GRANULE, 0, taken + 4096, 0))


def test_access_of_plain_memory() -> None:
    address = int(ok(driver.cuMemAlloc(GRANULE)))
    assert int(ok(driver.cuMemGetAccess(location(0), address))) == 0
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, access(address, GRANULE, 0))


def test_granularity_of_a_device_that_is_not_there() -> None:
    minimum = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    assert int(ok(driver.cuMemGetAllocationGranularity(properties(99), minimum))) == GRANULE


def test_memory_that_is_free_in_pieces_is_free(make_node: Callable[[sim.Machine], sim.Node]) -> None:
    node = make_node(sim.machine("tiny", devices=1))
    node.create_process(0).bind()
    ok(driver.cuInit(0))
    first, second, third = (create(20 * MIB) for _ in range(3))
    expect(RESULT.CUDA_ERROR_OUT_OF_MEMORY, driver.cuMemCreate(6 * MIB, properties(), 0))
    ok(driver.cuMemRelease(first))
    ok(driver.cuMemRelease(third))
    create(44 * MIB)
    ok(driver.cuMemRelease(second))
