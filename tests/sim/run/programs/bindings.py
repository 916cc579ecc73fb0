"""NVIDIA's `cuda-bindings`, unmodified, on virtual memory, streams, events and copies; with a number: that many cycles.

Prints what a cycle of create, reserve, map, set access, unmap, release and free takes, in microseconds.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
import time
from typing import Any

driver: Any = importlib.import_module("cuda.bindings.driver")
SIZE = 8 << 20


def ok(result: Any) -> Any:
    """Give what a successful call answered."""
    code, *values = result
    if code != driver.CUresult.CUDA_SUCCESS:
        sys.exit(f"{code!r}")
    return values[0] if len(values) == 1 else tuple(values)


def cycle(properties: Any, access: Any) -> None:
    """Make memory, map it, and give it back."""
    handle = ok(driver.cuMemCreate(SIZE, properties, 0))
    address = ok(driver.cuMemAddressReserve(SIZE, 0, 0, 0))
    ok(driver.cuMemMap(address, SIZE, 0, handle, 0))
    ok(driver.cuMemSetAccess(address, SIZE, [access], 1))
    ok(driver.cuMemUnmap(address, SIZE))
    ok(driver.cuMemRelease(handle))
    ok(driver.cuMemAddressFree(address, SIZE))


def streams_and_copies() -> None:
    """Fill, copy and compare on a stream."""
    stream = ok(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
    begin, end = ok(driver.cuEventCreate(0)), ok(driver.cuEventCreate(0))
    address = ok(driver.cuMemAlloc(SIZE))
    data = bytes(range(256)) * (SIZE // 256)
    back = bytearray(SIZE)
    ok(driver.cuEventRecord(begin, stream))
    ok(driver.cuMemcpyHtoDAsync(address, data, SIZE, stream))
    ok(driver.cuMemcpyDtoHAsync(back, address, SIZE, stream))
    ok(driver.cuEventRecord(end, stream))
    ok(driver.cuEventSynchronize(end))
    if bytes(back) != data or ok(driver.cuEventElapsedTime(begin, end)) < 0:
        sys.exit("the copy is another")
    attribute = driver.CUpointer_attribute
    kind, size = ok(
        driver.cuPointerGetAttributes(
            2,
            [attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, attribute.CU_POINTER_ATTRIBUTE_RANGE_SIZE],
            address,
        )
    )
    if (int(kind), int(size)) != (2, SIZE):
        sys.exit(f"attributes {kind}, {size}")
    for event in (begin, end):
        ok(driver.cuEventDestroy(event))
    ok(driver.cuStreamDestroy(stream))
    ok(driver.cuMemFree(address))


ok(driver.cuInit(0))
if not hasattr(ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW), "simcuVersion"):
    sys.exit("the driver is not the simulated one")
device = ok(driver.cuDeviceGet(int(os.environ["LOCAL_RANK"])))
ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(device))))
wanted = driver.CUmemAllocationProp()
wanted.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
wanted.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
wanted.location.id = int(device)
opened = driver.CUmemAccessDesc()
opened.location = wanted.location
opened.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
count = int(sys.argv[1]) if len(sys.argv) > 1 else 3
began = time.perf_counter()
for _ in range(count):
    cycle(wanted, opened)
sys.stdout.write(f"{(time.perf_counter() - began) / count * 1e6:.1f} us a cycle\n")
streams_and_copies()
ok(driver.cuDevicePrimaryCtxRelease(device))
