"""Plain memory, pointers, CUDA IPC and pools. Measured on H200, driver 580 (CUDA 13.0)."""

from __future__ import annotations

import ctypes
import os

from tests.driver.differential.abi import Handle, Location, Opaque64, PoolProperties
from tests.driver.rows.client import FABRIC, POSIX, Flags, Row, Size

SYNC_MEMOPS, BUFFER_ID, DEVICE_ORDINAL, MAPPING_SIZE, UNKNOWN = 6, 7, 9, 18, 999
RDMA_SUPPORTED, POOL_HANDLE_TYPES = 116, 119  # of devices


class Allocation(Row):
    def test_the_range_is_exactly_what_was_asked_for(self) -> None:
        address = self.allocate(1000)
        assert self.range(address + 999) == (address, 1000)
        assert self.attribute(MAPPING_SIZE, address) == 2 << 20

    def test_the_same_address_again_is_other_memory(self) -> None:
        address = self.made("cuMemAlloc", Size(4096))
        first = self.attribute(BUFFER_ID, address)
        self.ok("cuMemFree", Handle(address))
        again = self.allocate(4096)
        assert again == address
        assert self.attribute(BUFFER_ID, again) != first

    def test_what_cannot_be_allocated(self) -> None:
        self.expect("INVALID_VALUE", "cuMemAlloc", ctypes.byref(Handle()), Size(0))
        self.expect("OUT_OF_MEMORY", "cuMemAlloc", ctypes.byref(Handle()), Size(1 << 42))

    def test_what_cannot_be_freed(self) -> None:
        address, host = self.allocate(1000), ctypes.create_string_buffer(64)
        self.expect("INVALID_VALUE", "cuMemFree", Handle(address + 256))
        self.expect("INVALID_VALUE", "cuMemFree", Handle(ctypes.addressof(host)))
        self.ok("cuMemFree", Handle(0))


class Pointers(Row):
    def test_a_host_pointer_has_no_device(self) -> None:
        host, value = ctypes.create_string_buffer(64), ctypes.c_uint64()
        pointer = Handle(ctypes.addressof(host))
        self.expect("INVALID_VALUE", "cuPointerGetAttribute", ctypes.byref(value), DEVICE_ORDINAL, pointer)

    def test_an_attribute_that_never_was(self) -> None:
        value = ctypes.byref(ctypes.c_uint64())
        self.expect("INVALID_VALUE", "cuPointerGetAttribute", value, UNKNOWN, Handle(self.allocate(64)))

    def test_synchronous_operations_are_off_until_they_are_set(self) -> None:
        self.pool()
        piece = self.made("cuMemAllocAsync", Size(1000), Handle(0))
        self.addCleanup(self.library.call, "cuMemFreeAsync", Handle(piece), Handle(0))
        for address in (self.allocate(1000), piece):
            assert self.attribute(SYNC_MEMOPS, address) & 1 == 0
            self.ok("cuPointerSetAttribute", ctypes.byref(ctypes.c_uint(1)), SYNC_MEMOPS, Handle(address))
            assert self.attribute(SYNC_MEMOPS, address + 1) & 1 == 1
        assert self.attribute(SYNC_MEMOPS, self.mapped()) & 1 == 0


class Ipc(Row):
    def test_of_plain_memory_only_and_not_in_its_own_process(self) -> None:
        handle, address = Opaque64(), self.allocate(4096)
        self.need("cuIpcGetMemHandle", ctypes.byref(handle), Handle(address))
        self.ok("cuIpcGetMemHandle", ctypes.byref(handle), Handle(address))
        self.expect("INVALID_CONTEXT", "cuIpcOpenMemHandle", ctypes.byref(Handle()), handle, 1)
        self.enter(1)
        other = Opaque64()
        self.ok("cuIpcGetMemHandle", ctypes.byref(other), Handle(address))
        assert bytes(other.bytes) != bytes(handle.bytes)
        self.enter(None)
        self.expect("INVALID_CONTEXT", "cuIpcGetMemHandle", ctypes.byref(handle), Handle(address))
        self.expect("INVALID_VALUE", "cuIpcGetMemHandle", ctypes.byref(handle), Handle(0))
        self.enter(0)
        self.expect("INVALID_VALUE", "cuIpcGetMemHandle", ctypes.byref(handle), Handle(self.mapped()))


class Pools(Row):
    def test_memory_in_stream_order_has_a_range_and_no_allocation_handle(self) -> None:
        self.pool()
        address = self.made("cuMemAllocAsync", Size(1000), Handle(0))
        self.addCleanup(self.library.call, "cuMemFreeAsync", Handle(address), Handle(0))
        assert self.range(address + 5) == (address, 1000)
        self.expect("INVALID_VALUE", "cuMemRetainAllocationHandle", ctypes.byref(Handle()), Handle(address))
        self.expect("INVALID_VALUE", "cuIpcGetMemHandle", ctypes.byref(Opaque64()), Handle(address))

    def test_a_free_and_an_allocation_on_one_stream_are_the_same_address(self) -> None:
        pool = self.pool()
        first = self.made("cuMemAllocFromPoolAsync", Size(4096), Handle(pool), Handle(0))
        identity = self.attribute(BUFFER_ID, first)
        self.ok("cuMemFreeAsync", Handle(first), Handle(0))
        again = self.made("cuMemAllocFromPoolAsync", Size(4096), Handle(pool), Handle(0))
        self.addCleanup(self.library.call, "cuMemFreeAsync", Handle(again), Handle(0))
        assert again == first
        assert self.attribute(BUFFER_ID, again) != identity

    def test_memory_is_exported_from_a_pool_that_was_exported_before(self) -> None:
        pool, data, descriptor = self.pool(handle_types=POSIX), ctypes.byref(Opaque64()), ctypes.c_int()
        address = self.made("cuMemAllocFromPoolAsync", Size(1000), Handle(pool), Handle(0))
        self.addCleanup(self.library.call, "cuMemFreeAsync", Handle(address), Handle(0))
        self.expect("INVALID_VALUE", "cuMemPoolExportPointer", data, Handle(address))
        self.ok("cuMemPoolExportToShareableHandle", ctypes.byref(descriptor), Handle(pool), POSIX, Flags(0))
        self.addCleanup(os.close, descriptor.value)
        self.ok("cuMemPoolExportPointer", data, Handle(address))

    def test_what_a_pool_may_be_exported_as(self) -> None:
        for types in (0, POSIX, FABRIC):
            self.pool(handle_types=types)
        for types in (2, 64):
            wanted = PoolProperties(type=1, handle_types=types, location=Location(1, 0))
            self.expect("INVALID_VALUE", "cuMemPoolCreate", ctypes.byref(Handle()), ctypes.byref(wanted))
        for attribute, expected in ((POOL_HANDLE_TYPES, POSIX | FABRIC), (RDMA_SUPPORTED, 1)):
            told = ctypes.c_int()
            self.ok("cuDeviceGetAttribute", ctypes.byref(told), attribute, 0)
            assert told.value == expected

    def test_what_cannot_be_allocated(self) -> None:
        self.pool()
        address = Handle(1)
        self.ok("cuMemAllocAsync", ctypes.byref(address), Size(0), Handle(0))
        assert address.value == 0
        self.ok("cuMemFreeAsync", address, Handle(0))
        self.expect("OUT_OF_MEMORY", "cuMemAllocAsync", ctypes.byref(Handle()), Size(1 << 42), Handle(0))
