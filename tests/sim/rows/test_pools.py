"""Stream-ordered allocation and memory pools.

Measured on one H200, driver 580 (CUDA 13.0): free and allocate on a stream gives the same address and a new BUFFER_ID,
and such memory has no allocation handle. The rest follows the text of `cuda.h`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from allranks import sim
from tests.sim.rows.conftest import start
from tests.sim.rows.driver_client import (
    FABRIC,
    MIB,
    NO_HANDLE,
    POSIX,
    READ_WRITE,
    RESULT,
    address_range,
    buffer_id,
    driver,
    expect,
    location,
    ok,
    read,
    simulated_only,
)

pytestmark = pytest.mark.usefixtures("process")

ATTRIBUTE = driver.CUmemPool_attribute
CHUNK = 32 * MIB


def stream() -> Any:
    return ok(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))


def properties(device: int = 0, handle_types: Any = NO_HANDLE, max_size: int = 0) -> Any:
    wanted = driver.CUmemPoolProps()
    wanted.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.handleTypes = handle_types
    wanted.location = location(device)
    wanted.maxSize = max_size
    return wanted


def pool(**wanted: Any) -> Any:
    return ok(driver.cuMemPoolCreate(properties(**wanted)))


def allocate(size: int, where: Any = 0, of: Any = None) -> int:
    result = driver.cuMemAllocAsync(size, where) if of is None else driver.cuMemAllocFromPoolAsync(size, of, where)
    return int(ok(result))


def ask(of: Any, attribute: str) -> int:
    return int(ok(driver.cuMemPoolGetAttribute(of, getattr(ATTRIBUTE, f"CU_MEMPOOL_ATTR_{attribute}"))))


def put(of: Any, attribute: str, value: int) -> None:
    wide = attribute not in ("REUSE_ALLOW_OPPORTUNISTIC", "REUSE_ALLOW_INTERNAL_DEPENDENCIES")
    ok(
        driver.cuMemPoolSetAttribute(
            of, getattr(ATTRIBUTE, f"CU_MEMPOOL_ATTR_{attribute}"), driver.cuuint64_t(value) if wide else value
        )
    )


@pytest.mark.parametrize("size", [256, 1000, 2 * MIB, 5 * MIB + 7])
def test_free_then_allocate_gives_the_same_address_and_a_new_buffer_id(size: int) -> None:
    where = stream()
    address = allocate(size, where)
    first = buffer_id(address)
    ok(driver.cuMemFreeAsync(address, where))
    assert allocate(size, where) == address
    assert buffer_id(address) != first
    assert address_range(address + size - 1) == (address, size)


def test_such_memory_has_no_allocation_handle() -> None:
    address = allocate(4096)
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemRetainAllocationHandle(address))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuIpcGetMemHandle(address))


def test_work_before_the_free_reaches_the_memory_and_work_after_the_next_allocation_too(node: sim.Node) -> None:
    """The stream is at neither when the calls are made: the same bytes serve one after the other."""
    where, result = stream(), int(ok(driver.cuMemAlloc(8)))
    first = allocate(4096, where)
    ok(driver.cuMemsetD8Async(first, 1, 4096, where))
    ok(driver.cuMemcpyDtoDAsync(result, first, 4, where))
    ok(driver.cuMemFreeAsync(first, where))
    second = allocate(4096, where)
    ok(driver.cuMemsetD8Async(second, 2, 4096, where))
    ok(driver.cuMemcpyDtoDAsync(result + 4, second, 4, where))
    node.check_invariants()
    ok(driver.cuStreamSynchronize(where))
    assert first == second
    assert read(result, 8) == b"\1\1\1\1\2\2\2\2"
    assert read(second, 1) == b"\2"


@simulated_only("a stream's work is done when somebody waits for it; a device does it meanwhile")
def test_another_stream_gets_the_memory_once_the_free_is_done() -> None:
    one, other = stream(), stream()
    address = allocate(4096, one)
    ok(driver.cuMemFreeAsync(address, one))
    early = allocate(4096, other)
    assert early != address
    assert driver.cuStreamQuery(one)[0] == RESULT.CUDA_SUCCESS
    assert allocate(4096, other) == address


def test_without_opportunistic_reuse_it_takes_a_synchronisation() -> None:
    where = pool()
    put(where, "REUSE_ALLOW_OPPORTUNISTIC", 0)
    put(where, "RELEASE_THRESHOLD", 1 << 40)
    one, other = stream(), stream()
    address = allocate(4096, one, where)
    ok(driver.cuMemFreeAsync(address, one))
    assert driver.cuStreamQuery(one)[0] == RESULT.CUDA_SUCCESS
    late = allocate(4096, other, where)
    assert late != address
    ok(driver.cuStreamSynchronize(one))
    assert allocate(4096, other, where) == address


@simulated_only("there a pool of 2 MiB has room for more")
def test_a_pool_that_cannot_grow_waits_for_what_is_on_its_way_back() -> None:
    where = pool(max_size=2 * MIB)
    one, other = stream(), stream()
    address = allocate(2 * MIB, one, where)
    expect(RESULT.CUDA_ERROR_OUT_OF_MEMORY, driver.cuMemAllocFromPoolAsync(1, where, other))
    ok(driver.cuMemFreeAsync(address, one))
    assert allocate(1 * MIB, other, where) == address


@simulated_only("there a pool of 2 MiB has room for more")
def test_a_pool_that_may_not_wait_is_out_of_memory() -> None:
    where = pool(max_size=2 * MIB)
    put(where, "REUSE_ALLOW_INTERNAL_DEPENDENCIES", 0)
    one, other = stream(), stream()
    ok(driver.cuMemFreeAsync(allocate(2 * MIB, one, where), one))
    expect(RESULT.CUDA_ERROR_OUT_OF_MEMORY, driver.cuMemAllocFromPoolAsync(1 * MIB, where, other))
    allocate(1 * MIB, one, where)


def test_memory_goes_back_to_the_device_at_a_synchronisation(node: sim.Node) -> None:
    before = node.memory_used(0)
    ok(driver.cuMemFreeAsync(allocate(1000), 0))
    assert node.memory_used(0) == before + CHUNK
    ok(driver.cuStreamSynchronize(0))
    assert node.memory_used(0) == before


def test_a_release_threshold_keeps_memory_until_the_pool_is_trimmed(node: sim.Node) -> None:
    default = ok(driver.cuDeviceGetDefaultMemPool(0))
    put(default, "RELEASE_THRESHOLD", CHUNK)
    assert ask(default, "RELEASE_THRESHOLD") == CHUNK
    ok(driver.cuMemFreeAsync(allocate(1000), 0))
    ok(driver.cuCtxSynchronize())
    assert ask(default, "RESERVED_MEM_CURRENT") == CHUNK
    assert ask(default, "USED_MEM_CURRENT") == 0
    ok(driver.cuMemPoolTrimTo(default, CHUNK))
    assert node.memory_used(0) == CHUNK
    ok(driver.cuMemPoolTrimTo(default, 0))
    assert node.memory_used(0) == 0


def test_trimming_leaves_what_is_in_use() -> None:
    address = allocate(1000)
    default = ok(driver.cuDeviceGetDefaultMemPool(0))
    ok(driver.cuMemPoolTrimTo(default, 0))
    assert ask(default, "RESERVED_MEM_CURRENT") == CHUNK
    ok(driver.cuMemsetD8(address, 1, 1000))


def test_marks_of_what_was_used_at_most_can_be_reset_to_zero_only() -> None:
    default = ok(driver.cuDeviceGetDefaultMemPool(0))
    addresses = [allocate(MIB) for _ in range(3)]
    for address in addresses[1:]:
        ok(driver.cuMemFreeAsync(address, 0))
    ok(driver.cuStreamSynchronize(0))
    assert (ask(default, "USED_MEM_CURRENT"), ask(default, "USED_MEM_HIGH")) == (MIB, 3 * MIB)
    high = ATTRIBUTE.CU_MEMPOOL_ATTR_USED_MEM_HIGH
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemPoolSetAttribute(default, high, driver.cuuint64_t(1)))
    put(default, "USED_MEM_HIGH", 0)
    assert ask(default, "USED_MEM_HIGH") == MIB
    current = ATTRIBUTE.CU_MEMPOOL_ATTR_USED_MEM_CURRENT
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemPoolSetAttribute(default, current, driver.cuuint64_t(0)))


def test_attributes_that_came_with_cuda_13_1(make_node: Callable[[sim.Machine], sim.Node]) -> None:
    where = pool()
    attribute = ATTRIBUTE.CU_MEMPOOL_ATTR_LOCATION_ID
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemPoolGetAttribute(where, attribute))
    start(make_node(sim.machine("h200", devices=2, driver_version=13010)).create_process(0))
    assert ask(pool(device=1), "LOCATION_ID") == 1


def test_a_device_has_a_default_pool_and_a_current_one() -> None:
    default = ok(driver.cuDeviceGetDefaultMemPool(0))
    assert int(ok(driver.cuDeviceGetMemPool(0))) == int(default)
    mine = pool()
    ok(driver.cuDeviceSetMemPool(0, mine))
    assert int(ok(driver.cuDeviceGetMemPool(0))) == int(mine)
    address = allocate(1000)
    handle = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE
    assert int(ok(driver.cuPointerGetAttribute(handle, address))) == int(mine)
    ok(driver.cuMemPoolDestroy(mine))
    assert int(ok(driver.cuDeviceGetMemPool(0))) == int(default)
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemPoolDestroy(default))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuDeviceSetMemPool(1, default))


def test_the_pool_of_a_location_is_the_pool_of_the_device() -> None:
    pinned = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    default = ok(driver.cuDeviceGetDefaultMemPool(1))
    assert int(ok(driver.cuMemGetDefaultMemPool(location(1), pinned))) == int(default)
    mine = pool(device=1)
    ok(driver.cuMemSetMemPool(location(1), pinned, mine))
    assert int(ok(driver.cuMemGetMemPool(location(1), pinned))) == int(mine)
    assert int(ok(driver.cuDeviceGetMemPool(1))) == int(mine)


def test_a_destroyed_pool_goes_with_its_last_allocation(node: sim.Node) -> None:
    where = pool()
    address = allocate(1000, 0, where)
    ok(driver.cuMemPoolDestroy(where))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemPoolTrimTo(where, 0))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemAllocFromPoolAsync(1000, where, 0))
    node.check_invariants()
    ok(driver.cuMemsetD8(address, 3, 1000))
    ok(driver.cuMemFreeAsync(address, 0))
    assert node.memory_used(0) == CHUNK
    ok(driver.cuStreamSynchronize(0))
    assert node.memory_used(0) == 0


def test_cufree_takes_memory_of_a_pool() -> None:
    address = allocate(1000)
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemFree(address + 512))
    ok(driver.cuMemFree(address))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemFree(address))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemFreeAsync(address, 0))


def test_cufree_of_memory_of_a_pool_does_not_wait_for_work_that_uses_it(node: sim.Node) -> None:
    """[CUDA programming guide] The driver takes it that every access is over."""
    address = allocate(1000)
    ok(driver.cuMemsetD8Async(address, 1, 1000, 0))
    ok(driver.cuMemFree(address))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuStreamSynchronize(0))
    node.check_invariants()


@pytest.mark.parametrize("after_the_stream", [False, True])
def test_memory_that_was_freed_is_found_to_be(node: sim.Node, after_the_stream: bool) -> None:
    where = stream()
    address = allocate(1000, where)
    ok(driver.cuMemFreeAsync(address, where))
    if after_the_stream:
        ok(driver.cuStreamSynchronize(where))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemFreeAsync(address, where))
    attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_BUFFER_ID
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuPointerGetAttribute(attribute, address))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemsetD8Async(address, 1, 1000, where))
    assert [entry.kind for entry in node.ledger()] == ["stream", "context"]


def test_the_use_of_memory_on_its_way_back_is_reported(node: sim.Node) -> None:
    address = allocate(1000)
    ok(driver.cuMemFreeAsync(address, 0))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemsetD8Async(address, 1, 1000, 0))
    assert [incident["kind"] for incident in node.incidents()] == ["use_after_free"]


def test_rights_of_a_pool_are_those_of_its_memory() -> None:
    where = pool(device=1)
    address = allocate(1000, 0, where)
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemsetD8(address, 1, 1000))
    description = driver.CUmemAccessDesc()
    description.location = location(0)
    description.flags = READ_WRITE
    assert int(ok(driver.cuMemPoolGetAccess(where, location(0)))) == 0
    ok(driver.cuMemPoolSetAccess(where, [description], 1))
    assert int(ok(driver.cuMemPoolGetAccess(where, location(0)))) == int(READ_WRITE)
    for reached in (address, allocate(1000, 0, where)):
        ok(driver.cuMemsetD8(reached, 1, 1000))
    description.location = location(1)
    description.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_NONE
    expect(RESULT.CUDA_ERROR_INVALID_DEVICE, driver.cuMemPoolSetAccess(where, [description], 1))


def test_pools_that_cannot_be_made() -> None:
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemPoolCreate(properties(device=9)))
    wanted = properties()
    wanted.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_INVALID
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemPoolCreate(wanted))


def test_a_pool_may_have_fabric_handles_and_its_export_is_not_permitted() -> None:
    where = ok(driver.cuMemPoolCreate(properties(handle_types=FABRIC)))
    ok(driver.cuMemsetD8(allocate(64, 0, where), 1, 64))
    expect(RESULT.CUDA_ERROR_NOT_PERMITTED, driver.cuMemPoolExportToShareableHandle(where, FABRIC, 0))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemPoolExportToShareableHandle(where, POSIX, 0))


def test_the_default_stream_needs_a_context_and_another_stream_does_not() -> None:
    where = stream()
    ok(driver.cuCtxPopCurrent())
    expect(RESULT.CUDA_ERROR_INVALID_CONTEXT, driver.cuMemAllocAsync(1000, 0))
    ok(driver.cuMemFreeAsync(allocate(1000, where), where))


def test_allocate_nothing_and_more_than_there_is() -> None:
    assert int(ok(driver.cuMemAllocAsync(0, 0))) == 0
    ok(driver.cuMemFreeAsync(0, 0))
    expect(RESULT.CUDA_ERROR_OUT_OF_MEMORY, driver.cuMemAllocAsync(256 << 30, 0))


def test_a_device_too_small_for_a_chunk(make_node: Callable[[sim.Machine], sim.Node]) -> None:
    node = make_node(sim.machine("tiny", devices=1))
    start(node.create_process(0))
    ok(driver.cuMemAlloc(4 * MIB))
    address = allocate(60 * MIB)
    assert node.memory_used(0) == 64 * MIB
    ok(driver.cuMemFreeAsync(address, 0))
    assert allocate(50 * MIB) == address


def test_addresses_that_are_never_used_again(node: sim.Node) -> None:
    start(node.create_process(1, sim.Placement(rule="never_reuse")))
    seen = set()
    for _ in range(3):
        address = allocate(4096)
        seen.add(address)
        ok(driver.cuMemFreeAsync(address, 0))
    assert len(seen) == 3


def test_the_end_of_a_context_ends_what_was_made_in_it(node: sim.Node, process: sim.Process) -> None:
    where = pool()
    allocate(1000, 0, where)
    allocate(1000)
    kinds = [entry.kind for entry in node.ledger()]
    assert kinds == ["plain", "plain", "context", "pool"]
    ok(driver.cuDevicePrimaryCtxReset(0))
    assert node.memory_used(0) == 0
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemPoolDestroy(where))
    node.check_invariants()
    process.close()
    assert node.ledger() == []


def test_a_broken_context_gives_its_memory_back(node: sim.Node) -> None:
    address, other = allocate(1000), allocate(1000)
    ok(driver.cuMemsetD8Async(address, 1, 1000, 0))
    ok(driver.cuMemFree(address))  # before the fill: the context breaks
    ok(driver.cuMemFreeAsync(other, 0))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuCtxSynchronize())
    assert node.memory_used(0) == 0


def test_faults_reach_calls_of_pools(process: sim.Process) -> None:
    process.fault("cuMemAllocAsync", 1, int(RESULT.CUDA_ERROR_OUT_OF_MEMORY))
    allocate(1000)
    expect(RESULT.CUDA_ERROR_OUT_OF_MEMORY, driver.cuMemAllocAsync(1000, 0))
    allocate(1000)


def exported(where: Any) -> int:
    return int(ok(driver.cuMemPoolExportToShareableHandle(where, POSIX, 0)))


def test_memory_of_a_pool_between_processes(node: sim.Node, process: sim.Process) -> None:
    where = pool(handle_types=POSIX)
    descriptor = exported(where)
    address = allocate(1000, 0, where)
    ok(driver.cuMemsetD8(address, 7, 1000))
    shared = ok(driver.cuMemPoolExportPointer(address))
    importer = start(node.create_process(1))
    imported = ok(driver.cuMemPoolImportFromShareableHandle(descriptor, POSIX, 0))
    os.close(descriptor)
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemAllocFromPoolAsync(1000, imported, 0))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuDeviceSetMemPool(0, imported))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemPoolExportToShareableHandle(imported, POSIX, 0))
    here = int(ok(driver.cuMemPoolImportPointer(imported, shared)))
    assert read(here, 1000) == b"\7" * 1000
    assert importer.resolve(here, 1)[0].allocation == process.resolve(address, 1)[0].allocation
    assert sorted(entry.kind for entry in node.ledger() if entry.rank == 1) == ["context", "imported", "pool"]
    node.check_invariants()
    ok(driver.cuMemFreeAsync(here, 0))
    ok(driver.cuStreamSynchronize(0))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemFree(here))
    ok(driver.cuMemPoolDestroy(imported))
    process.bind()
    ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(0))))
    ok(driver.cuMemFreeAsync(address, 0))
    assert node.incidents() == []


def test_freeing_exported_memory_before_the_importer_is_reported(node: sim.Node, process: sim.Process) -> None:
    where = pool(handle_types=POSIX)
    descriptor = exported(where)
    address = allocate(1000, 0, where)
    shared = ok(driver.cuMemPoolExportPointer(address))
    start(node.create_process(1))
    imported = ok(driver.cuMemPoolImportFromShareableHandle(descriptor, POSIX, 0))
    os.close(descriptor)
    here = int(ok(driver.cuMemPoolImportPointer(imported, shared)))
    process.bind()
    ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(0))))
    ok(driver.cuMemFree(address))
    assert [(incident["kind"], incident["rank"]) for incident in node.incidents()] == [("freed_while_open", 0)]
    process.close()
    node.check_invariants()
    assert node.memory_used(0) == CHUNK  # the importer still holds it
    node_process = [entry.rank for entry in node.ledger() if entry.kind == "imported"]
    assert (node_process, here > 0) == ([1], True)


def test_what_cannot_be_exported_or_imported() -> None:
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemPoolExportToShareableHandle(pool(), POSIX, 0))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemPoolExportPointer(allocate(1000)))
    reading, writing = os.pipe()
    expect(RESULT.CUDA_ERROR_UNKNOWN, driver.cuMemPoolImportFromShareableHandle(reading, POSIX, 0))
    os.close(reading)
    os.close(writing)
    where = pool(handle_types=POSIX)
    descriptor = exported(where)
    expect(RESULT.CUDA_ERROR_NOT_SUPPORTED, driver.cuMemImportFromShareableHandle(descriptor, POSIX))
    imported = ok(driver.cuMemPoolImportFromShareableHandle(descriptor, POSIX, 0))
    os.close(descriptor)
    elsewhere = pool(handle_types=POSIX)
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemPoolExportPointer(allocate(1000, 0, elsewhere)))
    os.close(exported(elsewhere))
    other = ok(driver.cuMemPoolExportPointer(allocate(1000, 0, elsewhere)))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemPoolImportPointer(imported, other))
    address = allocate(1000, 0, where)
    shared = ok(driver.cuMemPoolExportPointer(address))
    ok(driver.cuMemFree(address))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemPoolImportPointer(imported, shared))
