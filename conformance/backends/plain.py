"""A small communicator in plain Python: right, slow, and short enough to be read in one go.

It keeps no cache: every `connect` exchanges and maps anew. Collectives go through host memory. It shows what a backend
needs, and its methods are the places where the corpus puts faults back.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from dataclasses import dataclass, field

import numpy as np

from allranks import sim
from allranks.conformance import data
from allranks.conformance.backend import RankContext
from allranks.driver import Driver
from allranks.errors import DriverError, Stalled, Timeout, UsageError


@dataclass(slots=True)
class Mapped:
    """Memory of a peer, or a multicast object, mapped into this rank's address space."""

    driver: Driver
    handle: int
    address: int
    size_bytes: int

    @staticmethod
    def of(driver: Driver, handle: int, size_bytes: int, device: int) -> Mapped:
        """Map a handle, which is given back with the mapping."""
        address = driver.mem_address_reserve(size_bytes)
        driver.mem_map(address, size_bytes, handle)
        driver.mem_set_access(address, size_bytes, [device])
        return Mapped(driver, handle, address, size_bytes)

    def close(self, *, release: bool = True) -> None:
        """Give everything back."""
        self.driver.mem_unmap(self.address, self.size_bytes)
        self.driver.mem_address_free(self.address, self.size_bytes)
        if release:
            self.driver.mem_release(self.handle)


class PlainChannels:
    """Channels of one rank to the regions of all ranks."""

    def __init__(self, owner: PlainCommunicator, remote: dict[int, tuple[Mapped, int]], tag: int) -> None:
        self.owner = owner
        self.remote = remote
        self.tag = tag
        self.closed = False

    def put(self, peer: int, destination_offset_bytes: int, source_address: int, size_bytes: int) -> None:
        """Write memory of this rank into the peer's region."""
        mapped, offset = self.remote[peer]
        driver = self.owner.context.driver
        driver.copy_to_device(
            mapped.address + offset + destination_offset_bytes, driver.copy_from_device(source_address, size_bytes)
        )

    def signal(self, peer: int) -> None:
        """Tell the peer that all earlier puts to it are there."""
        counts = self.owner.signals
        counts[self.tag, self.owner.context.rank, peer] = counts.get((self.tag, self.owner.context.rank, peer), 0) + 1
        sim.notify(id(counts))

    def wait(self, peer: int) -> None:
        """Wait for the next signal of the peer."""
        owner, context = self.owner, self.owner.context
        seen = owner.waited.get((self.tag, peer), 0) + 1
        result = sim.wait(
            lambda: owner.signals.get((self.tag, peer, context.rank), 0) >= seen,
            call="wait for a signal",
            object=f"channels #{self.tag}",
            waits_for=lambda: [peer],
            key=id(owner.signals),
            timeout_s=context.timeout_s,
        )
        if result is not sim.WaitResult.READY:
            kind = Timeout if result is sim.WaitResult.TIMEOUT else Stalled
            raise kind(f"rank {context.rank}: no signal of rank {peer}", ranks=(peer,), rank=context.rank)
        owner.waited[self.tag, peer] = seen

    def close(self) -> None:
        """Give the mappings back; nothing that a peer takes part in."""
        if not self.closed:
            self.closed = True
            for mapped, _ in self.remote.values():
                mapped.close()

    def __del__(self) -> None:
        """Let go of without close: the same. A rank that was unwound has nothing left to give back."""
        with contextlib.suppress(DriverError):
            self.close()


@dataclass(slots=True)
class PlainBinding:
    """A buffer of every rank at one offset of a multicast object."""

    group: PlainGroup
    offset_bytes: int
    bound_bytes: int
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
        size = count * data.ITEM_BYTES[dtype]
        own = owner.context.driver.copy_from_device(self.group.local[self.offset_bytes] + offset_bytes, size)
        return owner.reduce(owner.context.exchange(own, "load_reduce"), dtype, operation)

    def unbind(self) -> None:
        """Take the buffer out of the object on every rank."""
        group = self.group
        if self.offset_bytes not in group.taken:
            raise UsageError(f"offset_bytes={self.offset_bytes}: nothing is bound there any more")
        context = group.owner.context
        context.driver.multicast_unbind(group.mapped.handle, context.device, self.offset_bytes, self.bound_bytes)
        del group.taken[self.offset_bytes]
        context.exchange(None, "unbind")


@dataclass(slots=True, weakref_slot=True, eq=False)
class PlainGroup:
    """A multicast object that every rank has mapped once, as a whole."""

    owner: PlainCommunicator
    mapped: Mapped
    capacity_bytes: int
    granularity_bytes: int
    taken: dict[int, int] = field(default_factory=dict)  # offset -> bytes
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
        context = self.owner.context
        base, mapped_bytes = context.driver.mem_address_range(address)
        offered = context.exchange((address - base, mapped_bytes), "bind")
        bound = max(size for _, size in offered)
        offset = self.find_offset(bound)
        if any(inside for inside, _ in offered) or len({size for _, size in offered}) > 1 or offset is None:
            raise UsageError(f"size_bytes={size_bytes}: the ranks' buffers do not fit into the group: {offered}")
        memory = context.driver.mem_retain(address)
        try:
            context.driver.multicast_bind_mem(self.mapped.handle, offset, memory, 0, bound)
        finally:
            context.driver.mem_release(memory)
        self.taken[offset] = bound
        self.local[offset] = address
        context.exchange(None, "bound")
        return PlainBinding(self, offset, bound, size_bytes)

    def close(self) -> None:
        """Give the object back; what is bound still is taken out first."""
        if self.closed:
            return
        self.closed = True
        context = self.owner.context
        for offset, size in sorted(self.taken.items()):
            context.driver.multicast_unbind(self.mapped.handle, context.device, offset, size)
        self.taken.clear()
        self.owner.give_back(self.mapped)

    def __del__(self) -> None:
        """Let go of without close: all of it is this rank's own to give back."""
        with contextlib.suppress(DriverError):
            self.close()


