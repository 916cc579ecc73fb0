"""Mutants that remember wrongly: what a peer's memory is, who uses an entry, how often something was retained."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Hashable
from typing import Final

from allranks import refimpl
from allranks.conformance.backend import RankContext
from allranks.conformance.backends.plain import PlainBackend, PlainChannels, PlainCommunicator
from allranks.conformance.backends.refimpl import ReferenceBackend
from allranks.conformance.corpus.caching import Agreed, CachingBackend, CachingCommunicator, Entry, LentChannels, Told
from allranks.conformance.corpus.specimen import Specimen


class AddressKeyCommunicator(CachingCommunicator):
    """Recognises a region by its address and size, for ever; all ranks agree on the hit."""

    def key(self, address: int, size_bytes: int) -> Hashable:
        """Where it lies."""
        return address, size_bytes

    def gone(self, entry: Entry) -> bool:
        """An address cannot die."""
        return False


class AddressKeyBackend(CachingBackend):
    """openucx/ucx#2738, pmodels/mpich#7302, ofiwg/libfabric#7893."""

    name = "address-key"
    communicator = AddressKeyCommunicator


class AddressOnlyPolicy(refimpl.ChannelCachePolicy):
    """Recognises a region by its base address, whatever its extent; all ranks agree on the hit."""

    def key(self, region: refimpl.RegionIdentity) -> bytes:
        """Where it begins."""
        return str(region.address).encode()


class AddressOnlyBackend(ReferenceBackend):
    """NVIDIA/nccl#1828: the same base registered again with a larger extent."""

    name = "base-only"

    def options(self, context: RankContext) -> refimpl.Options:
        """A cache that does not look at sizes."""
        return dataclasses.replace(super().options(context), channel_cache=AddressOnlyPolicy())


class BufferKeyCommunicator(CachingCommunicator):
    """Recognises a region by the buffer that it is in, whatever its place there."""

    def key(self, address: int, size_bytes: int) -> Hashable:
        """Which buffer."""
        return self.context.driver.buffer_id(address)


class BufferKeyBackend(CachingBackend):
    """microsoft/mscclpp#649: another offset of the same allocation."""

    name = "buffer-key"
    communicator = BufferKeyCommunicator


class SmallCacheCommunicator(CachingCommunicator):
    """Keeps two entries, and evicts the oldest, used or not."""

    capacity = 2

    def make_room(self, used: frozenset[int]) -> None:
        """Two are enough."""
        super().make_room(frozenset({self.entries - 1}))


class SmallCacheBackend(CachingBackend):
    """pmodels/mpich#7977: a cache smaller than the working set."""

    name = "evicts-in-use"
    communicator = SmallCacheCommunicator


class _UncountedChannels(LentChannels):
    def close(self) -> None:
        """The first who is done unmaps for all."""
        super().close()
        self.entry.channels.close()


class UncountedCommunicator(CachingCommunicator):
    """Counts no users of a mapping."""

    lent_type = _UncountedChannels

    def gone(self, entry: Entry) -> bool:
        """What is unmapped is set up again for the next who wants it."""
        return entry.channels.closed or super().gone(entry)

    def decide(self, said: list[Told]) -> Agreed:
        """Nobody uses anything."""
        agreed = super().decide(said)
        return Agreed(-1 if agreed.entry in agreed.dead else agreed.entry, agreed.dead, frozenset())


class UncountedBackend(CachingBackend):
    """openucx/ucx#11777: one of two users ends, and the other's mapping is gone."""

    name = "first-close-unmaps"
    communicator = UncountedCommunicator


class DoubleReleaseCommunicator(PlainCommunicator):
    """Keeps the handle of what it exported until close, and releases it twice."""

    def __init__(self, context: RankContext) -> None:
        super().__init__(context)
        self.retained: list[int] = []

    def connect(self, address: int, size_bytes: int) -> PlainChannels:
        """Retain what is registered."""
        self.check_open()
        self.retained.append(self.context.driver.mem_retain(address))
        return super().connect(address, size_bytes)

    def close(self) -> None:
        """Once for the registration, once for the buffer."""
        super().close()
        retained, self.retained = self.retained, []
        for handle in retained:
            self.context.driver.mem_release(handle)
            self.context.driver.mem_release(handle)


class DoubleReleaseBackend(PlainBackend):
    """flagos-ai/FlagCX#469: a retained handle is released twice."""

    name = "double-release"
    communicator = DoubleReleaseCommunicator


