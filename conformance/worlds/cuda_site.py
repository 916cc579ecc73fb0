"""A rank's place on a real CUDA driver: the device of its own number, and buffers by the driver's own calls.

Nothing watches the communicator here, as in host memory: the driver keeps no ledger and no log. Memory in use on a
device is no measure of a communicator either, for other processes may share it.

A placement is kept as far as a driver keeps it. Mapped buffers (`vmm` and `segments`) get the address that they wish
for if it is free and the driver gives it, and with `never_reuse` one that no buffer has had. Everything else lies where
the driver puts it; measured on H200 with driver 580, that is where a buffer of the same size was just freed.

Source: cuda.h of CUDA 13; docs/hardware-facts.md has what was measured.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from allranks.conformance.backend import MemorySpace
from allranks.conformance.program import MemoryKind
from allranks.conformance.worlds.site import Block, Where
from allranks.driver import Driver
from allranks.errors import DriverError

# Where buffers wish to be that want the same address on every rank: one slot a step. Within 47 bits, below where
# libraries and stacks of a process are.
_EQUAL_BASE: Final = 0x2000_0000_0000
_EQUAL_STRIDE: Final = 1 << 36
_EQUAL_SLOTS: Final = 256
_TRIES: Final = 64  # how many reservations are held to come by an address that is new


class CudaSite:
    """The site of a rank that is a process of its own.

    Parameters
    ----------
    driver : Driver
        A real driver; or the simulated one, as an ordinary library.
    device : int
        The rank's device.
    shift_bytes : int
        How much address space is reserved before anything else, so that ranks differ in addresses.
    """

    memory_space: MemorySpace = "device"

    def __init__(self, driver: Driver, device: int, shift_bytes: int = 0) -> None:
        self.driver = driver
        self.device = device
        self.shift_bytes = shift_bytes
        self.granularity_bytes = 0  # 0: not open
        self.live: dict[int, Block] = {}
        self._ever: list[tuple[int, int]] = []  # (start, end) of what was given since it was opened
        self._shift = (0, 0)  # address and size of the reservation that nothing is in

    def enter(self, order: int) -> None:
        """Nobody takes turns here."""

    def leave(self) -> None:
        """Nobody takes turns here."""

    def label(self, step: int, operation: str, *, owner: int = 0) -> None:
        """There is no log that a label could go into."""

    def open(self) -> None:
        """Make the device current."""
        self.driver.init()
        self.driver.set_device(self.device)
        self.granularity_bytes = self.driver.mem_granularity(self.device)
        self._ever.clear()
        size = self.shift_bytes // self.granularity_bytes * self.granularity_bytes
        if size:
            self._shift = (self.driver.mem_address_reserve(size), size)

    def close(self) -> None:
        """Take back what was not freed, and let go of the device; the first error is raised after all was tried."""
        if not self.granularity_bytes:
            return
        self.granularity_bytes = 0
        (shift, size), self._shift = self._shift, (0, 0)
        left: list[Callable[[], None]] = [partial(self.free, block) for block in self.live.values()]
        if size:
            left.append(partial(self.driver.mem_address_free, shift, size))
        _all(*left, partial(self.driver.reset_device, self.device))

    def equal_address(self, number: int) -> int:
        """Give an address that is free on every rank, as a rule; whether the driver gives it is its affair."""
        return _EQUAL_BASE + (number % _EQUAL_SLOTS) * _EQUAL_STRIDE

    def allocate(self, size_bytes: int, kind: MemoryKind, where: Where) -> Block:
        """Get a buffer by driver calls. It is all zero, so that what is written beside it shows."""
        if kind == "plain":
            block = Block(self.driver.mem_alloc(size_bytes), size_bytes)
        else:
            block = self._map(size_bytes, where, segmented=kind == "segments")
        self.live[block.address] = block
        size = block.mapped_bytes or size_bytes
        self._ever.append((block.address, block.address + size))
        try:
            self.driver.memset8(block.address, 0, size)
            self._settle(block.address)
        except BaseException:
            self.free(block)
            raise
        return block

    def _map(self, size_bytes: int, where: Where, *, segmented: bool) -> Block:
        driver, granularity = self.driver, self.granularity_bytes
        mapped = -(-size_bytes // granularity) * granularity
        piece = granularity if segmented else mapped
        handles: list[int] = []
        address, pieces_mapped = 0, 0
        try:
            handles.extend(driver.mem_create(piece, self.device) for _ in range(0, mapped, piece))
            address = self._reserve(mapped, where)
            for handle in handles:
                driver.mem_map(address + pieces_mapped * piece, piece, handle)
                pieces_mapped += 1
            driver.mem_set_access(address, mapped, [self.device])
        except BaseException:
            if pieces_mapped:
                driver.mem_unmap(address, pieces_mapped * piece)
            for handle in handles:
                driver.mem_release(handle)
            if address:
                driver.mem_address_free(address, mapped)
            raise
        return Block(address, size_bytes, mapped, tuple(handles))

    def _reserve(self, size: int, where: Where) -> int:
        if where.wish and where.wish % self.granularity_bytes == 0:
            try:
                return self.driver.mem_address_reserve(size, 0, where.wish)
            except DriverError:
                pass  # an address that this driver gives to nobody
        return self._unused(size) if where.rule == "never_reuse" else self.driver.mem_address_reserve(size)

    def _unused(self, size: int) -> int:
        """Reserve addresses that no buffer has had: the driver gives others while those are held."""
        held: list[int] = []
        try:
            for _ in range(_TRIES):
                found = self.driver.mem_address_reserve(size)
                if not any(found < end and start < found + size for start, end in self._ever):
                    return found
                held.append(found)
            return self.driver.mem_address_reserve(size)
        finally:
            for address in held:
                self.driver.mem_address_free(address, size)

    def free(self, block: Block) -> None:
        """Give a buffer back by driver calls; the first error is raised after all were tried."""
        del self.live[block.address]
        driver = self.driver
        if block.mapped_bytes == 0:
            driver.mem_free(block.address)
            return
        _all(
            partial(driver.mem_unmap, block.address, block.mapped_bytes),
            *(partial(driver.mem_release, handle) for handle in block.handles),
            partial(driver.mem_address_free, block.address, block.mapped_bytes),
        )

    def _settle(self, address: int) -> None:
        """Wait until what was written has arrived: a copy back comes after it on the same stream, and has a result.

        A copy to the device may return while it is still on its way, and other streams do not wait for it.
        """
        self.driver.copy_from_device(address, 1)

    def _check(self, address: int, size: int) -> None:
        for block in self.live.values():
            if block.address <= address and address + size <= block.address + (block.mapped_bytes or block.size_bytes):
                return
        raise ValueError(f"address={address:#x} size={size}: not within a live block")

    def peek(self, address: int, size: int) -> bytes:
        """Read; ValueError if it is not within one live block.

        It does not wait for the communicator's own streams: what is said to be done has to be.
        """
        self._check(address, size)
        return self.driver.copy_from_device(address, size)

    def poke(self, address: int, data: bytes | bytearray | memoryview | npt.NDArray[Any]) -> None:
        """Write; ValueError if it is not within one live block. It is there on return, for every stream."""
        size = data.nbytes if isinstance(data, np.ndarray | memoryview) else len(data)
        self._check(address, size)
        if size:
            self.driver.copy_to_device(address, data)
            self._settle(address)

    def resolve(self, address: int, size: int) -> None:
        """A driver does not tell which allocation an address of another process's making leads to."""

    def usage(self) -> None:
        """Others may use the same device: what is in use there says nothing of a communicator."""

    def calls(self) -> None:
        """Nobody logs the calls."""


def _all(*calls: Callable[[], object]) -> None:
    """Make all calls; the first error is raised afterwards."""
    first: Exception | None = None
    for call in calls:
        try:
            call()
        except Exception as error:  # noqa: BLE001 -- raised below
            first = first or error
    if first is not None:
        raise first


def cuda_sites(library: str, device: int) -> Callable[[int], CudaSite]:
    """Open a driver in this process, for good, and give what makes sites of a device, by their shift.

    The device is kept as long as the process lives: else every Program would begin with a new context.
    """
    driver = Driver.load(library)
    driver.init()
    driver.set_device(device)
    return lambda shift_bytes: CudaSite(driver, device, shift_bytes)
