"""Multicast groups of `plain`: an object that is mapped once, and buffers that are bound in it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from allranks.conformance import data
from allranks.conformance.backends.plain_channels import Mapped
from allranks.errors import DriverError, UsageError

if TYPE_CHECKING:
    from allranks.conformance.backends.plain import PlainCommunicator


@dataclass(slots=True)
class PlainBinding:
    """A buffer of every rank at one offset of a multicast object."""

    group: PlainGroup
    offset_bytes: int
    size_bytes: int

    @property
    def address(self) -> int:
        """Address through which stores reach all ranks."""
        return self.group.address_of(self)

    def store(self, offset_bytes: int, stored: bytes) -> None:
        """Store bytes into the buffers of all ranks."""
        self.group.owner.context.driver.copy_to_device(self.address + offset_bytes, stored)

    def load_reduce(self, offset_bytes: int, count: int, dtype: str, operation: str) -> bytes:
        """Give the reduction over all ranks, by way of the host: there are no kernels here."""
        owner = self.group.owner
        driver, size = owner.context.driver, count * data.ITEM_BYTES[dtype]
        address = self.group.local[self.offset_bytes] + offset_bytes
        operands = owner.together("load_reduce", lambda: driver.copy_from_device(address, size))
        return owner.reduce(operands, dtype, operation)

    def unbind(self) -> None:
        """Take the buffer out of the object on every rank."""
        group = self.group
        if self.offset_bytes not in group.taken:
            raise UsageError(f"offset_bytes={self.offset_bytes}: nothing is bound there any more")
        group.owner.together("unbind", lambda: group.take_out(self.offset_bytes))
        del group.taken[self.offset_bytes]


@dataclass(slots=True, weakref_slot=True, eq=False)
class PlainGroup:
    """A multicast object that every rank has mapped once, as a whole."""

    owner: PlainCommunicator
    mapped: Mapped
    capacity_bytes: int
    taken: dict[int, int] = field(default_factory=dict)  # offset -> bytes
    bound: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # offset -> this rank's (offset, bytes)
    local: dict[int, int] = field(default_factory=dict)  # offset -> this rank's own address
    closed: bool = False

    def address_of(self, binding: PlainBinding) -> int:
        """Where a binding's bytes are: the object is mapped from its offset 0."""
        return self.mapped.address + binding.offset_bytes

    def find_offset(self, size_bytes: int) -> int | None:
        """First fit; the same on every rank, because every rank has bound the same sizes in the same order."""
        offset = 0
        for start, size in sorted(self.taken.items()):
            if offset + size_bytes <= start:
                break
            offset = start + size
        return offset if offset + size_bytes <= self.capacity_bytes else None

    def bind(self, address: int, size_bytes: int) -> PlainBinding:
        """Bind this rank's buffer; all ranks get the same offset, or all an error."""
        owner = self.owner
        offered = owner.together("bind", lambda: self.offer(address, size_bytes))
        bound = max(size for _, size in offered)
        offset = self.find_offset(bound)
        if any(inside for inside, _ in offered) or len({size for _, size in offered}) > 1 or offset is None:
            raise UsageError(f"size_bytes={size_bytes}: the ranks' buffers do not fit into the group: {offered}")
        self.taken[offset] = bound
        self.local[offset] = address
        try:
            owner.together("bound", lambda: self.put_in(offset, owner.segments(address, size_bytes)))
        except Exception:  # whatever failed on whichever rank: the group is as before
            self.take_out(offset)
            del self.taken[offset]
            raise
        return PlainBinding(self, offset, size_bytes)

    def offer(self, address: int, size_bytes: int) -> tuple[int, int]:
        """Give where in its memory a buffer begins, and how large that memory is."""
        segments = self.owner.segments(address, size_bytes)
        return address - segments[0][0], sum(size for _, size in segments)

    def put_in(self, offset: int, segments: list[tuple[int, int]]) -> None:
        """Bind this rank's memory, piece by piece."""
        driver, pieces = self.owner.context.driver, self.bound.setdefault(offset, [])
        for address, size in segments:
            memory = driver.mem_retain(address)
            try:
                driver.multicast_bind_mem(self.mapped.handle, offset, memory, 0, size)
                pieces.append((offset, size))
            finally:
                driver.mem_release(memory)
            offset += size

    def take_out(self, offset: int) -> None:
        """Unbind what this rank has bound at an offset."""
        context, pieces = self.owner.context, self.bound.get(offset, [])
        while pieces:
            context.driver.multicast_unbind(self.mapped.handle, context.device, *pieces[-1])
            pieces.pop()
        self.bound.pop(offset, None)

    def close(self) -> None:
        """Give the object back; what is bound still is taken out first."""
        if self.closed:
            return
        self.closed = True
        with contextlib.ExitStack() as last:
            last.callback(self.owner.give_back, self.mapped)
            for offset in sorted(self.taken, reverse=True):
                last.callback(self.take_out, offset)
        self.taken.clear()

    def __del__(self) -> None:
        """Let go of without close: all of it is this rank's own to give back."""
        try:
            self.close()
        except DriverError as error:
            self.owner.failures.append(error)
