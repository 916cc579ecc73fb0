"""What goes through a multicast address, and what stays of it. No hardware: see docs/multicast.md for sources.

Loads that reduce are device code's, and are tested with the kernels that use them.
"""

from __future__ import annotations

import os

import pytest

from allranks import sim
from tests.sim.rows.conftest import start
from tests.sim.rows.driver_client import (
    GRANULE,
    POSIX,
    RESULT,
    access,
    buffer_id,
    create,
    driver,
    expect,
    mapped,
    ok,
    read,
    reserve,
    write,
)
from tests.sim.rows.multicast_client import bind, bound_memory, contents, create_team

pytestmark = pytest.mark.usefixtures("process")


def kinds(node: sim.Node) -> list[str]:
    return [incident["kind"] for incident in node.incidents()]


def test_a_store_reaches_every_device_and_no_other_byte() -> None:
    team = create_team()
    buffers = bound_memory(team)
    window = mapped(team)
    write(window + 100, b"everyone")
    assert contents(buffers, 10, 99) == [b"\0everyone\0"] * 2


def test_memset_and_device_copy_reach_every_device() -> None:
    team = create_team()
    buffers = bound_memory(team)
    window = mapped(team)
    ok(driver.cuMemsetD32(window, 0x04030201, 2))
    assert contents(buffers, 9) == [b"\1\2\3\4\1\2\3\4\0"] * 2
    write(buffers[0] + 64, b"source")
    ok(driver.cuMemcpyDtoD(window + 32, buffers[0] + 64, 6))
    assert contents(buffers, 6, 32) == [b"source"] * 2


def test_each_buffer_is_written_at_its_own_offset() -> None:
    """What microsoft/mscclpp#535 is about: a second buffer does not alias the first."""
    team = create_team(4 * GRANULE)
    first = bound_memory(team, 0)
    second = bound_memory(team, GRANULE, 2 * GRANULE)
    window = mapped(team, 4 * GRANULE)
    write(window, b"one")
    write(window + GRANULE, b"two")
    assert contents(first, 3) == [b"one"] * 2
    assert contents(second, 3) == [b"two"] * 2


def test_devices_may_bind_different_places_of_their_memory() -> None:
    team = create_team()
    buffers = []
    for device in (0, 1):
        memory = create(3 * GRANULE, device)
        ok(bind(team, 0, memory, GRANULE, memory_offset=(1 + device) * GRANULE))
        buffers.append(mapped(memory, 3 * GRANULE, 0))
    write(mapped(team) + 7, b"here")
    assert [read(buffer + (1 + device) * GRANULE + 7, 4) for device, buffer in enumerate(buffers)] == [b"here"] * 2


def test_a_store_across_two_bindings() -> None:
    team = create_team(2 * GRANULE)
    low, high = bound_memory(team, 0), bound_memory(team, GRANULE)
    write(mapped(team, 2 * GRANULE) + GRANULE - 2, b"abcd")
    assert contents(low, 2, GRANULE - 2) == [b"ab"] * 2
    assert contents(high, 2) == [b"cd"] * 2


def test_memory_bound_by_address_is_reached_like_memory_bound_by_handle() -> None:
    team = create_team()
    buffers = [mapped(create(2 * GRANULE, device), 2 * GRANULE, 0, 1) for device in (0, 1)]
    for buffer in buffers:
        ok(driver.cuMulticastBindAddr(team, 0, buffer + GRANULE, GRANULE, 0))
    write(mapped(team), b"by address")
    assert contents(buffers, 10, GRANULE) == [b"by address"] * 2


def test_a_plain_read_is_undefined_and_reported(node: sim.Node) -> None:
    team = create_team()
    for buffer in bound_memory(team):
        write(buffer, b"\1" * 8)
    assert read(mapped(team), 8) == b"\xa5" * 8
    assert kinds(node) == ["multicast_read"]


