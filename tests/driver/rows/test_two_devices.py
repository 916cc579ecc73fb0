"""Memory of one device with another device's context current. Measured on H200, driver 580 (CUDA 13.0)."""

from __future__ import annotations

import ctypes

from tests.driver.differential.abi import GRANULE, Handle
from tests.driver.rows.client import Row, Size

CONTEXT, DEVICE_POINTER, RANGE_START, ACCESS_FLAGS = 1, 3, 11, 16


class OtherContext(Row):
    """Device 0's memory, asked about and used while device 1's context is current."""

    def kinds(self) -> dict[str, int]:
        """Give memory of each kind that device 1 has no access to."""
        self.pool()
        pooled = self.made("cuMemAllocAsync", Size(4096), Handle(0))
        self.addCleanup(self.library.call, "cuMemFreeAsync", Handle(pooled), Handle(0))
        return {"plain": self.allocate(4096), "pooled": pooled, "mapped": self.mapped()}

    def many(self, address: int, *attributes: int) -> list[int]:
        """Give several pointer attributes at once."""
        values = [ctypes.c_uint64() for _ in attributes]
        places = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        names = (ctypes.c_int * len(values))(*attributes)
        self.ok("cuPointerGetAttributes", len(values), names, places, Handle(address))
        return [value.value for value in values]

    def test_plain_memory_is_copied_without_peer_access(self) -> None:
        here = self.allocate(4096)
        self.enter(1)
        there = self.allocate(4096)
        self.write(here, b"across" * 10)
        assert self.read(here, 60) == b"across" * 10
        for current in (0, 1):
            self.enter(1)
            self.ok("cuMemsetD8", Handle(there), ctypes.c_ubyte(0), Size(60))
            self.enter(current)
            self.ok("cuMemcpyDtoD", Handle(there), Handle(here), Size(60))
            assert self.read(there, 60) == b"across" * 10

    def test_memory_without_access_has_no_range(self) -> None:
        found = self.kinds()
        opened = self.mapped(GRANULE, 0, 1)
        for address in found.values():
            assert self.range(address + 5)[0] == address
        self.enter(1)
        place = ctypes.byref(Handle()), ctypes.byref(Size())
        for kind, address in found.items():
            with self.subTest(kind):
                self.expect("NOT_FOUND", "cuMemGetAddressRange", *place, Handle(address))
        assert self.range(opened) == (opened, GRANULE)
        self.enter(None)
        self.expect("INVALID_CONTEXT", "cuMemGetAddressRange", *place, Handle(opened))

    def test_the_device_pointer_is_that_of_the_current_context(self) -> None:
        found = self.kinds()
        for address in found.values():
            assert self.attribute(DEVICE_POINTER, address + 5) == address + 5
        for current, code in ((1, "INVALID_VALUE"), (None, "INVALID_CONTEXT")):
            self.enter(current)
            for kind, address in found.items():
                with self.subTest(kind, current=current):
                    pointer = ctypes.byref(Handle())
                    self.expect(code, "cuPointerGetAttribute", pointer, DEVICE_POINTER, Handle(address))
                    if current is not None:
                        assert self.many(address, DEVICE_POINTER, RANGE_START) == [0, address]

    def test_rights_are_those_of_the_device_for_mapped_memory_only(self) -> None:
        found = self.kinds()
        self.enter(1)
        flags = {kind: self.attribute(ACCESS_FLAGS, address) & 0xFF for kind, address in found.items()}
        assert flags == {"plain": 3, "pooled": 3, "mapped": 0}
        self.enter(None)
        assert self.many(found["mapped"], ACCESS_FLAGS) == [0]

    def test_only_plain_memory_has_a_context(self) -> None:
        found = self.kinds()
        self.enter(1)
        contexts = {kind: self.attribute(CONTEXT, address) for kind, address in found.items()}
        assert contexts == {"plain": self.context(0), "pooled": 0, "mapped": 0}
