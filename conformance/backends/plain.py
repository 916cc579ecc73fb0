"""A small communicator in plain Python: right, slow, and short enough to be read in one go.

It keeps no cache: every `connect` exchanges and maps anew. Collectives go through host memory. Whatever a rank does by
itself within a collective step it does by `PlainCommunicator.together`, so that a failure is every rank's. It shows
what a backend needs, and its methods are the places where the corpus puts faults back.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from allranks import sim
from allranks.conformance import data
from allranks.conformance.backend import RankContext
from allranks.driver import Driver
from allranks.errors import DriverError, Stalled, Timeout, UsageError, WorldError

T = TypeVar("T")
Members = tuple[int, ...] | None  # None: all ranks
Offer = tuple[list[tuple[int, int]], int]  # descriptors with sizes, and where the region begins in them


@dataclass(slots=True)
class Mapped:
    """Memory of a peer, or a multicast object, mapped into this rank's address space; it owns the handles."""

    driver: Driver
    handles: tuple[int, ...]
    address: int
    size_bytes: int

    @staticmethod
    def of(driver: Driver, pieces: list[tuple[int, int]], device: int) -> Mapped:
        """Map handles with their sizes side by side; they are given back with the mapping."""
        total = sum(size for _, size in pieces)
        with contextlib.ExitStack() as undo:
            address = driver.mem_address_reserve(total)
            undo.callback(driver.mem_address_free, address, total)
            end = address
            for handle, size in pieces:
                driver.mem_map(end, size, handle)
                undo.callback(driver.mem_unmap, end, size)
                end += size
            driver.mem_set_access(address, total, [device])
            undo.pop_all()
        return Mapped(driver, tuple(handle for handle, _ in pieces), address, total)

    @property
    def handle(self) -> int:
        """The first handle, which is the only one of a multicast object."""
        return self.handles[0]

    def close(self, *, release: bool = True) -> None:
        """Give everything back; a range that cannot be unmapped stays reserved."""
        with contextlib.ExitStack() as last:
            for handle in self.handles if release else ():
                last.callback(self.driver.mem_release, handle)
            self.driver.mem_unmap(self.address, self.size_bytes)
            self.driver.mem_address_free(self.address, self.size_bytes)


class PlainChannels:
    """Channels of one rank to the regions of all ranks, or of some. The tag is the same on all of them."""

    def __init__(self, owner: PlainCommunicator, remote: dict[int, tuple[Mapped, int]], tag: Hashable) -> None:
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
            with contextlib.ExitStack() as all_of_them:
                for mapped, _ in self.remote.values():
                    all_of_them.callback(mapped.close)

    def __del__(self) -> None:
        """Let go of without close: the same. Nobody can be told here of what fails; the communicator's close tells."""
        try:
            self.close()
        except DriverError as error:
            self.owner.failures.append(error)


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


