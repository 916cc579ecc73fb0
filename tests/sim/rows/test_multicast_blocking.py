"""Binding and mapping wait until every device of the team has been added. No hardware: see docs/multicast.md."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from allranks import sim
from tests.sim.rows.conftest import start
from tests.sim.rows.driver_client import GRANULE, POSIX, RESULT, create, driver, expect, in_threads, ok, reserve
from tests.sim.rows.multicast_client import bind, create_object

QUIET_LIMIT_S = 60.0


class Pair:
    """Two ranks, each a thread and a task of a run, that share a team of two devices by descriptor."""

    def __init__(self, node: sim.Node) -> None:
        self.node = node
        self.order: list[str] = []
        self._processes = [node.create_process(rank) for rank in range(2)]
        start(self._processes[0])
        team = create_object(handle_types=POSIX)
        self._descriptor = int(ok(driver.cuMemExportToShareableHandle(team, POSIX, 0)))
        ok(driver.cuMemRelease(team))

    def close(self) -> None:
        os.close(self._descriptor)

    def rank(self, rank: int, body: Callable[[Any], None]) -> Callable[[], None]:
        """Make the thread of a rank; `body` gets the rank's handle of the team."""

        def run() -> None:
            self._processes[rank].enter(rank)
            try:
                ok(driver.cuInit(0))
                ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(rank))))
                body(ok(driver.cuMemImportFromShareableHandle(self._descriptor, POSIX)))
            finally:
                sim.leave()

        return run

    def run(self, *bodies: Callable[[Any], None]) -> None:
        self.node.run_begin(len(bodies))
        in_threads(*(self.rank(rank, body) for rank, body in enumerate(bodies)))
        assert self.node.run_wait(QUIET_LIMIT_S)


def bind_handle(team: Any, device: int) -> Any:
    return bind(team, 0, create(device=device))


def bind_address(team: Any, device: int) -> Any:
    address, memory = reserve(), create(device=device)
    ok(driver.cuMemMap(address, GRANULE, 0, memory, 0))
    return driver.cuMulticastBindAddr(team, 0, address, GRANULE, 0)


def map_object(team: Any, _: int) -> Any:
    return driver.cuMemMap(reserve(), GRANULE, 0, team, 0)


@pytest.fixture
def pair(node: sim.Node) -> Any:
    pair = Pair(node)
    yield pair
    pair.close()


CALLS = pytest.mark.parametrize(
    ("call", "name"),
    [(bind_handle, "cuMulticastBindMem"), (bind_address, "cuMulticastBindAddr"), (map_object, "cuMemMap")],
    ids=["bind memory", "bind address", "map"],
)


@CALLS
def test_waits_until_the_other_adds_its_device(pair: Pair, call: Callable[[Any, int], Any], name: str) -> None:
    def early(team: Any) -> None:
        ok(driver.cuMulticastAddDevice(team, 0))
        pair.order.append("first is added")
        ok(call(team, 0))
        pair.order.append(f"{name} of the first returns")

    def late(team: Any) -> None:
        pair.order.append("second begins")
        ok(driver.cuMulticastAddDevice(team, 1))
        pair.order.append("second is added")

    pair.run(early, late)
    assert not pair.node.stalled
    assert pair.order.index("first is added") < pair.order.index("second begins")
    assert pair.order[-2:] in (
        ["second is added", f"{name} of the first returns"],
        [f"{name} of the first returns", "second is added"],
    )
    assert pair.order.index("second begins") < pair.order.index(f"{name} of the first returns")


@CALLS
def test_a_device_that_is_never_added(pair: Pair, call: Callable[[Any, int], Any], name: str) -> None:
    """The stall is known at once, names the call, and the call answers the code of a stall, as all later ones do."""

    def waiting(team: Any) -> None:
        sim.label(7, "open_multicast")
        ok(driver.cuMulticastAddDevice(team, 0))
        expect(RESULT.CUDA_ERROR_LAUNCH_TIMEOUT, call(team, 0))
        expect(RESULT.CUDA_ERROR_LAUNCH_TIMEOUT, driver.cuCtxSynchronize())

    def forgetful(team: Any) -> None:
        ok(driver.cuMemRelease(team))

    pair.run(waiting, forgetful)
    assert pair.node.stalled
    (moment,) = pair.node.run_report()["moments"]
    (wait,) = moment["waits"]
    assert (wait["rank"], wait["call"], wait["step"], wait["operation"]) == (0, name, 7, "open_multicast")
    assert wait["object"].startswith("multicast object")
    assert wait["waits_for"] == [1]
    (other,) = moment["others"]
    assert (other["rank"], other["state"]) == (1, "left")


@pytest.mark.usefixtures("process")
def test_a_thread_outside_of_a_run_waits_as_well(node: sim.Node, process: sim.Process) -> None:
    """Without a turnstile the call blocks for real; the thread that adds the device lets it go on."""
    team = create_object()
    ok(driver.cuMulticastAddDevice(team, 0))
    results: list[Any] = []

    def binding() -> None:
        process.bind()
        results.append(bind(team, 0, create()))
        sim.unbind()

    def adding() -> None:
        process.bind()
        results.append(driver.cuMulticastAddDevice(team, 1))
        sim.unbind()

    in_threads(binding, adding)
    assert sorted(result[0].name for result in results) == ["CUDA_SUCCESS"] * 2
    assert node.multicast_used(0) > 0
