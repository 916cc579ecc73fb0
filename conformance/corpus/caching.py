"""A plain communicator with an agreed cache of channels: right, and what mutants of caches are made from."""

from __future__ import annotations

from collections.abc import Hashable

from allranks.conformance.backend import RankContext
from allranks.conformance.backends.plain import PlainBackend, PlainChannels, PlainCommunicator
from allranks.errors import DriverError


class CachingCommunicator(PlainCommunicator):
    """Keeps channels by the identity of the regions that they were made for.

    A step hits on every rank or on none: ranks tell each other which entry they would use, and use it when all name the
    same. Entries are made, evicted and found dead in one order everywhere, so their numbers mean the same everywhere.
    An evicted entry closes when its last user lets go of it.
    """

    capacity = 4

    def __init__(self, context: RankContext) -> None:
        super().__init__(context)
        self.cache: dict[int, tuple[Hashable, int, int, PlainChannels]] = {}  # entry -> key, address, size, channels

    def key(self, address: int, size_bytes: int) -> Hashable:
        """What a region is recognised by: a number that no other mapping ever has, and the place in it."""
        driver = self.context.driver
        base, _ = driver.mem_address_range(address)
        return driver.buffer_id(address), address - base, size_bytes

    def dead(self) -> list[int]:
        """Entries whose own region is not there any more."""
        found = []
        for entry, (key, address, size, _) in self.cache.items():
            try:
                if self.key(address, size) != key:
                    found.append(entry)
            except DriverError:
                found.append(entry)
        return found

    def agree(self, mine: int, dead: list[int]) -> tuple[int, set[int]]:
        """Give the entry that all ranks use (-1: none), and the entries that are dead on any rank."""
        said = self.context.exchange((mine, dead), "agree")
        named = {entry for entry, _ in said}
        gone = {entry for _, entries in said for entry in entries}
        return (named.pop() if len(named) == 1 else -1), gone

    def connect(self, address: int, size_bytes: int) -> PlainChannels:
        """Use the entry that all have, or make one."""
        self.check_open()
        key = self.key(address, size_bytes)
        known = [entry for entry, (other, *_) in self.cache.items() if other == key]
        agreed, gone = self.agree(known[0] if known else -1, self.dead())
        for entry in gone:
            self.evict(entry)
        if agreed in self.cache:
            return self.cache[agreed][-1]
        channels = self.make_channels(address, size_bytes)
        self.cache[channels.tag] = (key, address, size_bytes, channels)
        if len(self.cache) > self.capacity:
            self.evict(min(self.cache))
        return channels

    def evict(self, entry: int) -> None:
        """Forget an entry."""
        self.cache.pop(entry, None)

    def close(self) -> None:
        """Give everything back."""
        self.cache.clear()
        super().close()


class CachingBackend(PlainBackend):
    """The backend of the caching communicator."""

    name = "plain-caching"
    communicator = CachingCommunicator
