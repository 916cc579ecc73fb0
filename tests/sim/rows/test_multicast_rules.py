"""Which calls on multicast objects are refused, and with which code. No hardware: see docs/multicast.md for sources."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from allranks import sim
from tests.sim.rows.conftest import start
from tests.sim.rows.driver_client import (
    FABRIC,
    GRANULE,
    MIB,
    NO_HANDLE,
    POSIX,
    RESULT,
    create,
    driver,
    expect,
    mapped,
    ok,
    reserve,
)
from tests.sim.rows.multicast_client import bind, create_object, create_team, object_properties

pytestmark = pytest.mark.usefixtures("process")
INVALID = RESULT.CUDA_ERROR_INVALID_VALUE
MakeNode = Callable[[sim.Machine], sim.Node]


def test_a_whole_life_leaves_nothing(node: sim.Node) -> None:
    team = create_team(2 * GRANULE)
    memory = create(2 * GRANULE)
    ok(bind(team, 0, memory, 2 * GRANULE))
    address = mapped(team, 2 * GRANULE)
    ok(driver.cuMemUnmap(address, 2 * GRANULE))
    ok(driver.cuMemAddressFree(address, 2 * GRANULE))
    ok(driver.cuMulticastUnbind(team, 0, 0, 2 * GRANULE))
    ok(driver.cuMemRelease(memory))
    ok(driver.cuMemRelease(team))
    assert [entry.kind for entry in node.ledger()] == ["context"]
    assert (node.multicast_used(0), node.memory_used(0), node.incidents()) == (0, 0, [])


@pytest.mark.parametrize("size", [0, MIB, GRANULE + 4096])
def test_create_off_the_granularity(size: int) -> None:
    expect(INVALID, driver.cuMulticastCreate(object_properties(size)))


@pytest.mark.parametrize("device_count", [0, 3])
def test_create_for_fewer_than_one_or_more_than_all_devices(device_count: int) -> None:
    expect(INVALID, driver.cuMulticastCreate(object_properties(device_count=device_count)))


def test_create_with_flags() -> None:
    expect(INVALID, driver.cuMulticastCreate(object_properties(flags=1)))


def test_create_of_a_fabric_handle_is_not_permitted() -> None:
    expect(RESULT.CUDA_ERROR_NOT_PERMITTED, driver.cuMulticastCreate(object_properties(handle_types=FABRIC)))


def test_where_multicast_is_not_supported(make_node: MakeNode) -> None:
    node = make_node(sim.machine("no-multicast", devices=2))
    start(node.create_process(0))
    attribute = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED
    assert ok(driver.cuDeviceGetAttribute(attribute, 0)) == 0
    expect(RESULT.CUDA_ERROR_NOT_SUPPORTED, driver.cuMulticastCreate(object_properties()))


@pytest.mark.parametrize(("name", "least", "recommended"), [("h100", 2, 2), ("h100-512m", 2, 512), ("h100", 4, 8)])
def test_granularities_are_those_of_the_machine(make_node: MakeNode, name: str, least: int, recommended: int) -> None:
    of_multicast = {
        "multicast_granularity_minimum_bytes": least * MIB,
        "multicast_granularity_recommended_bytes": recommended * MIB,
    }
    node = make_node(sim.machine(name, devices=2, **({} if least == 2 else of_multicast)))
    start(node.create_process(0))
    flags = driver.CUmulticastGranularity_flags
    minimum, best = (
        ok(driver.cuMulticastGetGranularity(object_properties(), flag))
        for flag in (flags.CU_MULTICAST_GRANULARITY_MINIMUM, flags.CU_MULTICAST_GRANULARITY_RECOMMENDED)
    )
    assert (minimum, best) == (least * MIB, recommended * MIB)


def test_add_a_device_that_is_not_there() -> None:
    expect(RESULT.CUDA_ERROR_INVALID_DEVICE, driver.cuMulticastAddDevice(create_object(), 2))


def test_add_a_device_twice() -> None:
    team = create_object()
    ok(driver.cuMulticastAddDevice(team, 0))
    expect(INVALID, driver.cuMulticastAddDevice(team, 0))


def test_add_a_device_to_a_complete_team() -> None:
    expect(INVALID, driver.cuMulticastAddDevice(create_team(devices=[0]), 1))


def test_add_a_device_to_what_is_no_team() -> None:
    expect(INVALID, driver.cuMulticastAddDevice(create(), 0))


def test_bind_outside_of_the_object() -> None:
    team, memory = create_team(2 * GRANULE), create(2 * GRANULE)
    expect(INVALID, bind(team, 2 * GRANULE, memory))
    expect(INVALID, bind(team, GRANULE, memory, 2 * GRANULE))


def test_bind_outside_of_the_memory() -> None:
    team, memory = create_team(2 * GRANULE), create(GRANULE)
    expect(INVALID, bind(team, 0, memory, 2 * GRANULE))
    expect(INVALID, bind(team, 0, memory, GRANULE, memory_offset=GRANULE))


def test_bind_off_the_granularity() -> None:
    team, memory = create_team(4 * GRANULE), create(4 * GRANULE)
    expect(INVALID, bind(team, 4096, memory))
    expect(INVALID, bind(team, 0, memory, GRANULE + 4096))
    expect(INVALID, bind(team, 0, memory, 0))
    expect(INVALID, bind(team, 0, memory, GRANULE, memory_offset=4096))


def test_bind_a_part_of_an_allocation() -> None:
    """Unlike `cuMemMap`, which takes whole allocations only."""
    ok(bind(create_team(4 * GRANULE), 3 * GRANULE, create(4 * GRANULE), GRANULE, memory_offset=2 * GRANULE))


@pytest.mark.parametrize("offset", [0, GRANULE, 2 * GRANULE])
def test_bindings_of_one_device_do_not_overlap(offset: int) -> None:
    team = create_team(4 * GRANULE)
    ok(bind(team, GRANULE, create(2 * GRANULE), 2 * GRANULE))
    expect(INVALID, bind(team, offset, create(2 * GRANULE), 2 * GRANULE))


def test_bindings_side_by_side_and_of_other_devices() -> None:
    team = create_team(4 * GRANULE)
    ok(bind(team, GRANULE, create()))
    ok(bind(team, 0, create()))
    ok(bind(team, 2 * GRANULE, create(2 * GRANULE), 2 * GRANULE))
    ok(bind(team, 0, create(4 * GRANULE, 1), 4 * GRANULE))


def test_bind_memory_of_a_device_outside_of_the_team() -> None:
    expect(INVALID, bind(create_team(devices=[0]), 0, create(device=1)))


def test_bind_plain_memory_by_its_address() -> None:
    """Memory of `cuMemAlloc` cannot be bound (NVIDIA/nccl#1584)."""
    address = int(ok(driver.cuMemAlloc(GRANULE)))
    expect(INVALID, driver.cuMulticastBindAddr(create_team(), 0, address, GRANULE, 0))


def test_bind_an_address_with_nothing_mapped() -> None:
    expect(INVALID, driver.cuMulticastBindAddr(create_team(), 0, reserve(), GRANULE, 0))


def test_bind_an_address_inside_a_mapping() -> None:
    address = mapped(create(4 * GRANULE), 4 * GRANULE)
    team = create_team(4 * GRANULE)
    ok(driver.cuMulticastBindAddr(team, 0, address + GRANULE, 2 * GRANULE, 0))
    expect(INVALID, driver.cuMulticastBindAddr(team, 2 * GRANULE, address + 4096, GRANULE, 0))


def test_bind_a_range_over_two_mappings() -> None:
    address = reserve(2 * GRANULE)
    for part in range(2):
        ok(driver.cuMemMap(address + part * GRANULE, GRANULE, 0, create(), 0))
    expect(INVALID, driver.cuMulticastBindAddr(create_team(2 * GRANULE), 0, address, 2 * GRANULE, 0))


def test_bind_memory_that_cannot_be_shared_to_an_object_that_can() -> None:
    expect(INVALID, bind(create_team(handle_types=POSIX), 0, create(handle_types=NO_HANDLE)))
    ok(bind(create_team(handle_types=NO_HANDLE), 0, create(handle_types=NO_HANDLE)))


def test_bind_what_is_no_memory() -> None:
    team = create_team()
    expect(INVALID, bind(team, 0, team))
    expect(INVALID, bind(create(), 0, create()))


def test_bind_with_flags() -> None:
    expect(INVALID, driver.cuMulticastBindMem(create_team(), 0, create(), 0, GRANULE, 1))


def test_unbind_takes_exactly_one_binding() -> None:
    team = create_team(4 * GRANULE)
    ok(bind(team, GRANULE, create(2 * GRANULE), 2 * GRANULE))
    expect(INVALID, driver.cuMulticastUnbind(team, 0, GRANULE, GRANULE))
    expect(INVALID, driver.cuMulticastUnbind(team, 0, 2 * GRANULE, GRANULE))
    expect(INVALID, driver.cuMulticastUnbind(team, 1, GRANULE, 2 * GRANULE))
    ok(driver.cuMulticastUnbind(team, 0, GRANULE, 2 * GRANULE))
    expect(INVALID, driver.cuMulticastUnbind(team, 0, GRANULE, 2 * GRANULE))


def test_unbind_of_a_device_outside_of_the_team() -> None:
    team = create_team(devices=[0])
    ok(bind(team, 0, create()))
    expect(INVALID, driver.cuMulticastUnbind(team, 1, 0, GRANULE))
    ok(driver.cuMulticastUnbind(team, 0, 0, GRANULE))


def test_map_any_prefix_and_no_offset() -> None:
    team = create_team(4 * GRANULE)
    for size in (GRANULE, 3 * GRANULE, 4 * GRANULE):
        mapped(team, size)
    expect(RESULT.CUDA_ERROR_NOT_SUPPORTED, driver.cuMemMap(reserve(), GRANULE, GRANULE, team, 0))
    expect(INVALID, driver.cuMemMap(reserve(5 * GRANULE), 5 * GRANULE, 0, team, 0))


def test_export_needs_the_handle_type() -> None:
    expect(INVALID, driver.cuMemExportToShareableHandle(create_team(), POSIX, 0))
    ok(driver.cuMemExportToShareableHandle(create_team(handle_types=POSIX), POSIX, 0))


def test_a_released_object_takes_nothing_more() -> None:
    team = create_team()
    ok(driver.cuMemRelease(team))
    expect(INVALID, bind(team, 0, create()))
    expect(INVALID, driver.cuMulticastUnbind(team, 0, 0, GRANULE))


def test_a_machine_with_a_coarser_multicast_granularity(make_node: MakeNode) -> None:
    """Sizes and offsets that suit plain memory do not suit the object: to create, to bind, to map."""
    node = make_node(
        sim.machine(
            "h200",
            devices=2,
            multicast_granularity_minimum_bytes=2 * GRANULE,
            multicast_granularity_recommended_bytes=2 * GRANULE,
        )
    )
    start(node.create_process(0))
    expect(INVALID, driver.cuMulticastCreate(object_properties(3 * GRANULE)))
    team, memory = create_team(4 * GRANULE), create(4 * GRANULE)
    expect(INVALID, bind(team, GRANULE, memory, 2 * GRANULE))
    expect(INVALID, bind(team, 0, memory, GRANULE))
    expect(INVALID, bind(team, 0, memory, 2 * GRANULE, memory_offset=GRANULE))
    ok(bind(team, 2 * GRANULE, memory, 2 * GRANULE))
    expect(INVALID, driver.cuMemMap(reserve(4 * GRANULE), GRANULE, 0, team, 0))
