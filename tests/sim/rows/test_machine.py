"""What the machine is: memory, devices and attributes, versions, functions by name, names of errors, forks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from allranks import sim
from tests.sim.rows.driver_client import MIB, RESULT, driver, expect, ok


def test_total_memory_of_the_machine_in_the_environment() -> None:
    """A thread that is bound to nothing speaks for the default process: SIMCU_MACHINE=h200, SIMCU_DEVICES=2."""
    ok(driver.cuInit(0))
    assert ok(driver.cuDeviceGetCount()) == 2
    total = int(ok(driver.cuDeviceTotalMem(0)))
    assert f"{total / MIB:.1f}" == "143155.9"


@pytest.mark.usefixtures("process")
def test_free_and_total_memory() -> None:
    free, total = ok(driver.cuMemGetInfo())
    assert f"{int(total) / MIB:.1f}" == "143155.9"
    assert 0 < free <= total
    address = ok(driver.cuMemAlloc(4 * MIB))
    assert ok(driver.cuMemGetInfo()) == (free - 4 * MIB, total)
    ok(driver.cuMemFree(address))
    assert ok(driver.cuMemGetInfo()) == (free, total)


@pytest.mark.usefixtures("process")
@pytest.mark.parametrize(
    "name",
    [
        "VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED",
        "HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED",
        "HANDLE_TYPE_FABRIC_SUPPORTED",
        "MULTICAST_SUPPORTED",
    ],
)
def test_attribute_reports_one(name: str) -> None:
    attribute = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    assert ok(driver.cuDeviceGetAttribute(attribute, 0)) == 1


@pytest.mark.usefixtures("process")
def test_peers_reach_each_other_with_native_atomics() -> None:
    assert ok(driver.cuDeviceCanAccessPeer(0, 1)) == 1
    atomics = driver.CUdevice_P2PAttribute.CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED
    assert ok(driver.cuDeviceGetP2PAttribute(atomics, 0, 1)) == 1


def test_version_is_that_of_the_machine(make_node: Callable[[sim.Machine], sim.Node]) -> None:
    process = make_node(sim.machine("h200", devices=1, driver_version=12080)).create_process(0)
    process.bind()
    assert ok(driver.cuDriverGetVersion()) == 12080


def test_before_init_nothing_works(node: sim.Node) -> None:
    node.create_process(0).bind()
    expect(RESULT.CUDA_ERROR_NOT_INITIALIZED, driver.cuDeviceGetCount())
    expect(RESULT.CUDA_ERROR_NOT_INITIALIZED, driver.cuMemAlloc(256))


def test_without_a_current_context(node: sim.Node) -> None:
    node.create_process(0).bind()
    ok(driver.cuInit(0))
    expect(RESULT.CUDA_ERROR_INVALID_CONTEXT, driver.cuMemAlloc(256))


@pytest.mark.parametrize("code", list(RESULT), ids=lambda code: code.name)
def test_every_error_has_its_name_and_a_text(code: Any) -> None:
    assert ok(driver.cuGetErrorName(code)).decode() == code.name
    assert ok(driver.cuGetErrorString(code)).decode()


@pytest.mark.usefixtures("process")
@pytest.mark.parametrize("text", [b"0000:02:00.0", b"0000:02:00", b"02:00.0", b"02:00"])
def test_a_device_is_found_by_each_form_of_its_pci_bus_id(text: bytes) -> None:
    assert ok(driver.cuDeviceGetPCIBusId(64, 1)).split(b"\0")[0] == b"0000:02:00.0"
    assert int(ok(driver.cuDeviceGetByPCIBusId(text))) == 1


@pytest.mark.usefixtures("process")
@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"0000:7f:00.0", "INVALID_DEVICE"),
        (b"0001:02:00.0", "INVALID_DEVICE"),
        (b"0000:02:00.1", "INVALID_DEVICE"),
        (b"", "INVALID_VALUE"),
        (b"0000:zz:00.0", "INVALID_VALUE"),
        (b"0000:02:00.0 ", "INVALID_VALUE"),
    ],
)
def test_a_pci_bus_id_that_is_no_device(text: bytes, code: str) -> None:
    assert driver.cuDeviceGetByPCIBusId(text)[0] == getattr(driver.CUresult, f"CUDA_ERROR_{code}")
