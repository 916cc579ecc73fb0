"""Virtual memory management. Measured on H200, driver 580 (CUDA 13.0)."""

from __future__ import annotations

import ctypes
import os

from tests.driver.differential.abi import GRANULE, AccessDescription, Handle, Location
from tests.driver.rows.client import FABRIC, POSIX, Flags, Row, Size

BUFFER_ID, RANGE_START, RANGE_SIZE = 7, 11, 12


class Creation(Row):
    def test_granularity_is_2_mib(self) -> None:
        for option in (0, 1):
            size = Size()
            self.ok("cuMemGetAllocationGranularity", ctypes.byref(size), self.properties(), option)
            assert size.value == GRANULE

    def test_sizes_off_the_granularity(self) -> None:
        for size in (0, 4096, GRANULE + 65536):
            self.expect("INVALID_VALUE", "cuMemCreate", ctypes.byref(Handle()), Size(size), self.properties(), Flags(0))

    def test_more_than_there_is(self) -> None:
        many = Size(1 << 42)
        self.expect("OUT_OF_MEMORY", "cuMemCreate", ctypes.byref(Handle()), many, self.properties(), Flags(0))

    def test_a_device_that_is_not_there(self) -> None:
        its = self.properties(device=9)
        self.expect("INVALID_DEVICE", "cuMemCreate", ctypes.byref(Handle()), Size(GRANULE), its, Flags(0))

    def test_a_fabric_handle_is_not_permitted(self) -> None:
        its = self.properties(handle_types=FABRIC)
        self.expect("NOT_PERMITTED", "cuMemCreate", ctypes.byref(Handle()), Size(GRANULE), its, Flags(0))

    def test_a_type_without_a_name_is_accepted_and_one_of_windows_is_not(self) -> None:
        for types, code in ((2, "INVALID_VALUE"), (16, "SUCCESS")):
            its, handle = self.properties(handle_types=types), Handle()
            self.expect(code, "cuMemCreate", ctypes.byref(handle), Size(GRANULE), its, Flags(0))
            if handle.value:
                self.ok("cuMemRelease", handle)


class Reservation(Row):
    def test_the_smallest_is_2_mib(self) -> None:
        for size in (0, 4096, 65536):
            self.expect(
                "INVALID_VALUE", "cuMemAddressReserve", ctypes.byref(Handle()), Size(size), Size(0), Handle(0), Flags(0)
            )
        assert self.reserve() % GRANULE == 0

    def test_alignment_3(self) -> None:
        self.expect(
            "INVALID_VALUE", "cuMemAddressReserve", ctypes.byref(Handle()), Size(GRANULE), Size(3), Handle(0), Flags(0)
        )

    def test_a_wanted_address_off_the_alignment(self) -> None:
        wanted = self.reserve(2 * GRANULE) // (2 * GRANULE) * 2 * GRANULE + GRANULE
        made, size, alignment = ctypes.byref(Handle()), Size(GRANULE), Size(2 * GRANULE)
        self.expect("INVALID_VALUE", "cuMemAddressReserve", made, size, alignment, Handle(wanted), Flags(0))

    def test_a_part_is_not_freed(self) -> None:
        address = self.reserve(2 * GRANULE)
        self.expect("INVALID_VALUE", "cuMemAddressFree", Handle(address), Size(GRANULE))
        self.expect("INVALID_VALUE", "cuMemAddressFree", Handle(address + GRANULE), Size(GRANULE))

    def test_nothing_is_freed_while_mapped(self) -> None:
        self.expect("INVALID_VALUE", "cuMemAddressFree", Handle(self.mapped()), Size(GRANULE))