class PlainCommunicator:
    """One rank's communicator."""

    group_type: type[PlainGroup] = PlainGroup

    def __init__(self, context: RankContext) -> None:
        self.context = context
        self.signals: dict[tuple[int, int, int], int] = context.shared("signals", dict)
        self.waited: dict[tuple[int, int], int] = {}
        self.channels: weakref.WeakSet[PlainChannels] = weakref.WeakSet()
        self.groups: weakref.WeakSet[PlainGroup] = weakref.WeakSet()
        self.made = 0
        self.entered = 0
        self.closed = False

    @property
    def rendezvous_count(self) -> int:
        """Internal rendezvous entered so far: one a set-up."""
        return self.entered

    def check_open(self) -> None:
        """Refuse to be used after close."""
        if self.closed:
            raise UsageError(f"rank {self.context.rank}: the communicator is closed")

    def connect(self, address: int, size_bytes: int) -> PlainChannels:
        """Get channels to the regions of all ranks."""
        self.check_open()
        return self.make_channels(address, size_bytes)

    def make_channels(self, address: int, size_bytes: int) -> PlainChannels:
        """Exchange handles and map what the others have. A rendezvous of all ranks."""
        self.entered += 1
        driver, context = self.context.driver, self.context
        base, mapped_bytes = driver.mem_address_range(address)
        handle = driver.mem_retain(address)
        descriptor = driver.mem_export(handle)
        driver.mem_release(handle)
        remote: dict[int, tuple[Mapped, int]] = {}
        try:
            offered = context.exchange((descriptor, address - base, mapped_bytes), "connect")
            for peer, (other, offset, size) in enumerate(offered):
                if peer != context.rank:
                    imported = driver.mem_import(other)
                    remote[peer] = (Mapped.of(driver, imported, size, context.device), offset)
            context.exchange(None, "connected")
        finally:
            os.close(descriptor)
        channels = PlainChannels(self, remote, self.made)
        self.made += 1
        self.channels.add(channels)
        return channels

    def open_group(self, capacity_bytes: int) -> PlainGroup:
        """Open a multicast object over all ranks' devices."""
        self.check_open()
        self.entered += 1
        driver, context = self.context.driver, self.context
        granularity = driver.multicast_granularity(capacity_bytes, context.rank_count)
        size = -(-capacity_bytes // granularity) * granularity
        made: tuple[int, str] | None = None
        if context.rank == 0:
            try:
                made = (driver.multicast_create(size, context.rank_count), "")
            except RuntimeError as error:
                made = (0, str(error))
        handle, descriptor = 0, -1
        if made is not None and made[0]:
            handle = made[0]
            descriptor = driver.mem_export(handle)
        offered, failure = context.exchange((descriptor, made[1] if made else ""), "open_group")[0]
        if failure:
            raise RuntimeError(f"rank 0: {failure}")
        if context.rank != 0:
            handle = driver.mem_import(offered)
        driver.multicast_add_device(handle, context.device)
        group = self.group_type(self, Mapped.of(driver, handle, size, context.device), size, granularity)
        context.exchange(None, "opened")
        if descriptor >= 0:
            os.close(descriptor)
        self.groups.add(group)
        return group

    def give_back(self, mapped: Mapped) -> None:
        """Give a group's mapping and handle back."""
        mapped.close()

    def reduce(self, operands: list[bytes], dtype: str, operation: str) -> bytes:
        """Give the definition's result."""
        bits = np.uint16 if dtype == "bfloat16" else np.dtype(dtype)
        return data.reduced([np.frombuffer(raw, bits) for raw in operands], dtype, operation).tobytes()

    def all_reduce(self, send: int, receive: int, count: int, dtype: str, operation: str) -> None:
        """Reduce over all ranks, by way of the host."""
        self.check_open()
        own = self.context.driver.copy_from_device(send, count * data.ITEM_BYTES[dtype])
        result = self.reduce(self.context.exchange(own, "all_reduce"), dtype, operation)
        self.context.driver.copy_to_device(receive, result)

    def all_gather(self, send: int, receive: int, count: int, dtype: str) -> None:
        """Gather from all ranks, by way of the host."""
        self.check_open()
        own = self.context.driver.copy_from_device(send, count * data.ITEM_BYTES[dtype])
        self.context.driver.copy_to_device(receive, b"".join(self.context.exchange(own, "all_gather")))

    def close(self) -> None:
        """Give everything back."""
        if self.closed:
            return
        for channels in list(self.channels):
            channels.close()
        for group in list(self.groups):
            group.close()
        self.closed = True


class PlainBackend:
    """The backend of the plain communicator."""

    name = "plain"
    communicator: type[PlainCommunicator] = PlainCommunicator

    def capabilities(self, context: RankContext) -> frozenset[str]:
        """Everything; multicast where the device has it."""
        always = {"channels", "all_reduce", "all_gather", "rendezvous_count"}
        return frozenset(always | ({"multicast"} if context.driver.multicast_supported(context.device) else set()))

    def open(self, context: RankContext) -> PlainCommunicator:
        """Make a communicator."""
        return self.communicator(context)
