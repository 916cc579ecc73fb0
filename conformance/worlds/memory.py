"""The user's buffers on one rank: allocated, freed, read and written as a user of the communicator would."""

from __future__ import annotations

from dataclasses import dataclass

from allranks import sim
from allranks.conformance.program import Allocate
from allranks.conformance.trace import Placed
from allranks.driver import Driver
from allranks.errors import DriverError

# Where buffers go that want the same address on every rank: one slot a step, far above everything else.
_EQUAL_BASE = (1 << 48) + (1 << 47)
_EQUAL_STRIDE = 1 << 38
_EQUAL_SLOTS = 256


@dataclass(slots=True)
class UserBuffer:
    """One allocation of the user."""

    ordinal: int
    address: int
    size_bytes: int
    mapped_bytes: int = 0  # 0: plain
    handles: tuple[int, ...] = ()


class UserMemory:
    """All buffers of one rank."""

    def __init__(
        self, driver: Driver, process: sim.Process, device: int, granularity_bytes: int, scratch_bytes: int
    ) -> None:
        self.driver = driver
        self.process = process
        self.device = device
        self.granularity_bytes = granularity_bytes
        self.live: dict[int, UserBuffer] = {}
        self.scratch = driver.mem_alloc(scratch_bytes) if scratch_bytes else 0
        self._freed: dict[int, int] = {}  # base address -> ordinal of the buffer that had it last
        self._last_freed = 0

    def _place(self, step: Allocate, number: int) -> None:
        if step.placement == "reuse":
            self.process.wish(self._last_freed)
        elif step.placement == "equal":
            self.process.wish(_EQUAL_BASE + (number % _EQUAL_SLOTS) * _EQUAL_STRIDE)
        else:
            self.process.place(step.placement)

    def allocate(self, ordinal: int, step: Allocate, number: int) -> Placed:
        """Allocate a buffer, and say where it lies."""
        self._place(step, number)
        try:
            if step.kind == "plain":
                buffer = UserBuffer(ordinal, self.driver.mem_alloc(step.size_bytes), step.size_bytes)
            else:
                buffer = self._map(ordinal, step.size_bytes, segmented=step.kind == "segments")
        finally:
            self.process.place("low")
            self.process.wish(0)
        self.live[ordinal] = buffer
        pieces = tuple(
            (piece.allocation, piece.offset_bytes, piece.size_bytes)
            for piece in self.process.resolve(buffer.address, buffer.size_bytes)
        )
        return Placed(pieces=pieces, same_base_as=self._freed.get(buffer.address, -1))

    def fresh(self, size_bytes: int) -> UserBuffer:
        """Give a buffer that no step knows of."""
        buffer = self.live.get(-1)
        if buffer is None:
            buffer = self.live[-1] = self._map(-1, size_bytes)
        return buffer

    def _map(self, ordinal: int, size_bytes: int, *, segmented: bool = False) -> UserBuffer:
        driver, granularity = self.driver, self.granularity_bytes
        mapped = -(-size_bytes // granularity) * granularity
        piece = granularity if segmented else mapped
        handles: list[int] = []
        address, pieces_mapped = 0, 0
        try:
            handles.extend(driver.mem_create(piece, self.device, True) for _ in range(0, mapped, piece))
            address = driver.mem_address_reserve(mapped)
            for handle in handles:
                driver.mem_map(address + pieces_mapped * piece, piece, handle)
                pieces_mapped += 1
            driver.mem_set_access(address, mapped, [self.device])
        except BaseException:
            if pieces_mapped:
                driver.mem_unmap(address, pieces_mapped * piece)
            if address:
                driver.mem_address_free(address, mapped)
            for handle in handles:
                driver.mem_release(handle)
            raise
        return UserBuffer(ordinal, address, size_bytes, mapped, tuple(handles))

    def free(self, ordinal: int) -> None:
        """Free a buffer."""
        buffer = self.live.pop(ordinal)
        self._freed[buffer.address] = ordinal
        self._last_freed = buffer.address
        if buffer.mapped_bytes == 0:
            self.driver.mem_free(buffer.address)
            return
        self.driver.mem_unmap(buffer.address, buffer.mapped_bytes)
        for handle in buffer.handles:
            self.driver.mem_release(handle)
        self.driver.mem_address_free(buffer.address, buffer.mapped_bytes)

    def free_all(self) -> None:
        """Free what is left; the first error is raised after all were tried."""
        first: DriverError | None = None
        for ordinal in list(self.live):
            try:
                self.free(ordinal)
            except DriverError as error:
                first = first or error
        if self.scratch:
            self.driver.mem_free(self.scratch)
            self.scratch = 0
        if first is not None:
            raise first
