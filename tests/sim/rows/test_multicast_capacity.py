"""What the multicast capacity of a machine is charged with, and when. All of it is assumed: switches of the machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from allranks import sim
from allranks.sim import GIB, MIB
from tests.sim.rows.conftest import start
from tests.sim.rows.driver_client import GRANULE, RESULT, create, driver, expect, ok
from tests.sim.rows.multicast_client import bind, create_object, create_team, object_properties

MakeNode = Callable[[sim.Machine], sim.Node]
CHARGES = ("create", "add_device", "bind")


def node_with(make_node: MakeNode, **changes: Any) -> sim.Node:
    node = make_node(sim.machine("h100", devices=2, **changes))
    start(node.create_process(0))
    return node


def round_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def open_until_refused(size: int) -> int:
    """Open objects that are never released; give the number, from 1, of the first that does not fit."""
    for number in range(1, 1 << 20):
        code, *_ = driver.cuMulticastCreate(object_properties(size))
        if code != RESULT.CUDA_SUCCESS:
            assert code == RESULT.CUDA_ERROR_OUT_OF_MEMORY
            return number
    raise AssertionError("no capacity is that large")


@pytest.mark.parametrize("size", [1 * GIB, 96 * MIB, 2 * MIB + 512 * MIB])
@pytest.mark.parametrize("capacity", [124 * GIB, 4 * GIB + 2 * MIB, 3 * GIB])
@pytest.mark.parametrize("rounding", [2 * MIB, 512 * MIB])
def test_objects_that_are_never_released_run_out(make_node: MakeNode, capacity: int, size: int, rounding: int) -> None:
    node_with(make_node, multicast_capacity_bytes=capacity, multicast_charge_rounding_bytes=rounding)
    assert open_until_refused(size) == capacity // round_up(size, rounding) + 1


def test_one_gib_runs_out_between_round_120_and_130_on_h100(make_node: MakeNode) -> None:
    """As reported in microsoft/mscclpp#759."""
    node_with(make_node)
    assert 120 <= open_until_refused(GIB) <= 130


def test_h200_holds_an_object_of_a_whole_device(make_node: MakeNode) -> None:
    node = make_node(sim.machine("h200", devices=2))
    start(node.create_process(0))
    create_team(node.machine.memory_bytes // GRANULE * GRANULE)


def test_release_gives_the_capacity_back(make_node: MakeNode) -> None:
    node = node_with(make_node, multicast_capacity_bytes=GIB)
    for _ in range(3):
        team = create_team(GIB)
        expect(RESULT.CUDA_ERROR_OUT_OF_MEMORY, driver.cuMulticastCreate(object_properties(GIB)))
        ok(driver.cuMemRelease(team))
        assert (node.multicast_used(0), node.multicast_used(1)) == (0, 0)


@pytest.mark.parametrize(
    ("charge", "expected"),
    [
        # Used on devices 0 and 1 after: create, adding device 0, adding device 1, binding one granule of device 0.
        ("create", [(4, 4), (4, 4), (4, 4), (4, 4)]),
        ("add_device", [(0, 0), (4, 0), (4, 4), (4, 4)]),
        ("bind", [(0, 0), (0, 0), (0, 0), (1, 0)]),
    ],
)
def test_when_an_object_is_charged(make_node: MakeNode, charge: str, expected: list[tuple[int, int]]) -> None:
    node = node_with(make_node, multicast_charge=charge)
    team = create_object(4 * GRANULE)
    seen = [node.multicast_used(0), node.multicast_used(1)]
    for device in (0, 1):
        ok(driver.cuMulticastAddDevice(team, device))
        seen += [node.multicast_used(0), node.multicast_used(1)]
    memory = create()
    ok(bind(team, 0, memory))
    seen += [node.multicast_used(0), node.multicast_used(1)]
    assert seen == [granules * GRANULE for pair in expected for granules in pair]
    ok(driver.cuMulticastUnbind(team, 0, 0, GRANULE))
    ok(driver.cuMemRelease(team))
    assert (node.multicast_used(0), node.multicast_used(1)) == (0, 0)


@pytest.mark.parametrize("charge", CHARGES)
def test_which_call_runs_out(make_node: MakeNode, charge: str) -> None:
    """The call that is charged, and only that, answers OUT_OF_MEMORY; what it was about is as before."""
    node_with(make_node, multicast_charge=charge, multicast_capacity_bytes=4 * GRANULE)
    full = create_team(4 * GRANULE)
    for device in (0, 1):
        ok(bind(full, 0, create(4 * GRANULE, device), 4 * GRANULE))
    code, team = driver.cuMulticastCreate(object_properties())
    if charge == "create":
        assert code == RESULT.CUDA_ERROR_OUT_OF_MEMORY
        return
    if charge == "add_device":
        expect(RESULT.CUDA_ERROR_OUT_OF_MEMORY, driver.cuMulticastAddDevice(team, 0))
        ok(driver.cuMemRelease(full))
        ok(driver.cuMulticastAddDevice(team, 0))
        return
    for device in (0, 1):
        ok(driver.cuMulticastAddDevice(team, device))
    memory = create()
    expect(RESULT.CUDA_ERROR_OUT_OF_MEMORY, bind(team, 0, memory))
    ok(driver.cuMulticastUnbind(full, 0, 0, 4 * GRANULE))
    ok(bind(team, 0, memory))


@pytest.mark.parametrize("on_free", ["keeps_memory", "unbind_reports_error"])
def test_memory_freed_before_unbind(make_node: MakeNode, on_free: str) -> None:
    node = node_with(make_node, binding_on_free=on_free)
    team, memory = create_team(), create()
    ok(bind(team, 0, memory))
    ok(driver.cuMemRelease(memory))
    assert node.memory_used(0) == GRANULE
    result = driver.cuMulticastUnbind(team, 0, 0, GRANULE)
    expect(RESULT.CUDA_SUCCESS if on_free == "keeps_memory" else RESULT.CUDA_ERROR_INVALID_VALUE, result)
    assert node.memory_used(0) == 0
    assert [(incident["kind"], incident["assumption"]) for incident in node.incidents()] == [
        ("freed_while_bound", "binding_on_free")
    ]


@pytest.mark.parametrize("on_free", ["keeps_memory", "unbind_reports_error"])
def test_memory_still_held_at_unbind(make_node: MakeNode, on_free: str) -> None:
    node = node_with(make_node, binding_on_free=on_free)
    team, memory = create_team(), create()
    ok(bind(team, 0, memory))
    ok(driver.cuMulticastUnbind(team, 0, 0, GRANULE))
    ok(driver.cuMemRelease(memory))
    assert (node.memory_used(0), node.incidents()) == (0, [])
