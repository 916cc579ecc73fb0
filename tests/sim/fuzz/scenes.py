"""Short sequences of good calls, so that wild ones meet memory that is mapped, bound, shared, registered and in use."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any, Final, Protocol

from tests.sim.fuzz.values import DEVICES, GRANULE, Arena, Values


class Caller(Protocol):
    """Who makes the calls."""

    arena: Arena
    values: Values
    chosen: random.Random

    def good(self, symbol: str, *arguments: Any) -> int:
        """Make a call; its code."""

    def made(self, symbol: str, kind: str, *arguments: Any) -> int:
        """Make a call that writes a number behind its first argument; the number, or 0."""

    def handle(self, symbol: str, kind: str, of: int) -> None:
        """Make a call that writes a handle for other processes behind its first argument."""


def _location(device: int) -> bytes:
    return struct.pack("ii", 1, device)


def created(caller: Caller, device: int) -> int:
    """Memory that can be exported."""
    properties = caller.arena.put(struct.pack("ii", 1, 1) + _location(device) + bytes(16))
    return caller.made("cuMemCreate", "CUmemGenericAllocationHandle", GRANULE, properties, 0)


def mapping(caller: Caller) -> int:
    """Memory that is mapped, and open to all devices."""
    handle = created(caller, caller.chosen.randrange(DEVICES))
    address = caller.made("cuMemAddressReserve", "CUdeviceptr", GRANULE, 0, 0, 0)
    caller.good("cuMemMap", address, GRANULE, 0, handle, 0)
    rights = caller.arena.put(b"".join(_location(each) + struct.pack("i", 3) for each in range(DEVICES)))
    caller.good("cuMemSetAccess", address, GRANULE, rights, DEVICES)
    return address


def team(caller: Caller) -> None:
    """A multicast object with memory bound to it, that is mapped."""
    size = caller.chosen.randint(1, DEVICES)
    properties = caller.arena.put(struct.pack("IIQQQ", size, 0, GRANULE, 1, 0))
    handle = caller.made("cuMulticastCreate", "CUmemGenericAllocationHandle", properties)
    for device in range(size):
        caller.good("cuMulticastAddDevice", handle, device)
    if caller.chosen.random() < 0.5:
        caller.good("cuMulticastBindAddr", handle, 0, mapping(caller), GRANULE, 0)
    else:
        caller.good("cuMulticastBindMem", handle, 0, created(caller, 0), 0, GRANULE, 0)
    address = caller.made("cuMemAddressReserve", "CUdeviceptr", GRANULE, 0, 0, 0)
    caller.good("cuMemMap", address, GRANULE, 0, handle, 0)
    rights = caller.arena.put(_location(0) + struct.pack("i", 3))
    caller.good("cuMemSetAccess", address, GRANULE, rights, 1)


def launch(caller: Caller) -> None:
    """A kernel in a stream."""
    stream = caller.made("cuStreamCreate", "CUstream", 1)
    module = caller.made("cuModuleLoadData", "CUmodule", caller.values.module)
    function = caller.made("cuModuleGetFunction", "CUfunction", module, caller.arena.put(b"kernel\0"))
    parameters = caller.arena.put(caller.arena.data(0).to_bytes(8, "little"))
    caller.good("cuLaunchKernel", function, caller.chosen.randint(1, 4), 1, 1, 1, 1, 1, 0, stream, parameters, 0)


def registered(caller: Caller) -> None:
    """Memory of the program that is page-locked, and work on it."""
    place = caller.arena.data(caller.chosen.randrange(4))
    if caller.good("cuMemHostRegister_v2", place, 1 << 20, 0) == 0:
        caller.values.remember("host", place)
        caller.values.remember("CUdeviceptr", place)
    caller.good("cuMemsetD8Async", place, 1, 4096, 0)


def shared(caller: Caller) -> None:
    """Memory of another process, in each way that there is."""
    memory = caller.made("cuMemAlloc_v2", "CUdeviceptr", 1 << 16)
    event = caller.made("cuEventCreate", "CUevent", 6)  # interprocess, without timing
    caller.handle("cuIpcGetMemHandle", "CUipcMemHandle", memory)
    caller.handle("cuIpcGetEventHandle", "CUipcEventHandle", event)
    for handle in caller.values.foreign.get("CUipcMemHandle", [])[-2:]:
        caller.made("cuIpcOpenMemHandle_v2", "CUdeviceptr", handle, 1)
    for handle in caller.values.foreign.get("CUipcEventHandle", [])[-2:]:
        caller.made("cuIpcOpenEventHandle", "CUevent", handle)


def pooled(caller: Caller) -> None:
    """A pool of another process, and memory in it."""
    properties = caller.arena.put(struct.pack("ii", 1, 1) + _location(0) + bytes(72))
    pool = caller.made("cuMemPoolCreate", "CUmemoryPool", properties)
    memory = caller.made("cuMemAllocFromPoolAsync", "CUdeviceptr", 4096, pool, 0)
    caller.made("cuMemPoolExportToShareableHandle", "descriptor", pool, 1, 0)
    caller.handle("cuMemPoolExportPointer", "CUmemPoolPtrExportData", memory)
    for descriptor in caller.values.foreign.get("descriptor", [])[-2:]:
        imported = caller.made("cuMemPoolImportFromShareableHandle", "CUmemoryPool", descriptor, 1, 0)
        for data in caller.values.foreign.get("CUmemPoolPtrExportData", [])[-3:]:
            caller.made("cuMemPoolImportPointer", "CUdeviceptr", imported, caller.arena.put(data))


SCENES: Final[tuple[Callable[[Caller], object], ...]] = (mapping, team, launch, registered, shared, pooled)
