"""Fixtures of the rows: a fresh simulated host a test, and the check that the client's driver is simulated.

The rows are for the child process of `tests/sim/test_driver_rows.py` alone: elsewhere a client could load a real one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from allranks import sim
from tests.sim.rows.driver_client import MARKER, driver, ok, require_simulated

if MARKER not in os.environ:
    raise pytest.UsageError("tests/sim/rows: run tests/sim/test_driver_rows.py, which starts these in a child process")


@pytest.fixture(scope="session", autouse=True)
def _simulated_driver() -> None:
    require_simulated(sim.library_path())


@pytest.fixture
def make_node() -> Iterator[Callable[[sim.Machine], sim.Node]]:
    """Give a maker of simulated hosts, whose books are checked at the end of the test."""
    nodes: list[sim.Node] = []

    def make(machine: sim.Machine) -> sim.Node:
        require_simulated(sim.library_path())
        nodes.append(sim.Node(machine))
        return nodes[-1]

    yield make
    sim.unbind()
    for node in nodes:
        node.check_invariants()
        node.close()


@pytest.fixture
def node(make_node: Callable[[sim.Machine], sim.Node]) -> sim.Node:
    """Give a host with two GPUs like those that the measured rows come from."""
    return make_node(sim.machine("h200", devices=2))


@pytest.fixture
def process(node: sim.Node) -> sim.Process:
    """Give a virtual process that this thread speaks for, with device 0's primary context current."""
    return start(node.create_process(0))


def start(process: sim.Process, device: int = 0) -> sim.Process:
    """Let this thread speak for the process, initialised, with the device's primary context current."""
    process.bind()
    ok(driver.cuInit(0))
    ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(device))))
    return process