def test_a_store_where_one_device_has_nothing_bound(node: sim.Node, process: sim.Process) -> None:
    team = create_team()
    (buffer,) = bound_memory(team, devices=[0])
    window = mapped(team)
    expect(RESULT.CUDA_ERROR_ILLEGAL_ADDRESS, driver.cuMemsetD8(window, 1, 8))
    assert kinds(node) == ["multicast_unbound"]
    assert process.peek(buffer, 8) == b"\0" * 8
    expect(RESULT.CUDA_ERROR_ILLEGAL_ADDRESS, driver.cuCtxSynchronize())
    start(node.create_process(1))  # the error is the context's: another process is untouched
    ok(driver.cuCtxSynchronize())


def test_a_store_after_unbind_is_reported(node: sim.Node) -> None:
    team = create_team()
    bound_memory(team)
    window = mapped(team)
    ok(driver.cuMulticastUnbind(team, 1, 0, GRANULE))
    expect(RESULT.CUDA_ERROR_ILLEGAL_ADDRESS, driver.cuMemsetD8(window, 1, 8))
    assert kinds(node) == ["multicast_unbound"]


def test_access_through_the_object_needs_set_access() -> None:
    team = create_team()
    buffers = bound_memory(team)
    window = reserve()
    ok(driver.cuMemMap(window, GRANULE, 0, team, 0))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemsetD8(window, 1, 8))
    ok(access(window, GRANULE, 0))
    ok(driver.cuMemsetD8(window, 1, 8))
    assert contents(buffers, 8) == [b"\1" * 8] * 2


def test_resolve_names_every_device_and_the_holes(process: sim.Process) -> None:
    team = create_team(2 * GRANULE)
    bound_memory(team, 0)
    bound_memory(team, GRANULE, devices=[0])
    pieces = process.resolve(mapped(team, 2 * GRANULE), 2 * GRANULE)
    assert [(piece.from_bytes, piece.device) for piece in pieces] == [(0, 0), (0, 1), (GRANULE, -1)]
    assert all(piece.through_multicast for piece in pieces)


def test_a_mapping_keeps_a_released_object_and_its_bindings(node: sim.Node) -> None:
    team = create_team()
    buffers = bound_memory(team)
    window = mapped(team)
    ok(driver.cuMemRelease(team))
    write(window, b"alive")
    assert contents(buffers, 5) == [b"alive"] * 2
    assert node.multicast_used(0) > 0
    ok(driver.cuMemUnmap(window, GRANULE))
    assert node.multicast_used(0) == 0


def test_a_binding_keeps_the_memory_of_a_released_handle(node: sim.Node) -> None:
    team = create_team()
    for device in (0, 1):
        memory = create(GRANULE, device)
        ok(bind(team, 0, memory))
        ok(driver.cuMemRelease(memory))
    assert (node.memory_used(0), node.memory_used(1)) == (GRANULE, GRANULE)
    ok(driver.cuMemRelease(team))
    assert (node.memory_used(0), node.memory_used(1)) == (0, 0)


def test_two_mappings_of_one_object_have_buffer_ids_of_their_own() -> None:
    team = create_team()
    assert buffer_id(mapped(team)) != buffer_id(mapped(team))


def test_two_processes_share_an_object(node: sim.Node) -> None:
    """Rank 0 creates and exports, both bind, and a store of either reaches both."""
    team = create_team(handle_types=POSIX)
    descriptor = int(ok(driver.cuMemExportToShareableHandle(team, POSIX, 0)))
    (own,) = bound_memory(team, devices=[0])
    peer = start(node.create_process(1), device=1)
    imported = ok(driver.cuMemImportFromShareableHandle(descriptor, POSIX))
    os.close(descriptor)
    (other,) = bound_memory(imported, devices=[1])
    write(mapped(imported, GRANULE, 1), b"both")
    assert read(other, 4) == b"both"
    assert peer.peek(other, 4) == b"both"
    assert own != 0
