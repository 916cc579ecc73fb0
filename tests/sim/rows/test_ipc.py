"""CUDA IPC between virtual processes of one node.

Measured on 2 x H200, driver 580 (CUDA 13.0): opening one's own handle is INVALID_CONTEXT, and VMM and stream-ordered
memory have no handle. The rest follows the text of `cuda.h`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from allranks import sim
from tests.sim.rows.conftest import start
from tests.sim.rows.driver_client import RESULT, address_range, create, driver, expect, mapped, ok, read, write

LAZY = driver.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS.value
SHARED = driver.CUevent_flags.CU_EVENT_INTERPROCESS.value | driver.CUevent_flags.CU_EVENT_DISABLE_TIMING.value


@pytest.fixture
def importer(node: sim.Node, process: sim.Process) -> sim.Process:
    """Give a second process; the first one speaks."""
    other = start(node.create_process(1))
    speak(process)
    return other


def speak(process: sim.Process, device: int = 0) -> None:
    """Let this thread speak for a process that has a context already."""
    process.bind()
    context = ok(driver.cuDevicePrimaryCtxRetain(device))
    ok(driver.cuDevicePrimaryCtxRelease(device))
    ok(driver.cuCtxSetCurrent(context))


def exported(size: int = 1000) -> tuple[int, Any]:
    address = int(ok(driver.cuMemAlloc(size)))
    return address, ok(driver.cuIpcGetMemHandle(address))


def opened(handle: Any) -> int:
    return int(ok(driver.cuIpcOpenMemHandle(handle, LAZY)))


def test_memory_is_shared_both_ways(node: sim.Node, process: sim.Process, importer: sim.Process) -> None:
    address, handle = exported()
    write(address, b"\1" * 1000)
    speak(importer)
    here = opened(handle)
    assert address_range(here) == (here, 1000)
    assert read(here, 1000) == b"\1" * 1000
    ok(driver.cuMemsetD8(here, 2, 1000))
    assert importer.resolve(here, 1)[0].allocation == process.resolve(address, 1)[0].allocation
    ok(driver.cuIpcCloseMemHandle(here))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemsetD8(here, 3, 1))
    speak(process)
    assert read(address, 1000) == b"\2" * 1000
    ok(driver.cuMemFree(address))
    assert (node.incidents(), node.memory_used(0)) == ([], 0)


def test_a_second_open_counts(node: sim.Node, importer: sim.Process) -> None:
    _, handle = exported()
    speak(importer)
    here = opened(handle)
    assert opened(handle) == here
    assert [entry.references for entry in node.ledger() if entry.kind == "imported"] == [2]
    ok(driver.cuIpcCloseMemHandle(here))
    ok(driver.cuMemsetD8(here, 2, 1000))
    ok(driver.cuIpcCloseMemHandle(here))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuIpcCloseMemHandle(here))


@pytest.mark.usefixtures("process")
def test_opening_ones_own() -> None:
    _, handle = exported()
    expect(RESULT.CUDA_ERROR_INVALID_CONTEXT, driver.cuIpcOpenMemHandle(handle, LAZY))


@pytest.mark.usefixtures("process")
def test_memory_that_has_no_handle() -> None:
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuIpcGetMemHandle(mapped(create())))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuIpcGetMemHandle(4096))


def test_handles_that_cannot_be_opened(process: sim.Process, importer: sim.Process) -> None:
    address, handle = exported()
    speak(importer)
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuIpcOpenMemHandle(handle, 0))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuIpcOpenMemHandle(driver.CUipcMemHandle(), LAZY))
    here = opened(handle)
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuIpcGetMemHandle(here))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemFree(here))
    ok(driver.cuIpcCloseMemHandle(here))
    speak(process)
    ok(driver.cuMemFree(address))
    ok(driver.cuMemAlloc(1000))
    speak(importer)
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuIpcOpenMemHandle(handle, LAZY))


def test_memory_freed_before_the_importer_closes_is_reported(
    node: sim.Node, process: sim.Process, importer: sim.Process
) -> None:
    address, handle = exported(4 << 20)
    speak(importer)
    here = opened(handle)
    speak(process)
    ok(driver.cuMemFree(address))
    assert [(incident["kind"], incident["call"]) for incident in node.incidents()] == [
        ("freed_while_open", "cuMemFree")
    ]
    node.check_invariants()
    assert node.memory_used(0) == 4 << 20
    speak(importer)
    ok(driver.cuMemsetD8(here, 1, 4 << 20))
    importer.close()
    assert node.memory_used(0) == 0


def test_from_another_device_without_peer_access(make_node: Callable[[sim.Machine], sim.Node]) -> None:
    node = make_node(sim.machine("h200", devices=2, peer_access=False))
    start(node.create_process(0))
    _, handle = exported()
    start(node.create_process(1), device=1)
    expect(RESULT.CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, driver.cuIpcOpenMemHandle(handle, LAZY))


def test_from_another_device(node: sim.Node, process: sim.Process) -> None:
    address, handle = exported()
    start(node.create_process(1), device=1)
    ok(driver.cuMemsetD8(opened(handle), 8, 1000))
    speak(process)
    assert read(address, 1000) == b"\10" * 1000


def test_an_importer_that_ends_gives_everything_back(
    node: sim.Node, process: sim.Process, importer: sim.Process
) -> None:
    address, handle = exported()
    speak(importer)
    opened(handle)
    importer.close()
    speak(process)
    ok(driver.cuMemFree(address))
    assert node.incidents() == []


def test_an_event_of_another_process_orders_work(process: sim.Process, importer: sim.Process) -> None:
    """The importer's stream waits for the exporter's fill, which is not carried out when the wait is enqueued."""
    address, handle = exported(64)
    event = ok(driver.cuEventCreate(SHARED))
    shared = ok(driver.cuIpcGetEventHandle(event))
    ok(driver.cuMemsetD8Async(address, 5, 64, 0))
    ok(driver.cuEventRecord(event, 0))
    speak(importer)
    there = ok(driver.cuIpcOpenEventHandle(shared))
    memory, copy = opened(handle), int(ok(driver.cuMemAlloc(64)))
    stream = ok(driver.cuStreamCreate(0))
    ok(driver.cuStreamWaitEvent(stream, there, 0))
    ok(driver.cuMemcpyDtoDAsync(copy, memory, 64, stream))
    ok(driver.cuStreamSynchronize(stream))
    assert read(copy, 64) == b"\5" * 64
    assert driver.cuEventQuery(there)[0] == RESULT.CUDA_SUCCESS
    ok(driver.cuEventRecord(there, stream))
    ok(driver.cuEventDestroy(there))
    speak(process)
    ok(driver.cuEventSynchronize(event))
    ok(driver.cuEventDestroy(event))


def test_an_event_destroyed_before_the_importer_is_reported(
    node: sim.Node, process: sim.Process, importer: sim.Process
) -> None:
    event = ok(driver.cuEventCreate(SHARED))
    shared = ok(driver.cuIpcGetEventHandle(event))
    expect(RESULT.CUDA_ERROR_INVALID_CONTEXT, driver.cuIpcOpenEventHandle(shared))
    speak(importer)
    there = ok(driver.cuIpcOpenEventHandle(shared))
    expect(RESULT.CUDA_ERROR_INVALID_HANDLE, driver.cuIpcGetEventHandle(there))
    speak(process)
    ok(driver.cuEventDestroy(event))
    assert [incident["kind"] for incident in node.incidents()] == ["freed_while_open"]
    speak(importer)
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuIpcOpenEventHandle(shared))


@pytest.mark.usefixtures("process")
def test_events_that_have_no_handle() -> None:
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuEventCreate(driver.CUevent_flags.CU_EVENT_INTERPROCESS.value))
    expect(RESULT.CUDA_ERROR_INVALID_HANDLE, driver.cuIpcGetEventHandle(ok(driver.cuEventCreate(0))))
    expect(RESULT.CUDA_ERROR_MAP_FAILED, driver.cuIpcOpenEventHandle(driver.CUipcEventHandle()))


def test_faults_reach_calls_of_ipc(importer: sim.Process) -> None:
    _, handle = exported()
    speak(importer)
    importer.fault("cuIpcOpenMemHandle", 0, int(RESULT.CUDA_ERROR_MAP_FAILED))
    expect(RESULT.CUDA_ERROR_MAP_FAILED, driver.cuIpcOpenMemHandle(handle, LAZY))
    opened(handle)
