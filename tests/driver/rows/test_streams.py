"""Streams and events, and what only a simulated driver is asked. Measured on H200 with driver 580, else as cuda.h."""

from __future__ import annotations

import ctypes

from tests.driver.differential.abi import GRANULE, Handle
from tests.driver.rows.client import Row, Size


class Streams(Row):
    def test_flags_that_are_unknown(self) -> None:
        self.expect("INVALID_VALUE", "cuStreamCreate", ctypes.byref(Handle()), 5)

    def test_a_priority_is_kept_within_the_range(self) -> None:
        for wanted, kept in ((0, 0), (-1, -1), (-5, -5), (-9, -5), (3, 0)):
            made, told = Handle(), ctypes.c_int(7)
            self.ok("cuStreamCreateWithPriority", ctypes.byref(made), 1, wanted)
            self.addCleanup(self.ok, "cuStreamDestroy", made)
            self.ok("cuStreamGetPriority", made, ctypes.byref(told))
            assert told.value == kept

    def test_flags_are_looked_at_before_the_context(self) -> None:
        self.enter(None)
        made = ctypes.byref(Handle())
        for flags, code in ((5, "INVALID_VALUE"), (0, "INVALID_CONTEXT"), (1, "INVALID_CONTEXT")):
            self.expect(code, "cuStreamCreate", made, flags)
            self.expect(code, "cuStreamCreateWithPriority", made, flags, -1)

    def test_only_a_default_stream_needs_a_context(self) -> None:
        event, stream = self.event(), self.stream()
        for current in (None, 1):
            self.enter(current)
            self.ok("cuEventRecord", Handle(event), Handle(stream))
            self.ok("cuStreamWaitEvent", Handle(stream), Handle(event), 0)
            self.ok("cuStreamGetFlags", Handle(stream), ctypes.byref(ctypes.c_int()))
            self.ok("cuStreamSynchronize", Handle(stream))
        self.enter(None)
        self.expect("INVALID_CONTEXT", "cuStreamQuery", Handle(0))

    def test_what_is_looked_at_first_when_an_event_is_recorded(self) -> None:
        event, stream = self.event(), self.stream()
        self.enter(1)
        elsewhere = self.stream()
        self.expect("INVALID_HANDLE", "cuEventRecordWithFlags", Handle(0), Handle(elsewhere), 64)
        self.expect("INVALID_VALUE", "cuEventRecordWithFlags", Handle(event), Handle(elsewhere), 64)
        self.expect("INVALID_HANDLE", "cuEventRecordWithFlags", Handle(event), Handle(elsewhere), 0)
        self.expect("INVALID_HANDLE", "cuEventRecord", Handle(event), Handle(0))
        self.ok("cuEventRecordWithFlags", Handle(event), Handle(stream), 0)

    def test_an_event_that_was_never_recorded_is_done(self) -> None:
        event = self.event()
        self.ok("cuEventQuery", Handle(event))
        self.ok("cuEventSynchronize", Handle(event))
        self.ok("cuStreamWaitEvent", Handle(self.stream(1)), Handle(event), 0)

    def test_time_between_events(self) -> None:
        start, end, stream = self.event(), self.event(), self.stream()
        value = ctypes.c_float(-1.0)
        self.expect("INVALID_HANDLE", "cuEventElapsedTime", ctypes.byref(value), Handle(start), Handle(end))
        for event in (start, end):
            self.ok("cuEventRecord", Handle(event), Handle(stream))
        self.ok("cuStreamSynchronize", Handle(stream))
        self.ok("cuEventElapsedTime", ctypes.byref(value), Handle(start), Handle(end))
        assert value.value >= 0.0

    def test_work_is_done_in_order(self) -> None:
        one, other, event, address = self.stream(1), self.stream(1), self.event(2), self.allocate(4096)
        self.ok("cuMemsetD8Async", Handle(address), ctypes.c_ubyte(1), Size(4096), Handle(one))
        self.ok("cuEventRecord", Handle(event), Handle(one))
        self.ok("cuStreamWaitEvent", Handle(other), Handle(event), 0)
        self.ok("cuMemsetD8Async", Handle(address), ctypes.c_ubyte(2), Size(2048), Handle(other))
        self.ok("cuStreamSynchronize", Handle(other))
        assert self.read(address, 4096) == b"\x02" * 2048 + b"\x01" * 2048


class MulticastProperties(ctypes.Structure):
    """``CUmulticastObjectProp``."""

    _fields_ = (
        ("devices", ctypes.c_uint),
        ("size", Size),
        ("handle_types", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
    )


class Multicast(Row):
    """On the simulated driver alone: no real one is ever asked."""

    def test_a_write_reaches_every_device_of_the_team(self) -> None:
        if not self.library.simulated:
            self.skipTest("a real driver: only where simcuVersion is found")
        simulated = self.library.call_simulated
        team = Handle()
        wanted = MulticastProperties(devices=2, size=GRANULE)
        assert simulated("cuMulticastCreate", ctypes.byref(team), ctypes.byref(wanted)) == 0
        self.addCleanup(self.ok, "cuMemRelease", team)
        memory = []
        for device in (0, 1):
            assert simulated("cuMulticastAddDevice", team, device) == 0
        for device in (0, 1):
            handle, address = self.create(device=device), self.reserve()
            self.map(address, handle)
            self.open("SUCCESS", address, GRANULE, 0)
            bound = simulated("cuMulticastBindMem", team, Size(0), Handle(handle), Size(0), Size(GRANULE), Handle(0))
            assert bound == 0
            memory.append(address)
        everyone = self.reserve()
        self.map(everyone, int(team.value))
        self.open("SUCCESS", everyone, GRANULE, 0)
        self.ok("cuMemsetD8", Handle(everyone), ctypes.c_ubyte(7), Size(64))
        assert [self.read(address, 64) for address in memory] == [b"\x07" * 64] * 2
