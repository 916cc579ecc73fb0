"""Mutants of multicast groups: what shares a mapping, and what becomes of errors."""

from __future__ import annotations

import weakref
from typing import Final

from allranks.conformance.backend import RankContext
from allranks.conformance.backends.plain import PlainBackend, PlainBinding, PlainCommunicator, PlainGroup
from allranks.conformance.corpus.specimen import Specimen
from allranks.errors import DriverError, UsageError


class _SharingGroup(PlainGroup):
    __slots__ = ()

    def address_of(self, binding: PlainBinding) -> int:
        """In the mapping of the communicator's first group, as long as there is one."""
        assert isinstance(self.owner, SharedMappingCommunicator)
        first = self.owner.first()
        return (first or self).mapped.address + binding.offset_bytes


class SharedMappingCommunicator(PlainCommunicator):
    """Lets all groups use the mapping of the first."""

    group_type = _SharingGroup

    def __init__(self, context: RankContext) -> None:
        super().__init__(context)
        self.sharing: weakref.ref[PlainGroup] | None = None

    def first(self) -> PlainGroup | None:
        """Give the group whose mapping is shared, if it is still open."""
        group = None if self.sharing is None else self.sharing()
        return None if group is None or group.closed else group

    def open_group(self, capacity_bytes: int) -> PlainGroup:
        """Open one; the first lends its mapping to the others."""
        group = super().open_group(capacity_bytes)
        if self.first() is None:
            self.sharing = weakref.ref(group)
        return group


class SharedMappingBackend(PlainBackend):
    """NVIDIA/nccl#2430: a second group runs on resources of the first."""

    name = "shared-mapping"
    communicator = SharedMappingCommunicator


class _RefusesAlone(PlainGroup):
    __slots__ = ()

    def bind(self, address: int, size_bytes: int) -> PlainBinding:
        """Look whether the own buffer fits, and come to the step if it does."""
        _, bytes_there = self.offer(address, size_bytes)
        if bytes_there + sum(self.taken.values()) > self.capacity_bytes:
            raise UsageError(f"size_bytes={size_bytes}: does not fit into what is left of {self.capacity_bytes}")
        return super().bind(address, size_bytes)


class RefusesAloneCommunicator(PlainCommunicator):
    """Checks a bind before it meets the other ranks."""

    group_type = _RefusesAlone


class RefusesAloneBackend(PlainBackend):
    """microsoft/mscclpp#554, pytorch/pytorch#195596: a rank that sees no room leaves the others in the step."""

    name = "refuses-alone"
    communicator = RefusesAloneCommunicator


class SilentAddCommunicator(PlainCommunicator):
    """Goes on when its device could not be added to an object."""

    def add_device(self, handle: int) -> None:
        """Hope for the best."""
        try:
            super().add_device(handle)
        except DriverError:
            return


class SilentAddBackend(PlainBackend):
    """pytorch/pytorch#195596: a rank fails to add its device, and the others believe in the object."""

    name = "silent-add"
    communicator = SilentAddCommunicator


class _SilentUnbind(PlainGroup):
    __slots__ = ()

    def take_out(self, offset: int) -> None:
        """Unbind, and say that it went well."""
        try:
            PlainGroup.take_out(self, offset)
        except DriverError:
            self.bound.pop(offset, None)


class SilentUnbindCommunicator(PlainCommunicator):
    """Reports success whatever unbinding answered."""

    group_type = _SilentUnbind


class SilentUnbindBackend(PlainBackend):
    """NVIDIA/nccl#2117, NVIDIA/nccl#2116: a failing unbind is a successful deregistration."""

    name = "silent-unbind"
    communicator = SilentUnbindCommunicator


SPECIMENS: Final[tuple[Specimen, ...]] = (
    Specimen(
        name=SharedMappingBackend.name,
        kind="G",
        origins=("NVIDIA/nccl#2430",),
        requirement="NVLS-8",
        make=SharedMappingBackend,
    ),
    Specimen(
        name=RefusesAloneBackend.name,
        kind="C",
        origins=("microsoft/mscclpp#554", "pytorch/pytorch#195596"),
        requirement="NVLS-2",
        make=RefusesAloneBackend,
    ),
    Specimen(
        name=SilentAddBackend.name,
        kind="H",
        origins=("pytorch/pytorch#195596",),
        requirement="NVLS-7",
        make=SilentAddBackend,
    ),
    Specimen(
        name=SilentUnbindBackend.name,
        kind="H",
        origins=("NVIDIA/nccl#2117", "NVIDIA/nccl#2116"),
        requirement="LIFE-4",
        make=SilentUnbindBackend,
    ),
)