class ContextPerCallCommunicator(CachingCommunicator):
    """Counts its calls into the key, so that a constant buffer is a new one every time; nothing is evicted."""

    capacity = 1 << 30

    def __init__(self, context: RankContext) -> None:
        super().__init__(context)
        self.calls = 0

    def key(self, address: int, size_bytes: int) -> Hashable:
        """Never seen before."""
        self.calls += 1
        return self.calls

    def gone(self, entry: Entry) -> bool:
        """Nobody looks."""
        return False


class ContextPerCallBackend(CachingBackend):
    """microsoft/mscclpp#855: contexts grow with every call on one buffer."""

    name = "context-per-call"
    communicator = ContextPerCallCommunicator


class OpenDescriptorCommunicator(PlainCommunicator):
    """Leaves the descriptor of every export open."""

    def give_up_descriptor(self, descriptor: int) -> None:
        """Forget it."""


class OpenDescriptorBackend(PlainBackend):
    """ofiwg/libfabric#12828, pmodels/mpich#7887: a descriptor a registration."""

    name = "open-descriptors"
    communicator = OpenDescriptorCommunicator


class AddressOrderCommunicator(PlainCommunicator):
    """Puts registrations off until channels are used, and then goes through them by address, as a sorted set does."""

    def __init__(self, context: RankContext) -> None:
        super().__init__(context)
        self.pending: list[tuple[int, int, weakref.ref[PlainChannels]]] = []

    def connect(self, address: int, size_bytes: int) -> PlainChannels:
        """Note the region."""
        self.check_open()
        channels = _Deferred(self, self.next_tag(None))
        self.remember(channels)
        self.pending.append((address, size_bytes, weakref.ref(channels)))
        return channels

    def flush(self) -> None:
        """Register what is pending, in the order of this rank's addresses."""
        pending, self.pending = sorted(self.pending, key=lambda noted: noted[0]), []
        for address, size, wanted in pending:
            made = self.make_channels(address, size)
            channels = wanted()
            if channels is not None:
                channels.remote, made.remote = made.remote, {}


class _Deferred(PlainChannels):
    """Channels that are registered when they are first used."""

    def __init__(self, owner: AddressOrderCommunicator, tag: Hashable) -> None:
        super().__init__(owner, {}, tag)
        self.communicator = owner

    def put(self, peer: int, destination_offset_bytes: int, source_address: int, size_bytes: int) -> None:
        """Register first."""
        if peer not in self.remote:
            self.communicator.flush()
        super().put(peer, destination_offset_bytes, source_address, size_bytes)


class AddressOrderBackend(PlainBackend):
    """pytorch/pytorch#167662: segments are registered in the order of each rank's addresses."""

    name = "address-order"
    communicator = AddressOrderCommunicator


SPECIMENS: Final[tuple[Specimen, ...]] = (
    Specimen(
        name=AddressKeyBackend.name,
        kind="E",
        origins=("openucx/ucx#2738", "pmodels/mpich#7302", "ofiwg/libfabric#7893"),
        requirement="CACHE-2",
        make=AddressKeyBackend,
    ),
    Specimen(
        name=AddressOnlyBackend.name,
        kind="E",
        origins=("NVIDIA/nccl#1828",),
        requirement="CACHE-3",
        make=AddressOnlyBackend,
    ),
    Specimen(
        name=BufferKeyBackend.name,
        kind="E",
        origins=("microsoft/mscclpp#649",),
        requirement="CACHE-4",
        make=BufferKeyBackend,
    ),
    Specimen(
        name=SmallCacheBackend.name,
        kind="F",
        origins=("pmodels/mpich#7977",),
        requirement="CACHE-5",
        make=SmallCacheBackend,
    ),
    Specimen(
        name=UncountedBackend.name,
        kind="F",
        origins=("openucx/ucx#11777",),
        requirement="CACHE-6",
        make=UncountedBackend,
    ),
    Specimen(
        name=DoubleReleaseBackend.name,
        kind="F",
        origins=("flagos-ai/FlagCX#469",),
        requirement="CACHE-6",
        make=DoubleReleaseBackend,
    ),
    Specimen(
        name=ContextPerCallBackend.name,
        kind="I",
        origins=("microsoft/mscclpp#855",),
        requirement="CACHE-7",
        make=ContextPerCallBackend,
    ),
    Specimen(
        name=OpenDescriptorBackend.name,
        kind="I",
        origins=("ofiwg/libfabric#12828", "pmodels/mpich#7887"),
        requirement="LIFE-2",
        make=OpenDescriptorBackend,
    ),
    Specimen(
        name=AddressOrderBackend.name,
        kind="B",
        origins=("pytorch/pytorch#167662",),
        requirement="CACHE-1",
        make=AddressOrderBackend,
    ),
)
