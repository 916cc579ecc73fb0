"""A rank's place on the simulated driver: a virtual process, whose calls are labelled, logged and counted."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from allranks import sim
from allranks.conformance.backend import MemorySpace
from allranks.conformance.program import MemoryKind
from allranks.conformance.worlds.site import Block, Where
from allranks.driver import Driver

# Where buffers go that want the same address on every rank: one slot a step, far above everything else.
_EQUAL_BASE: Final = (1 << 48) + (1 << 47)
_EQUAL_STRIDE: Final = 1 << 38
_EQUAL_SLOTS: Final = 256
_ANYWHERE: Final = Where()


class SimSite:
    """The site of a rank in world `threads`: it runs as a task of the turnstile.

    Parameters
    ----------
    node : sim.Node
        What all ranks are on.
    process : sim.Process
        The rank's own.
    driver : Driver
        The simulated driver.
    device : int
        The rank's device.
    granularity_bytes : int
        What `vmm` buffers are rounded up to.
    """

    memory_space: MemorySpace = "device"
    label = staticmethod(sim.label)
    leave = staticmethod(sim.leave)

    def __init__(
        self, node: sim.Node, process: sim.Process, driver: Driver, device: int, granularity_bytes: int
    ) -> None:
        self.node = node
        self.process = process
        self.driver = driver
        self.device = device
        self.granularity_bytes = granularity_bytes
        # A step reads and writes memory all the time: no call in between.
        self.peek = process.peek
        self.poke = process.poke
        self.resolve = process.resolve
        self.enter = process.enter

    def open(self) -> None:
        """Make the device current."""
        self.driver.init()
        self.driver.set_device(self.device)

    def close(self) -> None:
        """Give the device's context back."""
        self.driver.reset_device(self.device)

    def equal_address(self, number: int) -> int:
        """Give an address that is free on every rank, as a rule."""
        return _EQUAL_BASE + (number % _EQUAL_SLOTS) * _EQUAL_STRIDE

    def allocate(self, size_bytes: int, kind: MemoryKind, where: Where) -> Block:
        """Get a buffer by driver calls."""
        if where == _ANYWHERE:  # the usual case: nothing to say before, nothing to take back after
            return self._allocate(size_bytes, kind)
        if where.wish:
            self.process.wish(where.wish)
        else:
            self.process.place(where.rule)
        try:
            return self._allocate(size_bytes, kind)
        finally:
            self.process.place(_ANYWHERE.rule)
            self.process.wish(_ANYWHERE.wish)

    def _allocate(self, size_bytes: int, kind: MemoryKind) -> Block:
        if kind == "plain":
            return Block(self.driver.mem_alloc(size_bytes), size_bytes)
        return self._map(size_bytes, segmented=kind == "segments")

    def _map(self, size_bytes: int, *, segmented: bool) -> Block:
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
        return Block(address, size_bytes, mapped, tuple(handles))

    def free(self, block: Block) -> None:
        """Give a buffer back by driver calls."""
        if block.mapped_bytes == 0:
            self.driver.mem_free(block.address)
            return
        self.driver.mem_unmap(block.address, block.mapped_bytes)
        for handle in block.handles:
            self.driver.mem_release(handle)
        self.driver.mem_address_free(block.address, block.mapped_bytes)

    def usage(self) -> tuple[int, int, int]:
        """Give what the whole node has in use."""
        return self.node.used()

    def calls(self) -> npt.NDArray[np.void]:
        """Give the call log of the process."""
        return self.process.calls()
