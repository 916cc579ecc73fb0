"""Mutants of set-up and teardown: who takes part, and what is given back how often."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable
from typing import Final

from allranks.conformance.backend import RankContext
from allranks.conformance.backends.plain import Mapped, Members, Offer, PlainBackend, PlainChannels, PlainCommunicator
from allranks.conformance.corpus.specimen import Specimen
from allranks.errors import PeerLost, UsageError


class _CollectiveFree(PlainChannels):
    def __del__(self) -> None:
        """Meet the other ranks before the mappings go."""
        if not self.closed:
            self.owner.entered += 1
            with contextlib.suppress(PeerLost):
                self.owner.context.barrier("free")
        super().__del__()


class CollectiveFreeCommunicator(PlainCommunicator):
    """Frees channels together with the others, whenever the last reference to them goes."""

    channels_type = _CollectiveFree


class CollectiveFreeBackend(PlainBackend):
    """pytorch/pytorch#195500: garbage collection enters a collective free."""

    name = "collective-free"
    communicator = CollectiveFreeCommunicator


class EmptyReturnsCommunicator(PlainCommunicator):
    """Has nothing to do where there are no elements."""

    def all_reduce(self, send: int, receive: int, count: int, dtype: str, operation: str) -> None:
        """Return early."""
        if count != 0:
            super().all_reduce(send, receive, count, dtype, operation)

    def all_gather(self, send: int, receive: int, count: int, dtype: str) -> None:
        """Return early."""
        if count != 0:
            super().all_gather(send, receive, count, dtype)


class EmptyReturnsBackend(PlainBackend):
    """uccl-project/uccl#940, pytorch/pytorch#146468: a rank without elements does not come."""

    name = "empty-returns"
    communicator = EmptyReturnsCommunicator


class ExportsAloneCommunicator(PlainCommunicator):
    """Exports before it meets the others, so that a failure there is its own."""

    def __init__(self, context: RankContext) -> None:
        super().__init__(context)
        self.offer: Offer = ([], 0)

    def export(self, address: int, size_bytes: int, exported: contextlib.ExitStack) -> Offer:
        """Give what was exported already."""
        return self.offer

    def make_channels(self, address: int, size_bytes: int, members: Members = None) -> PlainChannels:
        """Export first."""
        with contextlib.ExitStack() as exported:
            self.offer = super().export(address, size_bytes, exported)
            return super().make_channels(address, size_bytes, members)


class ExportsAloneBackend(PlainBackend):
    """ROCm/rocm-systems#7192, meta-pytorch/torchcomms#3642: an export that fails on one rank blocks the others."""

    name = "exports-alone"
    communicator = ExportsAloneCommunicator


class HalfMappedCommunicator(PlainCommunicator):
    """Forgets what it had imported when the import of the next peer fails."""

    def map_all(self, offered: dict[int, Offer], channels: PlainChannels) -> None:
        """Import everything, then map it."""
        driver, context = self.context.driver, self.context
        imported = {
            peer: [(driver.mem_import(descriptor), size) for descriptor, size in pieces]
            for peer, (pieces, _) in offered.items()
            if peer != context.rank
        }
        for peer, handles in imported.items():
            channels.remote[peer] = (Mapped.of(driver, handles, context.device), offered[peer][1])


class HalfMappedBackend(PlainBackend):
    """ROCm/rocm-systems#10228, ROCm/rocm-systems#11819: a registration that fails midway leaves its first half."""

    name = "half-mapped"
    communicator = HalfMappedCommunicator


class ClosesTwiceCommunicator(PlainCommunicator):
    """Has memory of its own, and frees it at every close."""

    def __init__(self, context: RankContext) -> None:
        super().__init__(context)
        self.flags = context.driver.mem_alloc(4096)

    def close(self) -> None:
        """Give everything back, once more."""
        super().close()
        self.context.driver.mem_free(self.flags)


class ClosesTwiceBackend(PlainBackend):
    """NVIDIA/nccl#1482: a second destroy is one too many."""

    name = "closes-twice"
    communicator = ClosesTwiceCommunicator


class _UnmapsTwice(PlainChannels):
    def close(self) -> None:
        """Unmap, and give back, which unmaps: the driver does not mind an empty range."""
        if not self.closed:
            for mapped, _ in self.remote.values():
                mapped.driver.mem_unmap(mapped.address, mapped.size_bytes)
            super().close()


