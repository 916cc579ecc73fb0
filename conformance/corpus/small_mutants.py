"""Mutants of the plain communicator."""

from __future__ import annotations

from typing import Final

from allranks.conformance.backend import RankContext
from allranks.conformance.backends.plain import (
    Mapped,
    PlainBackend,
    PlainChannels,
    PlainCommunicator,
)
from allranks.conformance.corpus.specimen import Specimen


class LocalKeyCommunicator(PlainCommunicator):
    """Looks channels up by what this rank sees of its own buffer, and creates them if it finds none."""

    def __init__(self, context: RankContext) -> None:
        super().__init__(context)
        self.cache: dict[tuple[int, int], PlainChannels] = {}

    def connect(self, address: int, size_bytes: int) -> PlainChannels:
        """Decide alone whether there is anything to set up."""
        self.check_open()
        found = self.cache.get((address, size_bytes))
        if found is None:
            found = self.cache[address, size_bytes] = self.make_channels(address, size_bytes)
        return found


class LocalKeyBackend(PlainBackend):
    """microsoft/mscclpp#388, #417."""

    name = "plain-local-key"
    communicator = LocalKeyCommunicator


class KeptHandleCommunicator(PlainCommunicator):
    """Unmaps a group's object and forgets to release its handle."""

    def give_back(self, mapped: Mapped) -> None:
        """Everything but the handle."""
        mapped.close(release=False)


class KeptHandleBackend(PlainBackend):
    """microsoft/mscclpp#535, second half, and #759."""

    name = "plain-kept-handle"
    communicator = KeptHandleCommunicator


SPECIMENS: Final[tuple[Specimen, ...]] = (
    Specimen(
        name=LocalKeyBackend.name,
        kind="A",
        origins=("microsoft/mscclpp#388", "microsoft/mscclpp#417"),
        requirement="RDV-2",
        make=LocalKeyBackend,
    ),
    Specimen(
        name=KeptHandleBackend.name,
        kind="I",
        origins=("microsoft/mscclpp#535", "microsoft/mscclpp#759"),
        requirement="LIFE-2",
        make=KeptHandleBackend,
    ),
)
