"""Export and import as POSIX file descriptors. Measured on 2 x H200, driver 580 (CUDA 13.0)."""

from __future__ import annotations

import os

import pytest

from allranks import sim
from tests.sim.rows.conftest import start
from tests.sim.rows.driver_client import (
    GRANULE,
    NO_HANDLE,
    POSIX,
    RESULT,
    create,
    driver,
    expect,
    mapped,
    ok,
    read,
)

pytestmark = pytest.mark.usefixtures("process")


def export(handle: object) -> int:
    return int(ok(driver.cuMemExportToShareableHandle(handle, POSIX, 0)))


def kinds(node: sim.Node) -> list[str]:
    return [entry.kind for entry in node.ledger() if entry.kind != "context"]


def test_export_without_the_handle_type() -> None:
    handle = create(handle_types=NO_HANDLE)
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemExportToShareableHandle(handle, POSIX, 0))


def test_import_in_the_exporting_process_twice() -> None:
    handle = create()
    descriptor = export(handle)
    first = ok(driver.cuMemImportFromShareableHandle(descriptor, POSIX))
    second = ok(driver.cuMemImportFromShareableHandle(descriptor, POSIX))
    os.close(descriptor)
    assert len({int(handle), int(first), int(second)}) == 3
    ok(driver.cuMemRelease(first))
    ok(driver.cuMemRelease(second))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemRelease(second))
    ok(driver.cuMemRelease(handle))


def test_import_of_a_closed_descriptor() -> None:
    descriptor = export(create())
    os.close(descriptor)
    expect(RESULT.CUDA_ERROR_UNKNOWN, driver.cuMemImportFromShareableHandle(descriptor, POSIX))


def test_import_of_a_pipe() -> None:
    reading, writing = os.pipe()
    expect(RESULT.CUDA_ERROR_UNKNOWN, driver.cuMemImportFromShareableHandle(reading, POSIX))
    os.close(reading)
    os.close(writing)


def test_a_copy_of_the_descriptor_imports_too() -> None:
    descriptor = export(create())
    copy = os.dup(descriptor)
    os.close(descriptor)
    ok(driver.cuMemImportFromShareableHandle(copy, POSIX))
    os.close(copy)


def test_an_open_descriptor_keeps_the_memory(node: sim.Node) -> None:
    handle = create()
    descriptor = export(handle)
    ok(driver.cuMemRelease(handle))
    assert kinds(node) == ["descriptor"]
    assert node.memory_used(0) == GRANULE
    os.close(descriptor)
    assert kinds(node) == []
    assert node.memory_used(0) == 0


def test_another_process_sees_the_memory_and_its_owner_sees_what_it_writes(
    node: sim.Node, process: sim.Process
) -> None:
    address = mapped(create())
    descriptor = export(ok(driver.cuMemRetainAllocationHandle(address)))
    start(node.create_process(1), device=1)
    imported = ok(driver.cuMemImportFromShareableHandle(descriptor, POSIX))
    os.close(descriptor)
    ok(driver.cuMemsetD8(mapped(imported, GRANULE, 1), 7, 100))
    process.bind()
    ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(0))))
    assert read(address, 101) == b"\7" * 100 + b"\0"


def test_memory_of_an_ended_owner_lives_while_it_is_imported(node: sim.Node, process: sim.Process) -> None:
    handle = create()
    descriptor = export(handle)
    start(node.create_process(1))
    address = mapped(ok(driver.cuMemImportFromShareableHandle(descriptor, POSIX)))
    os.close(descriptor)
    process.close()
    assert node.memory_used(0) == GRANULE
    assert read(address, 4) == b"\0\0\0\0"
