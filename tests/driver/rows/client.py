"""What the rows have in common: the driver that they are about, and short ways to say what a row states.

A row states facts about a driver: which call, which arguments, which code. The same rows are run on the simulated
driver and on a real one, so they need nothing but the interpreter, and give back what they make. ``ALLRANKS_DRIVER``
names the library.
"""

from __future__ import annotations

import ctypes
import functools
import os
import unittest
from typing import Any, Final

from tests.driver.differential.abi import (
    GRANULE,
    AccessDescription,
    AllocationProperties,
    Handle,
    Library,
    Location,
    PoolProperties,
    code_name,
)
from tests.driver.differential.execution import Seat

VARIABLE: Final = "ALLRANKS_DRIVER"
POSIX: Final = 1
FABRIC: Final = 8
Size = ctypes.c_size_t
Flags = ctypes.c_uint64


@functools.cache
def seat() -> Seat:
    """Give the driver that the rows are about, with both primary contexts retained."""
    return Seat(Library(os.environ[VARIABLE]))


class Row(unittest.TestCase):
    """Rows about one subject; device 0's context is current at the start of each."""

    def setUp(self) -> None:
        self.library = seat().library
        seat().enter(0)

    def tearDown(self) -> None:
        broken = seat().synchronize()
        assert not broken, f"the context is broken: {code_name(broken)}"
        seat().enter(0)

    def enter(self, device: int | None) -> None:
        """Make a device's primary context current, or none."""
        seat().enter(device)

    def context(self, device: int) -> int:
        """Give a device's primary context."""
        return seat().contexts[device]

    def stream(self, flags: int = 0) -> int:
        """Create a stream, destroyed at the end."""
        stream = self.made("cuStreamCreate", flags)
        self.addCleanup(self.ok, "cuStreamDestroy", Handle(stream))
        return stream

    def event(self, flags: int = 0) -> int:
        """Create an event, destroyed at the end."""
        event = self.made("cuEventCreate", flags)
        self.addCleanup(self.ok, "cuEventDestroy", Handle(event))
        return event

    def expect(self, code: str, call: str, *arguments: Any) -> None:
        """Assert the code that a call answers."""
        told = code_name(self.library.call(call, *arguments))
        assert told == code, f"{call}: expected {code}, got {told}"

    def ok(self, call: str, *arguments: Any) -> None:
        """Assert that a call succeeds."""
        self.expect("SUCCESS", call, *arguments)

    def made(self, call: str, *arguments: Any) -> int:
        """Give the handle or address that a call writes first."""
        value = Handle()
        self.ok(call, ctypes.byref(value), *arguments)
        return int(value.value)

    def properties(self, device: int = 0, handle_types: int = POSIX) -> Any:
        """Describe pinned memory of a device."""
        return ctypes.byref(
            AllocationProperties(type=1, handle_types=handle_types, location=Location(type=1, id=device))
        )

    def create(self, size: int = GRANULE, device: int = 0) -> int:
        """Create physical memory, given back at the end unless `release`d by the row."""
        handle = self.made("cuMemCreate", Size(size), self.properties(device), Flags(0))
        self.addCleanup(self.library.call, "cuMemRelease", Handle(handle))
        return handle

    def reserve(self, size: int = GRANULE) -> int:
        """Reserve addresses, given back at the end."""
        address = self.made("cuMemAddressReserve", Size(size), Size(0), Handle(0), Flags(0))
        self.addCleanup(self.ok, "cuMemAddressFree", Handle(address), Size(size))
        return address

    def map(self, address: int, handle: int, size: int = GRANULE) -> None:
        """Map a whole allocation, unmapped at the end."""
        self.ok("cuMemMap", Handle(address), Size(size), Size(0), Handle(handle), Flags(0))
        self.addCleanup(self.library.call, "cuMemUnmap", Handle(address), Size(size))

    def open(self, code: str, address: int, size: int, *devices: int, flags: int = 3) -> None:
        """Set access for devices, and assert the code."""
        wanted = (AccessDescription * len(devices))()
        for description, device in zip(wanted, devices, strict=True):
            description.location, description.flags = Location(1, device), flags
        self.expect(code, "cuMemSetAccess", Handle(address), Size(size), wanted, Size(len(devices)))

    def mapped(self, size: int = GRANULE, *devices: int) -> int:
        """Give the address of fresh memory that devices (0 if none is named) may use."""
        address = self.reserve(size)
        self.map(address, self.create(size), size)
        self.open("SUCCESS", address, size, *(devices or (0,)))
        return address

    def allocate(self, size: int) -> int:
        """Allocate plain memory, given back at the end."""
        address = self.made("cuMemAlloc", Size(size))
        self.addCleanup(self.library.call, "cuMemFree", Handle(address))
        return address

    def attribute(self, attribute: int, address: int) -> int:
        """Give a pointer attribute."""
        value = ctypes.c_uint64()
        self.ok("cuPointerGetAttribute", ctypes.byref(value), attribute, Handle(address))
        return value.value

    def range(self, address: int) -> tuple[int, int]:
        """Give base and size of what an address lies in."""
        base, size = Handle(), Size()
        self.ok("cuMemGetAddressRange", ctypes.byref(base), ctypes.byref(size), Handle(address))
        return int(base.value), int(size.value)

    def read(self, address: int, size: int) -> bytes:
        """Copy device memory to the host."""
        data = ctypes.create_string_buffer(size)
        self.ok("cuMemcpyDtoH", data, Handle(address), Size(size))
        return data.raw

    def write(self, address: int, data: bytes) -> None:
        """Copy host memory to the device."""
        self.ok("cuMemcpyHtoD", Handle(address), data, Size(len(data)))

    def need(self, call: str, *arguments: Any) -> None:
        """Skip the row if the driver does not have a call."""
        if code_name(self.library.call(call, *arguments)) == "NOT_SUPPORTED":
            self.skipTest(f"{call}: this driver does not have it")

    def pool(self, device: int = 0, handle_types: int = 0) -> int:
        """Create a pool, destroyed at the end."""
        self.need("cuDeviceGetDefaultMemPool", ctypes.byref(Handle()), 0)
        wanted = PoolProperties(type=1, handle_types=handle_types, location=Location(1, device))
        pool = self.made("cuMemPoolCreate", ctypes.byref(wanted))
        self.addCleanup(self.library.call, "cuMemPoolDestroy", Handle(pool))
        return pool
