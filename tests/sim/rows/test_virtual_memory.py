"""Reserve, create, map, set access, unmap, release, free. Measured on 2 x H200, driver 580 (CUDA 13.0)."""

from __future__ import annotations

import pytest

from allranks import sim
from tests.sim.rows.driver_client import (
    FABRIC,
    GRANULE,
    MIB,
    RESULT,
    access,
    address_range,
    buffer_id,
    create,
    driver,
    expect,
    location,
    mapped,
    ok,
    properties,
    read,
    reserve,
    simulated_only,
    write,
)

pytestmark = pytest.mark.usefixtures("process")


@pytest.mark.parametrize("option", ["MINIMUM", "RECOMMENDED"])
def test_granularity_is_2_mib(option: str) -> None:
    flag = getattr(driver.CUmemAllocationGranularity_flags, f"CU_MEM_ALLOC_GRANULARITY_{option}")
    assert ok(driver.cuMemGetAllocationGranularity(properties(), flag)) == 2 * MIB


def test_smallest_reservation_is_2_mib() -> None:
    address = reserve(2 * MIB)
    assert address % (2 * MIB) == 0
    ok(driver.cuMemAddressFree(address, 2 * MIB))


@pytest.mark.parametrize("size", [0, 4096, 64 * 1024])
def test_reserve_below_2_mib(size: int) -> None:
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemAddressReserve(size, 0, 0, 0))


def test_reserve_with_alignment_3() -> None:
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemAddressReserve(GRANULE, 3, 0, 0))


@simulated_only("which wish is heard is up to the driver")
def test_reserve_at_a_wished_address() -> None:
    first = reserve()
    wanted = first + 64 * GRANULE
    assert reserve(GRANULE, wanted) == wanted
    assert reserve(GRANULE, wanted) != wanted  # taken: cuda.h calls it a hint


@pytest.mark.parametrize("wanted", [(1 << 64) - GRANULE, 1 << 49, (1 << 49) - GRANULE])
def test_a_wish_that_the_range_does_not_fit_behind(wanted: int) -> None:
    expect(RESULT.CUDA_ERROR_OUT_OF_MEMORY, driver.cuMemAddressReserve(2 * GRANULE, 0, wanted, 0))


def test_a_wish_where_the_driver_places_nothing_is_not_heard() -> None:
    address = reserve(2 * GRANULE, GRANULE)
    assert address != GRANULE
    ok(driver.cuMemMap(address, 2 * GRANULE, 0, create(2 * GRANULE), 0))


@pytest.mark.parametrize("size", [0, 4096, GRANULE + 4096])
def test_create_off_the_granularity(size: int) -> None:
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemCreate(size, properties(), 0))


def test_create_more_than_there_is() -> None:
    expect(RESULT.CUDA_ERROR_OUT_OF_MEMORY, driver.cuMemCreate(256 << 30, properties(), 0))


def test_create_until_memory_runs_out(node: sim.Node) -> None:
    """Fails where nothing is left, and works again when one is released."""
    size = 1 << 30
    handles = [create(size) for _ in range(node.machine.memory_bytes // size)]
    expect(RESULT.CUDA_ERROR_OUT_OF_MEMORY, driver.cuMemCreate(size, properties(), 0))
    create(size, device=1)
    ok(driver.cuMemRelease(handles.pop()))
    create(size)


def test_create_of_a_fabric_handle_is_not_permitted() -> None:
    expect(RESULT.CUDA_ERROR_NOT_PERMITTED, driver.cuMemCreate(GRANULE, properties(handle_types=FABRIC), 0))


def test_create_on_a_device_that_is_not_there() -> None:
    expect(RESULT.CUDA_ERROR_INVALID_DEVICE, driver.cuMemCreate(GRANULE, properties(device=2), 0))


def test_map_with_an_offset() -> None:
    handle, address = create(2 * GRANULE), reserve(2 * GRANULE)
    expect(RESULT.CUDA_ERROR_NOT_SUPPORTED, driver.cuMemMap(address, GRANULE, GRANULE, handle, 0))


def test_map_of_a_prefix() -> None:
    handle, address = create(2 * GRANULE), reserve(2 * GRANULE)
    expect(RESULT.CUDA_ERROR_NOT_SUPPORTED, driver.cuMemMap(address, GRANULE, 0, handle, 0))


def test_map_over_a_mapped_range() -> None:
    address = mapped(create())
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemMap(address, GRANULE, 0, create(), 0))


def test_map_outside_of_a_reservation() -> None:
    address = reserve()
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemMap(address + GRANULE, GRANULE, 0, create(), 0))


def test_unmap_of_a_part() -> None:
    address = mapped(create(2 * GRANULE), 2 * GRANULE)
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemUnmap(address, GRANULE))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemUnmap(address + GRANULE, GRANULE))
    write(address, b"still there")


def test_unmap_of_a_reserved_range_with_nothing_mapped(node: sim.Node) -> None:
    ok(driver.cuMemUnmap(reserve(), GRANULE))
    assert [incident["kind"] for incident in node.incidents()] == ["unmap_of_nothing"]


