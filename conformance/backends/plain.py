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
from typing import TypeVar

import numpy as np

from allranks.conformance import data
from allranks.conformance.backend import RankContext
from allranks.conformance.backends.plain_channels import Mapped, PlainChannels
from allranks.conformance.backends.plain_group import PlainBinding, PlainGroup
from allranks.errors import DriverError, UsageError, WorldError

__all__ = [
    "Mapped",
    "Members",
    "Offer",
    "PlainBackend",
    "PlainBinding",
    "PlainChannels",
    "PlainCommunicator",
    "PlainGroup",
]

T = TypeVar("T")
Members = tuple[int, ...] | None  # None: all ranks
Offer = tuple[list[tuple[int, int]], int]  # descriptors with sizes, and where the region begins in them


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
