"""Plain memory, pointers, CUDA IPC and pools. Measured on H200, driver 580 (CUDA 13.0)."""

from __future__ import annotations

import ctypes

from tests.driver.differential.abi import Handle, Opaque64
from tests.driver.rows.client import Row, Size

BUFFER_ID, DEVICE_ORDINAL, MAPPING_SIZE, UNKNOWN = 7, 9, 18, 999


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


class Ipc(Row):
    def test_of_plain_memory_only_and_not_in_its_own_process(self) -> None:
        handle, address = Opaque64(), self.allocate(4096)
        self.need("cuIpcGetMemHandle", ctypes.byref(handle), Handle(address))
        self.ok("cuIpcGetMemHandle", ctypes.byref(handle), Handle(address))
        self.expect("INVALID_CONTEXT", "cuIpcOpenMemHandle", ctypes.byref(Handle()), handle, 1)
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

    def test_what_cannot_be_allocated(self) -> None:
        self.pool()
        address = Handle(1)
        self.ok("cuMemAllocAsync", ctypes.byref(address), Size(0), Handle(0))
        assert address.value == 0
        self.ok("cuMemFreeAsync", address, Handle(0))
        self.expect("OUT_OF_MEMORY", "cuMemAllocAsync", ctypes.byref(Handle()), Size(1 << 42), Handle(0))
