"""How long the life of a multicast object of all devices takes: bound on each, mapped, unmapped, unbound, released."""

from __future__ import annotations

import importlib
import sys
import time
from typing import Any

driver: Any = importlib.import_module("cuda.bindings.driver")

SIZE = 8 << 20


def ok(result: tuple[Any, ...]) -> Any:
    """Give what a successful call answered."""
    assert result[0] == driver.CUresult.CUDA_SUCCESS, result[0]
    return result[1] if len(result) == 2 else None


def place(device: int) -> Any:
    """Give a device as a place of memory."""
    location = driver.CUmemLocation()
    location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    location.id = device
    return location


def memory_of(device: int) -> Any:
    """Create physical memory on a device."""
    wanted = driver.CUmemAllocationProp()
    wanted.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location = place(device)
    return ok(driver.cuMemCreate(SIZE, wanted, 0))


def cycle(devices: int, memory: list[Any], rights: list[Any]) -> None:
    """Go once through the life of an object."""
    properties = driver.CUmulticastObjectProp()
    properties.numDevices, properties.size = devices, SIZE
    team = ok(driver.cuMulticastCreate(properties))
    for device in range(devices):
        ok(driver.cuMulticastAddDevice(team, device))
    for handle in memory:
        ok(driver.cuMulticastBindMem(team, 0, handle, 0, SIZE, 0))
    address = int(ok(driver.cuMemAddressReserve(SIZE, 0, 0, 0)))
    ok(driver.cuMemMap(address, SIZE, 0, team, 0))
    ok(driver.cuMemSetAccess(address, SIZE, rights, len(rights)))
    ok(driver.cuMemUnmap(address, SIZE))
    ok(driver.cuMemAddressFree(address, SIZE))
    for device in range(devices):
        ok(driver.cuMulticastUnbind(team, device, 0, SIZE))
    ok(driver.cuMemRelease(team))


def main(count: int) -> float:
    """Give microseconds for a cycle."""
    ok(driver.cuInit(0))
    devices = int(ok(driver.cuDeviceGetCount()))
    ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(0))))
    rights = []
    for device in range(devices):
        right = driver.CUmemAccessDesc()
        right.location = place(device)
        right.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        rights.append(right)
    memory = [memory_of(device) for device in range(devices)]
    cycle(devices, memory, rights)
    began = time.perf_counter()
    for _ in range(count):
        cycle(devices, memory, rights)
    took = (time.perf_counter() - began) / count * 1e6
    for handle in memory:
        ok(driver.cuMemRelease(handle))
    ok(driver.cuDevicePrimaryCtxRelease(0))
    return took


if __name__ == "__main__":
    sys.stdout.write(f"{main(int(sys.argv[1]))}\n")
