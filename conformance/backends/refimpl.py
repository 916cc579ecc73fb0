"""The reference communicator as a backend. The one file of conformance that knows it."""

from __future__ import annotations

from typing import cast

from allranks import refimpl
from allranks.conformance.backend import RankContext
from allranks.errors import UsageError


class ReferenceChannels:
    """Channels of the reference: what was put is done when the peer's wait for the signal after it returns."""

    def __init__(self, channels: refimpl.Channels) -> None:
        self.channels = channels

    def put(self, peer: int, destination_offset_bytes: int, source_address: int, size_bytes: int) -> None:
        """Write memory of this rank into the peer's region."""
        self.channels.put(peer, destination_offset_bytes, source_address, size_bytes)

    def signal(self, peer: int) -> None:
        """Tell the peer that all earlier puts to it are there."""
        self.channels.signal(peer)

    def wait(self, peer: int) -> None:
        """Wait for the next signal of the peer."""
        self.channels.wait(peer)
        self.channels.flush()

    def close(self) -> None:
        """Drop this rank's reference."""
        self.channels.close()


class SubsetChannels(ReferenceChannels):
    """Channels of a communicator of some ranks, by the ranks of all."""

    def __init__(self, channels: refimpl.Channels, members: tuple[int, ...]) -> None:
        super().__init__(channels)
        self.members = members

    def put(self, peer: int, destination_offset_bytes: int, source_address: int, size_bytes: int) -> None:
        """Write memory of this rank into the peer's region."""
        super().put(self.members.index(peer), destination_offset_bytes, source_address, size_bytes)

    def signal(self, peer: int) -> None:
        """Tell the peer that all earlier puts to it are there."""
        super().signal(self.members.index(peer))

    def wait(self, peer: int) -> None:
        """Wait for the next signal of the peer."""
        super().wait(self.members.index(peer))


class ReferenceBinding:
    """A bound region of the reference. Letting go of it lets go of the reference's own object."""

    def __init__(self, binding: refimpl.Binding) -> None:
        self.binding = binding

    @property
    def address(self) -> int:
        """Address through which stores reach the buffers of all ranks."""
        return self.binding.address

    @property
    def offset_bytes(self) -> int:
        """Offset in the multicast object."""
        return self.binding.offset_bytes

    def store(self, offset_bytes: int, data: bytes) -> None:
        """Store bytes at an offset of the buffers of all ranks."""
        self.binding.store(offset_bytes, data)

    def load_reduce(self, offset_bytes: int, count: int, dtype: str, operation: str) -> bytes:
        """Give the reduction over all ranks."""
        data_type, kind = cast(refimpl.DataType, dtype), cast(refimpl.Operation, operation)
        return self.binding.load_reduce(offset_bytes, count, data_type, kind)

    def unbind(self) -> None:
        """Take the buffer out again."""
        self.binding.unbind()


class ReferenceGroup:
    """A multicast group of the reference."""

    def __init__(self, group: refimpl.MulticastGroup) -> None:
        self.group = group

    @property
    def capacity_bytes(self) -> int:
        """Bytes that can be bound."""
        return self.group.capacity_bytes

    def bind(self, address: int, size_bytes: int) -> ReferenceBinding:
        """Bind a buffer."""
        return ReferenceBinding(self.group.bind(address, size_bytes))

    def close(self) -> None:
        """Give the object back."""
        self.group.close()


class ReferenceCommunicator:
    """One rank's reference communicator; collectives are done on return."""

    def __init__(self, context: RankContext, options: refimpl.Options) -> None:
        meeting = context.shared("rendezvous", lambda: refimpl.InProcessRendezvous(context.rank_count))
        self.context = context
        self.options = options
        self.communicator = refimpl.Communicator(
            bootstrap=meeting.bootstrap(context.rank), driver=context.driver, device=context.device, options=options
        )
        self.subsets: dict[tuple[int, ...], refimpl.Communicator] = {}

    @property
    def rendezvous_count(self) -> int:
        """Host rendezvous entered so far."""
        return self.communicator.rendezvous_count

    def connect(self, address: int, size_bytes: int) -> ReferenceChannels:
        """Connect everybody's region."""
        return ReferenceChannels(self.communicator.connect(address, size_bytes))

    def connect_among(self, members: tuple[int, ...], address: int, size_bytes: int) -> SubsetChannels:
        """Connect the regions of some ranks, by a communicator of their own."""
        if self.communicator.closed:
            raise UsageError(f"rank {self.context.rank}: the communicator is closed")
        communicator, context = self.subsets.get(members), self.context
        if communicator is None:
            meeting = context.shared(("rendezvous", members), lambda: refimpl.InProcessRendezvous(len(members)))
            communicator = self.subsets[members] = refimpl.Communicator(
                bootstrap=meeting.bootstrap(members.index(context.rank)),
                driver=context.driver,
                device=context.device,
                options=self.options,
            )
        return SubsetChannels(communicator.connect(address, size_bytes), members)

    def open_group(self, capacity_bytes: int) -> ReferenceGroup:
        """Open a multicast group."""
        return ReferenceGroup(self.communicator.open_multicast(capacity_bytes))

    def all_reduce(self, send: int, receive: int, count: int, dtype: str, operation: str) -> None:
        """Reduce, and wait for it."""
        data_type, kind = cast(refimpl.DataType, dtype), cast(refimpl.Operation, operation)
        self.communicator.all_reduce(send, receive, count, data_type, kind)
        self.communicator.synchronize()

    def all_gather(self, send: int, receive: int, count: int, dtype: str) -> None:
        """Gather, and wait for it."""
        self.communicator.all_gather(send, receive, count, cast(refimpl.DataType, dtype))
        self.communicator.synchronize()

    def close(self) -> None:
        """Give everything back."""
        for subset in self.subsets.values():
            subset.close()
        self.communicator.close()


class ReferenceBackend:
    """The backend of the reference communicator."""

    name = "refimpl"

    def capabilities(self, context: RankContext) -> frozenset[str]:
        """Everything; multicast where the device has it."""
        always = {"channels", "channel_cache", "subsets", "all_reduce", "all_gather", "rendezvous_count"}
        return frozenset(always | ({"multicast"} if context.driver.multicast_supported(context.device) else set()))

    def options(self, context: RankContext) -> refimpl.Options:
        """Give what it is opened with; mutants replace policies here."""
        # Low enough for small Programs to go by multicast too.
        return refimpl.Options(timeout_s=context.timeout_s, multicast_threshold_bytes=1024)

    def open(self, context: RankContext) -> ReferenceCommunicator:
        """Make a communicator."""
        return ReferenceCommunicator(context, self.options(context))