def two_side_by_side() -> int:
    address = reserve(3 * GRANULE)
    ok(driver.cuMemMap(address, GRANULE, 0, create(), 0))
    ok(driver.cuMemMap(address + GRANULE, 2 * GRANULE, 0, create(2 * GRANULE), 0))
    return address


def test_unmap_of_two_whole_mappings() -> None:
    address = two_side_by_side()
    ok(driver.cuMemUnmap(address, 3 * GRANULE))
    ok(driver.cuMemAddressFree(address, 3 * GRANULE))


def test_two_allocations_side_by_side_have_a_range_each() -> None:
    address = two_side_by_side()
    ok(access(address, 3 * GRANULE, 0))
    assert address_range(address + 5) == (address, GRANULE)
    assert address_range(address + GRANULE + 5) == (address + GRANULE, 2 * GRANULE)


def test_access_across_two_allocations_side_by_side() -> None:
    address = two_side_by_side()
    ok(access(address, 3 * GRANULE, 0))
    write(address + GRANULE - 4, b"across12")
    assert read(address + GRANULE - 4, 8) == b"across12"


def test_address_range_of_a_reserved_unmapped_address() -> None:
    expect(RESULT.CUDA_ERROR_NOT_FOUND, driver.cuMemGetAddressRange(reserve()))


def test_address_free_while_mapped() -> None:
    address = mapped(create())
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemAddressFree(address, GRANULE))


def test_address_free_of_a_part() -> None:
    address = reserve(2 * GRANULE)
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemAddressFree(address, GRANULE))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemAddressFree(address + GRANULE, GRANULE))
    ok(driver.cuMemAddressFree(address, 2 * GRANULE))


def test_set_access_of_an_unmapped_range() -> None:
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, access(reserve(), GRANULE, 0))


def test_set_access_of_a_misaligned_range() -> None:
    address = mapped(create(2 * GRANULE), 2 * GRANULE)
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, access(address + 4096, GRANULE, 0))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, access(address, 4096, 0))


def test_access_of_the_peer() -> None:
    address = mapped(create(), GRANULE, 1)
    assert int(ok(driver.cuMemGetAccess(location(1), address))) == 3
    assert int(ok(driver.cuMemGetAccess(location(0), address))) == 0


def test_memset_before_any_set_access_leaves_the_context_healthy() -> None:
    address = reserve()
    ok(driver.cuMemMap(address, GRANULE, 0, create(), 0))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemsetD8(address, 1, 16))
    ok(driver.cuCtxSynchronize())
    ok(access(address, GRANULE, 0))
    ok(driver.cuMemsetD8(address, 1, 16))
    assert read(address, 16) == b"\1" * 16


def test_buffer_id_is_one_for_a_mapping() -> None:
    address = mapped(create())
    assert buffer_id(address) == buffer_id(address + GRANULE - 1)


def test_buffer_id_is_new_for_a_second_mapping_of_the_handle() -> None:
    handle = create()
    assert buffer_id(mapped(handle)) != buffer_id(mapped(handle))


@pytest.mark.parametrize("new_handle", [False, True], ids=["same handle", "new handle"])
def test_buffer_id_is_new_after_a_remap_at_the_address(new_handle: bool) -> None:
    handle = create()
    address = mapped(handle)
    first = buffer_id(address)
    ok(driver.cuMemUnmap(address, GRANULE))
    ok(driver.cuMemMap(address, GRANULE, 0, create() if new_handle else handle, 0))
    assert buffer_id(address) != first


def test_two_mappings_of_one_handle_show_the_same_memory() -> None:
    handle = create()
    one, other = mapped(handle), mapped(handle)
    write(one, b"shared")
    assert read(other, 6) == b"shared"


def test_retain_gives_the_same_handle_and_a_reference() -> None:
    handle = create()
    address = mapped(handle)
    retained = ok(driver.cuMemRetainAllocationHandle(address))
    assert int(retained) == int(handle)
    ok(driver.cuMemRelease(handle))
    ok(driver.cuMemRelease(handle))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemRelease(handle))


def test_one_release_too_many_while_mapped(node: sim.Node) -> None:
    handle = create()
    address = mapped(handle)
    write(address, b"stays")
    ok(driver.cuMemRelease(handle))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemRelease(handle))
    assert [incident["kind"] for incident in node.incidents()] == ["over_release"]
    assert read(address, 5) == b"stays"
    assert int(ok(driver.cuMemRetainAllocationHandle(address))) == int(handle)
    ok(driver.cuMemRelease(handle))
    ok(driver.cuMemUnmap(address, GRANULE))
    assert node.memory_used(0) == 0


def test_retain_on_plain_memory() -> None:
    address = ok(driver.cuMemAlloc(GRANULE))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemRetainAllocationHandle(int(address)))


def test_a_whole_cycle_leaves_nothing(node: sim.Node, process: sim.Process) -> None:
    for _ in range(3):
        handle = create(8 * MIB)
        address = mapped(handle, 8 * MIB)
        ok(driver.cuMemUnmap(address, 8 * MIB))
        ok(driver.cuMemRelease(handle))
        ok(driver.cuMemAddressFree(address, 8 * MIB))
    assert [entry.kind for entry in node.ledger()] == ["context"]
    assert process.resolve(address, GRANULE)[0].device == -1
