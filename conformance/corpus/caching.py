"""A plain communicator with an agreed cache of channels: right, and what mutants of caches are made from."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from allranks.conformance.backend import RankContext
from allranks.conformance.backends.plain import PlainBackend, PlainChannels, PlainCommunicator
from allranks.errors import DriverError


@dataclass(slots=True)
class Entry:
    """Channels with what they were made for, and how many users they have on this rank."""

    key: Hashable
    address: int
    size_bytes: int
    channels: PlainChannels
    users: int = 0


@dataclass(frozen=True, slots=True)
class Agreed:
    """What all ranks do: the entry to use (-1: make one), entries that are dead or in use on any of them."""

    entry: int
    dead: frozenset[int]
    used: frozenset[int]


@dataclass(frozen=True, slots=True)
class Told:
    """What a rank says: the entries that fit its region, and those that are dead or in use there."""

    fitting: frozenset[int]
    dead: frozenset[int]
    used: frozenset[int]


class LentChannels(PlainChannels):
    """A user's channels over an entry's mappings, with signals of their own."""

    def __init__(self, entry: Entry, tag: Hashable) -> None:
        super().__init__(entry.channels.owner, entry.channels.remote, tag)
        self.entry = entry
        entry.users += 1

    def close(self) -> None:
        """Use the entry no more."""
        if not self.closed:
            self.closed = True
            self.entry.users -= 1


class CachingCommunicator(PlainCommunicator):
    """Keeps channels by the identity of the regions that they were made for.

    A step hits on every rank or on none: ranks tell each other which entries would do, and use the oldest that all
    have named. Entries are made and evicted in one order everywhere, so their numbers mean the same everywhere; none is
    evicted while any rank uses it.
    """

    capacity = 4
    lent_type: type[LentChannels] = LentChannels

    def __init__(self, context: RankContext) -> None:
        super().__init__(context)
        self.cache: dict[int, Entry] = {}
        self.entries = 0

    def key(self, address: int, size_bytes: int) -> Hashable:
        """What a region is recognised by: numbers that no other mappings ever have, and the place in them."""
        driver, segments = self.context.driver, self.segments(address, size_bytes)
        return tuple(driver.buffer_id(start) for start, _ in segments), address - segments[0][0], size_bytes

    def gone(self, entry: Entry) -> bool:
        """Whether an entry's own region is not there any more."""
        try:
            return self.key(entry.address, entry.size_bytes) != entry.key
        except DriverError:
            return True

    def agree(self, mine: Told) -> Agreed:
        """Ask all ranks."""
        return self.decide(self.context.exchange(mine, "agree"))

    def told(self, key: Hashable) -> Told:
        """What this rank says."""
        return Told(
            frozenset(number for number, entry in self.cache.items() if entry.key == key),
            frozenset(number for number, entry in self.cache.items() if self.gone(entry)),
            frozenset(number for number, entry in self.cache.items() if entry.users),
        )

    def decide(self, said: list[Told]) -> Agreed:
        """What comes of what all have said."""
        common = frozenset.intersection(*(one.fitting for one in said))
        dead = frozenset[int]().union(*(one.dead for one in said))
        used = frozenset[int]().union(*(one.used for one in said))
        return Agreed(min(common, default=-1), dead, used)

    def connect(self, address: int, size_bytes: int) -> PlainChannels:
        """Use the entry that all have, or make one."""
        self.check_open()
        key = self.key(address, size_bytes)
        agreed = self.agree(self.told(key))
        for number in sorted(agreed.dead - agreed.used):
            self.evict(number)
        found = self.cache.get(agreed.entry)
        if found is None:
            found = self.cache[self.entries] = Entry(key, address, size_bytes, self.make_channels(address, size_bytes))
            self.entries += 1
            self.make_room(agreed.used | {self.entries - 1})
        lent = self.lent_type(found, self.next_tag(()))
        self.remember(lent)
        return lent

    def make_room(self, used: frozenset[int]) -> None:
        """Evict the oldest that nobody uses."""
        for number in sorted(set(self.cache) - used):
            if len(self.cache) > self.capacity:
                self.evict(number)

    def evict(self, number: int) -> None:
        """Close an entry."""
        entry = self.cache.pop(number, None)
        if entry is not None:
            entry.channels.close()

    def close(self) -> None:
        """Give everything back."""
        super().close()
        self.cache.clear()


class CachingBackend(PlainBackend):
    """The backend of the caching communicator."""

    name = "plain-caching"
    communicator = CachingCommunicator

    def capabilities(self, context: RankContext) -> frozenset[str]:
        """What the plain one has, and the cache."""
        return super().capabilities(context) | {"channel_cache"}
