"""Fixtures of the rows: a fresh simulated host a test, and the check that the client's driver is simulated.

The rows are for the child process of `tests/sim/test_driver_rows.py` alone: elsewhere a client could load a real one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from allranks import sim
from allranks.conformance.worlds.hardware import DISABLING
from tests.sim.rows import on_hardware
from tests.sim.rows.driver_client import MARKER, ON_HARDWARE, driver, ok, require_simulated

if MARKER not in os.environ:
    raise pytest.UsageError("tests/sim/rows: run tests/sim/test_driver_rows.py, which starts these in a child process")
if ON_HARDWARE:
    if (refused := on_hardware.refusal(os.environ, DISABLING)) is not None:
        raise pytest.UsageError(refused)
    collect_ignore_glob = list(on_hardware.FILES)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what needs a simulated host, where there is none."""
    if ON_HARDWARE:
        items[:] = [item for item in items if on_hardware.can_run(item)]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object | None:
    """Run a row on hardware in a process of its own."""
    if not ON_HARDWARE:
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    on_hardware.run_in_child(lambda: initialise(0), lambda: pyfuncitem.obj(**arguments))
    return True


@pytest.fixture(scope="session", autouse=True)
def _simulated_driver() -> None:
    if not ON_HARDWARE:
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
def process(request: pytest.FixtureRequest) -> sim.Process | None:
    """Give a virtual process that this thread speaks for, with device 0's primary context current.

    On hardware there is none; a row's own process is started there.
    """
    if ON_HARDWARE:
        return None
    node: sim.Node = request.getfixturevalue("node")
    return start(node.create_process(0))


def start(process: sim.Process, device: int = 0) -> sim.Process:
    """Let this thread speak for the process, initialised, with the device's primary context current."""
    process.bind()
    initialise(device)
    return process


def initialise(device: int) -> None:
    """Initialise the driver, and make a device's primary context current."""
    ok(driver.cuInit(0))
    ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(device))))