class Mapping(Row):
    def test_an_offset_and_a_prefix_are_not_supported(self) -> None:
        handle, address = self.create(2 * GRANULE), self.reserve(2 * GRANULE)
        for offset in (0, GRANULE):
            self.expect(
                "NOT_SUPPORTED", "cuMemMap", Handle(address), Size(GRANULE), Size(offset), Handle(handle), Flags(0)
            )

    def test_more_than_the_allocation_is_not_supported_wherever_it_would_go(self) -> None:
        handle, address = self.create(), self.mapped()
        for size in (2 * GRANULE, 4 * GRANULE):  # over what is mapped, and past the end of the reservation
            self.expect("NOT_SUPPORTED", "cuMemMap", Handle(address), Size(size), Size(0), Handle(handle), Flags(0))

    def test_a_mapped_range_is_not_mapped_over(self) -> None:
        address, handle = self.mapped(), self.create()
        self.expect("INVALID_VALUE", "cuMemMap", Handle(address), Size(GRANULE), Size(0), Handle(handle), Flags(0))

    def test_a_part_is_not_unmapped(self) -> None:
        address = self.mapped(2 * GRANULE)
        self.expect("INVALID_VALUE", "cuMemUnmap", Handle(address), Size(GRANULE))
        self.expect("INVALID_VALUE", "cuMemUnmap", Handle(address + GRANULE), Size(GRANULE))
        self.write(address, b"still there")

    def test_two_whole_mappings_are_unmapped_at_once(self) -> None:
        address = self.reserve(3 * GRANULE)
        self.map(address, self.create())
        self.map(address + GRANULE, self.create(2 * GRANULE), 2 * GRANULE)
        self.expect("NOT_FOUND", "cuMemGetAddressRange", ctypes.byref(Handle()), ctypes.byref(Size()), Handle(address))
        self.open("SUCCESS", address, 3 * GRANULE, 0)
        assert self.range(address + GRANULE + 5) == (address + GRANULE, 2 * GRANULE)
        self.ok("cuMemUnmap", Handle(address), Size(3 * GRANULE))
        self.expect("NOT_FOUND", "cuMemGetAddressRange", ctypes.byref(Handle()), ctypes.byref(Size()), Handle(address))

    def test_no_access_to_what_is_not_mapped_or_not_aligned(self) -> None:
        self.open("INVALID_VALUE", self.reserve(), GRANULE, 0)
        address = self.mapped(2 * GRANULE)
        self.open("INVALID_VALUE", address + 4096, GRANULE, 0)
        self.open("INVALID_VALUE", address, 4096, 0)
        self.open("INVALID_VALUE", address, 2 * GRANULE, 9)

    def test_rights_of_a_place_of_no_kind_and_what_is_looked_at_first(self) -> None:
        address, host, flags = self.mapped(), ctypes.create_string_buffer(8), ctypes.c_uint64()
        nowhere = AccessDescription(location=Location(0, 0), flags=3)
        self.expect("INVALID_VALUE", "cuMemSetAccess", Handle(address), Size(GRANULE), ctypes.byref(nowhere), Size(1))
        for wrong in (Location(0, 0), Location(1, 9)):
            for where, code in ((0, "INVALID_VALUE"), (ctypes.addressof(host), "INVALID_DEVICE")):
                self.expect(code, "cuMemGetAccess", ctypes.byref(flags), ctypes.byref(wrong), Handle(where))
        place = ctypes.byref(Location(1, 0))
        self.expect("INVALID_VALUE", "cuMemGetAccess", ctypes.byref(flags), place, Handle(ctypes.addressof(host)))

    def test_a_fill_before_any_access_leaves_the_context_healthy(self) -> None:
        address = self.reserve()
        self.map(address, self.create())
        self.expect("INVALID_VALUE", "cuMemsetD8", Handle(address), ctypes.c_ubyte(1), Size(16))
        self.ok("cuCtxSynchronize")
        self.open("SUCCESS", address, GRANULE, 0)
        self.ok("cuMemsetD8", Handle(address), ctypes.c_ubyte(1), Size(16))
        assert self.read(address, 16) == b"\x01" * 16

    def test_two_mappings_of_one_handle_are_the_same_memory_with_two_ids(self) -> None:
        handle, one, other = self.create(), self.reserve(), self.reserve()
        for address in (one, other):
            self.map(address, handle)
            self.open("SUCCESS", address, GRANULE, 0, 1)
        self.write(one, b"shared")
        assert self.read(other, 6) == b"shared"
        assert self.attribute(BUFFER_ID, one) != self.attribute(BUFFER_ID, other)
        assert self.attribute(BUFFER_ID, one) == self.attribute(BUFFER_ID, one + GRANULE - 1)

    def test_the_range_of_a_mapped_address_is_its_reservation(self) -> None:
        address = self.reserve(2 * GRANULE)
        self.map(address + GRANULE, self.create())
        assert self.attribute(RANGE_START, address + GRANULE) == address
        assert self.attribute(RANGE_SIZE, address + GRANULE) == 2 * GRANULE


class Handles(Row):
    def test_retain_gives_the_same_handle(self) -> None:
        handle, address = self.create(), self.reserve()
        self.map(address, handle)
        assert self.made("cuMemRetainAllocationHandle", Handle(address + 5)) == handle
        self.ok("cuMemRelease", Handle(handle))

    def test_plain_memory_has_none(self) -> None:
        address = self.allocate(GRANULE)
        self.expect("INVALID_VALUE", "cuMemRetainAllocationHandle", ctypes.byref(Handle()), Handle(address))

    def test_an_import_is_a_handle_of_its_own(self) -> None:
        handle, descriptor = self.create(), ctypes.c_int()
        self.ok("cuMemExportToShareableHandle", ctypes.byref(descriptor), Handle(handle), POSIX, Flags(0))
        self.addCleanup(os.close, descriptor.value)
        imported = self.made("cuMemImportFromShareableHandle", ctypes.c_void_p(descriptor.value), POSIX)
        self.addCleanup(self.ok, "cuMemRelease", Handle(imported))
        assert imported != handle
        other = ctypes.byref(ctypes.c_int())
        self.expect("INVALID_VALUE", "cuMemExportToShareableHandle", other, Handle(imported), POSIX, Flags(0))

    def test_a_pipe_is_no_handle(self) -> None:
        ends = os.pipe()
        for end in ends:
            self.addCleanup(os.close, end)
        value = ctypes.c_void_p(ends[0])
        self.expect("UNKNOWN", "cuMemImportFromShareableHandle", ctypes.byref(Handle()), value, POSIX)
