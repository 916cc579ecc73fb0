"""Attributes of pointers. Measured on one H200, driver 580 (CUDA 13.0)."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from tests.sim.rows.driver_client import (
    GRANULE,
    ON_HARDWARE,
    RESULT,
    access,
    create,
    driver,
    expect,
    loaded_driver,
    ok,
    reserve,
)

pytestmark = pytest.mark.usefixtures("process")

ATTRIBUTE = driver.CUpointer_attribute


def ask(attribute: str, address: int) -> Any:
    """Give an attribute of an address."""
    if ON_HARDWARE and attribute.startswith("MAPPING_"):
        pytest.skip("a client of CUDA 13.0 does not take this attribute")
    return ok(driver.cuPointerGetAttribute(getattr(ATTRIBUTE, f"CU_POINTER_ATTRIBUTE_{attribute}"), address))


def test_mapped_memory_has_the_range_of_its_reservation() -> None:
    base = reserve(4 * GRANULE)
    ok(driver.cuMemMap(base + GRANULE, GRANULE, 0, create(), 0))
    ok(access(base + GRANULE, GRANULE, 0))
    inside = base + GRANULE + 512
    assert (int(ask("RANGE_START_ADDR", inside)), int(ask("RANGE_SIZE", inside))) == (base, 4 * GRANULE)
    assert (int(ask("MAPPING_BASE_ADDR", inside)), int(ask("MAPPING_SIZE", inside))) == (base + GRANULE, GRANULE)
    assert int(ask("IS_LEGACY_CUDA_IPC_CAPABLE", inside)) == 0


def test_plain_memory_has_its_own_range_and_the_mapping_of_the_driver() -> None:
    base = int(ok(driver.cuMemAlloc(1000)))
    assert (int(ask("RANGE_START_ADDR", base + 8)), int(ask("RANGE_SIZE", base + 8))) == (base, 1000)
    assert int(ask("MAPPING_SIZE", base + 8)) == GRANULE
    assert int(ask("IS_LEGACY_CUDA_IPC_CAPABLE", base + 8)) == 1


def test_the_host_pointer_of_device_memory() -> None:
    address = int(ok(driver.cuMemAlloc(1000)))
    host_pointer = ATTRIBUTE.CU_POINTER_ATTRIBUTE_HOST_POINTER
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuPointerGetAttribute(host_pointer, address))


@pytest.mark.parametrize("attribute", ["MEMORY_TYPE", "BUFFER_ID", "DEVICE_ORDINAL", "RANGE_SIZE"])
def test_a_reserved_address_with_nothing_mapped(attribute: str) -> None:
    wanted = getattr(ATTRIBUTE, f"CU_POINTER_ATTRIBUTE_{attribute}")
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuPointerGetAttribute(wanted, reserve()))


def test_synchronous_operations_can_be_set_on_plain_memory_only() -> None:
    synchronous = ATTRIBUTE.CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
    plain = int(ok(driver.cuMemAlloc(1000)))
    ok(driver.cuPointerSetAttribute(1, synchronous, plain))
    base = reserve()
    ok(driver.cuMemMap(base, GRANULE, 0, create(), 0))
    expect(RESULT.CUDA_ERROR_NOT_SUPPORTED, driver.cuPointerSetAttribute(1, synchronous, base))


def test_a_place_that_is_null_among_those_for_attributes() -> None:
    library, _ = loaded_driver()
    address = int(ok(driver.cuMemAlloc(1000)))
    wanted = (ctypes.c_int * 2)(ATTRIBUTE.CU_POINTER_ATTRIBUTE_RANGE_SIZE, ATTRIBUTE.CU_POINTER_ATTRIBUTE_BUFFER_ID)
    size = ctypes.c_uint64(7)
    places = (ctypes.c_void_p * 2)(ctypes.addressof(size), None)
    assert library.cuPointerGetAttributes(2, wanted, places, ctypes.c_uint64(address)) == 1
    assert size.value == 7
