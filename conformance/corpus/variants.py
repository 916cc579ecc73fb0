"""Right communicators that are unusual: no check may take them for wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Final, TypeVar

from allranks import refimpl, sim
from allranks.conformance.backend import RankContext
from allranks.conformance.backends.plain import Members, PlainBackend, PlainBinding, PlainCommunicator, PlainGroup
from allranks.conformance.backends.refimpl import ReferenceBackend
from allranks.conformance.corpus.caching import Agreed, CachingBackend, CachingCommunicator, Told
from allranks.conformance.corpus.specimen import Specimen
from allranks.errors import UsageError

T = TypeVar("T")


class NeverHitsPolicy(refimpl.ChannelCachePolicy):
    """Asks all ranks, as ever, and uses no entry."""

    def decide(self, mine: list[int], exchange: Callable[[list[int]], list[list[int]]]) -> list[int]:
        """Nobody has anything."""
        exchange([0] * len(mine))
        return [0] * len(mine)


class NoCacheBackend(ReferenceBackend):
    """The reference, making channels anew at every step."""

    name = "no-cache"

    def capabilities(self, context: RankContext) -> frozenset[str]:
        """All but the cache."""
        return super().capabilities(context) - {"channel_cache"}

    def options(self, context: RankContext) -> refimpl.Options:
        """Without hits there is nothing to read and write in place."""
        options = super().options(context)
        return dataclasses.replace(options, channel_cache=NeverHitsPolicy(), zero_copy=False, cache_capacity=64)


class ExplicitWindowsBackend(PlainBackend):
    """Offers what the user registers, and no collectives on any other memory."""

    name = "explicit-windows"

    def capabilities(self, context: RankContext) -> frozenset[str]:
        """Windows: channels, and multicast groups."""
        return super().capabilities(context) - {"all_reduce", "all_gather"}


class RootDecidesCommunicator(CachingCommunicator):
    """Has the last rank decide for all, and tell them."""

    def agree(self, mine: Told) -> Agreed:
        """Two messages instead of one."""
        said = self.context.exchange(mine, "ask")
        root = self.context.rank_count - 1
        decided = self.decide(said) if self.context.rank == root else Agreed(-1, frozenset(), frozenset())
        return self.context.exchange(decided, "tell")[root]


class RootDecidesBackend(CachingBackend):
    """Another agreement protocol."""

    name = "root-decides"
    communicator = RootDecidesCommunicator


class EagerEvictionCommunicator(CachingCommunicator):
    """Evicts what nobody uses as soon as something else is connected."""

    capacity = 0


class EagerEvictionBackend(CachingBackend):
    """A cache that keeps nothing but what is in use."""

    name = "eager-eviction"
    communicator = EagerEvictionCommunicator


class RecommendedCommunicator(PlainCommunicator):
    """Makes multicast objects of the recommended granularity, whatever that is."""

    def object_bytes(self, capacity_bytes: int) -> int:
        """Round up to what the driver recommends."""
        driver, count = self.context.driver, self.context.rank_count
        granularity = driver.multicast_granularity(capacity_bytes, count, recommended=True)
        return -(-capacity_bytes // granularity) * granularity


class RecommendedBackend(PlainBackend):
    """Groups are much larger than was asked for where 512 MiB are recommended."""

    name = "recommended-granularity"
    communicator = RecommendedCommunicator


class OwnObjectBinding:
    """A binding that has an object to itself."""

    def __init__(self, inner: PlainBinding) -> None:
        self.inner = inner
        self.store, self.load_reduce = inner.store, inner.load_reduce

    @property
    def address(self) -> int:
        """Where the object is mapped."""
        return self.inner.address

    @property
    def offset_bytes(self) -> int:
        """Always 0."""
        return self.inner.offset_bytes

    def unbind(self) -> None:
        """The object goes too."""
        self.inner.unbind()
        self.inner.group.close()


class OwnObjectsGroup:
    """A group of any number of objects, of one binding each."""

    def __init__(self, owner: PlainCommunicator, capacity_bytes: int) -> None:
        self.owner = owner
        self.capacity_bytes = capacity_bytes
        self.objects: list[PlainGroup] = []

    def bind(self, address: int, size_bytes: int) -> OwnObjectBinding:
        """Open an object for the buffer."""
        owner = self.owner
        needed = max(owner.together("room", lambda: sum(size for _, size in owner.segments(address, size_bytes))))
        taken = sum(group.capacity_bytes for group in self.objects if not group.closed)
        if needed > self.capacity_bytes - taken:
            raise UsageError(f"size_bytes={size_bytes}: {taken} of {self.capacity_bytes} bytes are taken")
        group = PlainCommunicator.open_group(owner, needed)
        self.objects.append(group)
        try:
            return OwnObjectBinding(group.bind(address, size_bytes))
        except Exception:  # whatever failed on whichever rank: no object stays
            group.close()
            raise

    def close(self) -> None:
        """Close what is open still."""
        for group in reversed(self.objects):
            group.close()


class OwnObjectsCommunicator(PlainCommunicator):
    """Never has two bindings in one multicast object."""

    # The Backend protocol asks for a Group, and this is one; only the plain communicator promises its own class.
    def open_group(self, capacity_bytes: int) -> OwnObjectsGroup:  # type: ignore[override]
        """Nothing to open yet."""
        self.check_open()
        self.together("group", lambda: capacity_bytes)
        unit = self.context.driver.multicast_granularity(capacity_bytes, self.context.rank_count)
        return OwnObjectsGroup(self, -(-capacity_bytes // unit) * unit)


class OwnObjectsBackend(PlainBackend):
    """An object a binding: equal offsets are no overlap."""

    name = "object-per-binding"
    communicator = OwnObjectsCommunicator


class SlowRankCommunicator(PlainCommunicator):
    """The last rank sleeps before everything that all do together; in sum for less than the deadline.

    Skew adds up while the others have no part in what it does.
    """

    def together(self, what: str, action: Callable[[], T], members: Members = None) -> list[T]:
        """Come late."""
        context = self.context
        if context.rank == context.rank_count - 1:
            sim.wait(lambda: False, call="sleep", object="clock", timeout_s=context.timeout_s / 100)
        return super().together(what, action, members)


class SlowRankBackend(PlainBackend):
    """A rank that is late, and harmless."""

    name = "slow-rank"
    communicator = SlowRankCommunicator


SPECIMENS: Final[tuple[Specimen, ...]] = tuple(
    Specimen(name=made.name, kind="", origins=(), requirement="", make=made, machine=machine)
    for made, machine in (
        (NoCacheBackend, "h100"),
        (ExplicitWindowsBackend, "h100"),
        (RootDecidesBackend, "h100"),
        (EagerEvictionBackend, "h100"),
        (RecommendedBackend, "h100-512m"),
        (OwnObjectsBackend, "h100"),
        (SlowRankBackend, "h100"),
    )
)
