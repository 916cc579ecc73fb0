"""Mutants of the reference communicator: its public policies, replaced."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Final

from allranks import refimpl
from allranks.conformance.backend import RankContext
from allranks.conformance.backends.refimpl import ReferenceBackend
from allranks.conformance.corpus.specimen import Specimen


class LocalKeyPolicy(refimpl.ChannelCachePolicy):
    """Looks channels up by this rank's own (base address, size), and decides alone whether it has them."""

    def key(self, region: refimpl.RegionIdentity) -> bytes:
        """What this rank sees."""
        return f"{region.address}:{region.size}".encode()

    def decide(self, mine: list[int], exchange: Callable[[Sequence[int]], list[list[int]]]) -> list[int]:
        """Ask nobody."""
        return mine


class LocalKeyBackend(ReferenceBackend):
    """microsoft/mscclpp#388, #417."""

    name = "local-key"

    def options(self, context: RankContext) -> refimpl.Options:
        """A cache that decides by itself."""
        return dataclasses.replace(super().options(context), channel_cache=LocalKeyPolicy())


class FirstOffsetPolicy(refimpl.MulticastPolicy):
    """Maps every buffer at multicast offset 0."""

    def address_of(self, base: int, offset: int) -> int:
        """The object's first byte, for all."""
        return base


class FirstOffsetBackend(ReferenceBackend):
    """microsoft/mscclpp#535, first half."""

    name = "first-offset"

    def options(self, context: RankContext) -> refimpl.Options:
        """Bindings that all start where the mapping does."""
        return dataclasses.replace(super().options(context), multicast=FirstOffsetPolicy())


class KeptHandlePolicy(refimpl.ReleasePolicy):
    """Never releases the handle of a multicast object."""

    def gives_back(self, resource: str) -> bool:
        """Everything else."""
        return resource != "multicast_object"


class KeptHandleBackend(ReferenceBackend):
    """microsoft/mscclpp#535, second half, and #759."""

    name = "kept-handle"

    def options(self, context: RankContext) -> refimpl.Options:
        """Objects that are never given back."""
        return dataclasses.replace(super().options(context), release=KeptHandlePolicy())


SPECIMENS: Final[tuple[Specimen, ...]] = (
    Specimen(
        name=LocalKeyBackend.name,
        kind="A",
        origins=("microsoft/mscclpp#388", "microsoft/mscclpp#417"),
        requirement="RDV-2",
        make=LocalKeyBackend,
    ),
    Specimen(
        name=FirstOffsetBackend.name,
        kind="G",
        origins=("microsoft/mscclpp#535",),
        requirement="NVLS-1",
        make=FirstOffsetBackend,
    ),
    Specimen(
        name=KeptHandleBackend.name,
        kind="I",
        origins=("microsoft/mscclpp#535", "microsoft/mscclpp#759"),
        requirement="LIFE-2",
        make=KeptHandleBackend,
    ),
)