class UnmapsTwiceCommunicator(PlainCommunicator):
    """Has two owners for one mapping."""

    channels_type = _UnmapsTwice


class UnmapsTwiceBackend(PlainBackend):
    """pytorch/pytorch#160289: what one owner has given back another one gives back again."""

    name = "unmaps-twice"
    communicator = UnmapsTwiceCommunicator


class GlobalTagCommunicator(PlainCommunicator):
    """Numbers all set-ups of the process in one row, whoever takes part in them."""

    def next_tag(self, members: Members) -> Hashable:
        """Count everything."""
        self.made[None] += 1
        return self.made[None]


class GlobalTagBackend(PlainBackend):
    """microsoft/mscclpp#762: a tag a connection, and ranks with other sets of peers."""

    name = "global-tag"
    communicator = GlobalTagCommunicator


class RefusesSegmentsCommunicator(PlainCommunicator):
    """Cannot export memory of several pieces, and says so before it meets the others."""

    def connect(self, address: int, size_bytes: int) -> PlainChannels:
        """Look at the own region, and come to the step if it is one piece."""
        self.check_open()
        if len(self.segments(address, size_bytes)) > 1:
            raise UsageError(f"size_bytes={size_bytes}: memory of a growable allocator cannot be registered")
        return super().connect(address, size_bytes)


class RefusesSegmentsBackend(PlainBackend):
    """vllm-project/vllm#42609, sgl-project/sglang#27948: export fails on ranks whose allocator is a growable one."""

    name = "refuses-segments"
    communicator = RefusesSegmentsCommunicator


class FirstSegmentCommunicator(PlainCommunicator):
    """Exports the handle at the start of a region, and takes it for all of it."""

    def segments(self, address: int, size_bytes: int) -> list[tuple[int, int]]:
        """The first."""
        return super().segments(address, size_bytes)[:1]


class FirstSegmentBackend(PlainBackend):
    """vllm-project/vllm#42609: one handle for memory that has several."""

    name = "first-segment"
    communicator = FirstSegmentCommunicator


SPECIMENS: Final[tuple[Specimen, ...]] = (
    Specimen(
        name=CollectiveFreeBackend.name,
        kind="B",
        origins=("pytorch/pytorch#195500",),
        requirement="RDV-6",
        make=CollectiveFreeBackend,
    ),
    Specimen(
        name=EmptyReturnsBackend.name,
        kind="D",
        origins=("uccl-project/uccl#940", "pytorch/pytorch#146468"),
        requirement="RDV-5",
        make=EmptyReturnsBackend,
    ),
    Specimen(
        name=GlobalTagBackend.name,
        kind="D",
        origins=("microsoft/mscclpp#762",),
        requirement="RDV-7",
        make=GlobalTagBackend,
    ),
    Specimen(
        name=RefusesSegmentsBackend.name,
        kind="C",
        origins=("vllm-project/vllm#42609", "sgl-project/sglang#27948"),
        requirement="CACHE-9",
        make=RefusesSegmentsBackend,
    ),
    Specimen(
        name=FirstSegmentBackend.name,
        kind="E",
        origins=("vllm-project/vllm#42609",),
        requirement="CACHE-9",
        make=FirstSegmentBackend,
    ),
    Specimen(
        name=ExportsAloneBackend.name,
        kind="C",
        origins=("ROCm/rocm-systems#7192", "meta-pytorch/torchcomms#3642"),
        requirement="RDV-3",
        make=ExportsAloneBackend,
    ),
    Specimen(
        name=HalfMappedBackend.name,
        kind="J",
        origins=("ROCm/rocm-systems#10228", "ROCm/rocm-systems#11819"),
        requirement="LIFE-4",
        make=HalfMappedBackend,
    ),
    Specimen(
        name=ClosesTwiceBackend.name,
        kind="J",
        origins=("NVIDIA/nccl#1482",),
        requirement="LIFE-7",
        make=ClosesTwiceBackend,
    ),
    Specimen(
        name=UnmapsTwiceBackend.name,
        kind="J",
        origins=("pytorch/pytorch#160289",),
        requirement="LIFE-5",
        make=UnmapsTwiceBackend,
    ),
)