class PlainCommunicator:
    """One rank's communicator."""

    channels_type: type[PlainChannels] = PlainChannels
    group_type: type[PlainGroup] = PlainGroup

    def __init__(self, context: RankContext) -> None:
        self.context = context
        self.signals: dict[tuple[Hashable, int, int], int] = context.shared("signals", dict)
        self.waited: dict[tuple[Hashable, int], int] = {}
        # What is alive, in the order in which it was made: the same on every rank, as no order of addresses is.
        self.living: weakref.WeakValueDictionary[int, PlainChannels | PlainGroup] = weakref.WeakValueDictionary()
        self.born = 0
        self.failures: list[DriverError] = []  # of what was let go of, until close tells
        self.made: Counter[Members] = Counter()
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

    def together(self, what: str, action: Callable[[], T], members: Members = None) -> list[T]:
        """Do something on every member, and give what it came to on each; if it failed on one, every one raises."""
        mine: T | None = None
        failure: DriverError | UsageError | None = None
        try:
            mine = action()
        except (DriverError, UsageError) as error:
            failure = error
        told = (mine, "" if failure is None else f"{self.context.rank}: {failure}")
        said = self.context.exchange(told, what, members)
        if failure is not None:
            raise failure
        for _, text in said:
            if text:
                raise WorldError(f"{what}: rank {text}")
        return [value for value, _ in said if value is not None]

    def segments(self, address: int, size_bytes: int) -> list[tuple[int, int]]:
        """Give the mappings, as (address, bytes), that a region lies in."""
        found = [self.context.driver.mem_address_range(address)]
        while (end := sum(found[-1])) < address + size_bytes:
            found.append(self.context.driver.mem_address_range(end))
        return found

    def connect(self, address: int, size_bytes: int) -> PlainChannels:
        """Get channels to the regions of all ranks."""
        self.check_open()
        return self.make_channels(address, size_bytes)

    def connect_among(self, members: tuple[int, ...], address: int, size_bytes: int) -> PlainChannels:
        """Get channels to the regions of some ranks."""
        self.check_open()
        return self.make_channels(address, size_bytes, members)

    def next_tag(self, members: Members) -> Hashable:
        """Count the set-ups of the same ranks: others have not seen them."""
        self.made[members] += 1
        return members, self.made[members]

    def make_channels(self, address: int, size_bytes: int, members: Members = None) -> PlainChannels:
        """Exchange handles and map what the others have. A rendezvous of all ranks, or of the members."""
        self.entered += 1
        channels = self.channels_type(self, {}, self.next_tag(members))
        with contextlib.ExitStack() as exported:
            offered = self.together("connect", lambda: self.export(address, size_bytes, exported), members)
            peers = dict(zip(members or range(self.context.rank_count), offered, strict=True))
            try:
                self.together("connected", lambda: self.map_all(peers, channels), members)
            except Exception:  # as above: what is mapped already goes
                channels.close()
                raise
        self.remember(channels)
        return channels

    def remember(self, made: PlainChannels | PlainGroup) -> None:
        """Close it at the end, if nobody does before."""
        self.living[self.born] = made
        self.born += 1

    def export(self, address: int, size_bytes: int, exported: contextlib.ExitStack) -> Offer:
        """Give descriptors and sizes of the memory that a region lies in, and the region's offset in it."""
        driver, segments = self.context.driver, self.segments(address, size_bytes)
        pieces = []
        for start, size in segments:
            handle = driver.mem_retain(start)
            try:
                descriptor = driver.mem_export(handle)
                exported.callback(self.give_up_descriptor, descriptor)
            finally:
                driver.mem_release(handle)
            pieces.append((descriptor, size))
        return pieces, address - segments[0][0]

    def give_up_descriptor(self, descriptor: int) -> None:
        """Close a descriptor that all ranks have seen."""
        os.close(descriptor)

    def map_all(self, offered: dict[int, Offer], channels: PlainChannels) -> None:
        """Map what the peers have offered."""
        driver, context = self.context.driver, self.context
        for peer, (pieces, offset) in offered.items():
            if peer != context.rank:
                with contextlib.ExitStack() as undo:
                    imported = []
                    for descriptor, size in pieces:
                        imported.append((driver.mem_import(descriptor), size))
                        undo.callback(driver.mem_release, imported[-1][0])
                    channels.remote[peer] = (Mapped.of(driver, imported, context.device), offset)
                    undo.pop_all()

    def object_bytes(self, capacity_bytes: int) -> int:
        """Give the size of the multicast object for a group of that capacity."""
        granularity = self.context.driver.multicast_granularity(capacity_bytes, self.context.rank_count)
        return -(-capacity_bytes // granularity) * granularity

    def open_group(self, capacity_bytes: int) -> PlainGroup:
        """Open a multicast object over all ranks' devices. Mapping it waits for the last device."""
        self.check_open()
        self.entered += 1
        driver, context = self.context.driver, self.context
        size = self.object_bytes(capacity_bytes)
        with contextlib.ExitStack() as exported, contextlib.ExitStack() as undo:
            created: list[int] = []

            def create() -> int:
                if context.rank != 0:
                    return -1
                created.append(driver.multicast_create(size, context.rank_count))
                undo.callback(driver.mem_release, created[0])
                descriptor = driver.mem_export(created[0])
                exported.callback(self.give_up_descriptor, descriptor)
                return descriptor

            def join() -> None:
                if context.rank != 0:
                    created.append(driver.mem_import(descriptors[0]))
                    undo.callback(driver.mem_release, created[0])
                self.add_device(created[0])

            def map_object() -> None:
                mapped.append(Mapped.of(driver, [(created[0], size)], context.device))

            descriptors = self.together("open_group", create)
            self.together("joined", join)
            mapped: list[Mapped] = []
            try:
                self.together("opened", map_object)
            except Exception:  # as above
                for made in mapped:
                    made.close(release=False)
                raise
            undo.pop_all()
        group = self.group_type(self, mapped[0], size)
        self.remember(group)
        return group

    def add_device(self, handle: int) -> None:
        """Add this rank's device to an object."""
        self.context.driver.multicast_add_device(handle, self.context.device)

    def give_back(self, mapped: Mapped) -> None:
        """Give a group's mapping and handle back."""
        mapped.close()

    def reduce(self, operands: list[bytes], dtype: str, operation: str) -> bytes:
        """Give the definition's result."""
        bits = np.uint16 if dtype == "bfloat16" else np.dtype(dtype)
        return data.reduced([np.frombuffer(raw, bits) for raw in operands], dtype, operation).tobytes()

    def collect(self, what: str, send: int, count: int, dtype: str) -> list[bytes]:
        """Give every rank's operand; all ranks bring the same number of elements."""
        operands = self.together(
            what, lambda: self.context.driver.copy_from_device(send, count * data.ITEM_BYTES[dtype])
        )
        sizes = [len(operand) for operand in operands]
        if len(set(sizes)) > 1:
            raise UsageError(f"{what}: count={count}: every rank brings as many elements; bytes by rank: {sizes}")
        return operands

    def all_reduce(self, send: int, receive: int, count: int, dtype: str, operation: str) -> None:
        """Reduce over all ranks, by way of the host."""
        self.check_open()
        result = self.reduce(self.collect("all_reduce", send, count, dtype), dtype, operation)
        self.together("all_reduced", lambda: self.context.driver.copy_to_device(receive, result))

    def all_gather(self, send: int, receive: int, count: int, dtype: str) -> None:
        """Gather from all ranks, by way of the host."""
        self.check_open()
        result = b"".join(self.collect("all_gather", send, count, dtype))
        self.together("all_gathered", lambda: self.context.driver.copy_to_device(receive, result))

    def close(self) -> None:
        """Give everything back; what failed, then or when something was let go of, is raised when all was tried."""
        if self.closed:
            return
        self.closed = True
        with contextlib.ExitStack() as all_of_them:
            for made in list(self.living.values()):
                all_of_them.callback(made.close)
        if self.failures:
            raise self.failures[0]


class PlainBackend:
    """The backend of the plain communicator."""

    name = "plain"
    communicator: type[PlainCommunicator] = PlainCommunicator

    def capabilities(self, context: RankContext) -> frozenset[str]:
        """Everything; multicast where the device has it."""
        always = {"channels", "subsets", "all_reduce", "all_gather", "rendezvous_count"}
        return frozenset(always | ({"multicast"} if context.driver.multicast_supported(context.device) else set()))

    def open(self, context: RankContext) -> PlainCommunicator:
        """Make a communicator."""
        return self.communicator(context)
