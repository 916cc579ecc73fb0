"""What `plain` writes through: memory of peers, mapped here, and the signals that go with it."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from allranks import sim
from allranks.driver import Driver
from allranks.errors import DriverError, Stalled, Timeout

if TYPE_CHECKING:
    from allranks.conformance.backends.plain import PlainCommunicator


@dataclass(slots=True)
class Mapped:
    """Memory of a peer, or a multicast object, mapped into this rank's address space; it owns the handles."""

    driver: Driver
    handles: tuple[int, ...]
    address: int
    size_bytes: int

    @staticmethod
    def of(driver: Driver, pieces: list[tuple[int, int]], device: int) -> Mapped:
        """Map handles with their sizes side by side; they are given back with the mapping."""
        total = sum(size for _, size in pieces)
        with contextlib.ExitStack() as undo:
            address = driver.mem_address_reserve(total)
            undo.callback(driver.mem_address_free, address, total)
            end = address
            for handle, size in pieces:
                driver.mem_map(end, size, handle)
                undo.callback(driver.mem_unmap, end, size)
                end += size
            driver.mem_set_access(address, total, [device])
            undo.pop_all()
        return Mapped(driver, tuple(handle for handle, _ in pieces), address, total)

    @property
    def handle(self) -> int:
        """The first handle, which is the only one of a multicast object."""
        return self.handles[0]

    def close(self, *, release: bool = True) -> None:
        """Give everything back; a range that cannot be unmapped stays reserved."""
        with contextlib.ExitStack() as last:
            for handle in self.handles if release else ():
                last.callback(self.driver.mem_release, handle)
            self.driver.mem_unmap(self.address, self.size_bytes)
            self.driver.mem_address_free(self.address, self.size_bytes)


class PlainChannels:
    """Channels of one rank to the regions of all ranks, or of some. The tag is the same on all of them."""

    def __init__(self, owner: PlainCommunicator, remote: dict[int, tuple[Mapped, int]], tag: Hashable) -> None:
        self.owner = owner
        self.remote = remote
        self.tag = tag
        self.closed = False

    def put(self, peer: int, destination_offset_bytes: int, source_address: int, size_bytes: int) -> None:
        """Write memory of this rank into the peer's region."""
        mapped, offset = self.remote[peer]
        driver = self.owner.context.driver
        driver.copy_to_device(
            mapped.address + offset + destination_offset_bytes, driver.copy_from_device(source_address, size_bytes)
        )

    def signal(self, peer: int) -> None:
        """Tell the peer that all earlier puts to it are there."""
        counts = self.owner.signals
        counts[self.tag, self.owner.context.rank, peer] = counts.get((self.tag, self.owner.context.rank, peer), 0) + 1
        sim.notify(id(counts))

    def wait(self, peer: int) -> None:
        """Wait for the next signal of the peer."""
        owner, context = self.owner, self.owner.context
        seen = owner.waited.get((self.tag, peer), 0) + 1
        result = sim.wait(
            lambda: owner.signals.get((self.tag, peer, context.rank), 0) >= seen,
            call="wait for a signal",
            object=f"channels #{self.tag}",
            waits_for=lambda: [peer],
            key=id(owner.signals),
            timeout_s=context.timeout_s,
        )
        if result is not sim.WaitResult.READY:
            kind = Timeout if result is sim.WaitResult.TIMEOUT else Stalled
            raise kind(f"rank {context.rank}: no signal of rank {peer}", ranks=(peer,), rank=context.rank)
        owner.waited[self.tag, peer] = seen

    def close(self) -> None:
        """Give the mappings back; nothing that a peer takes part in."""
        if not self.closed:
            self.closed = True
            with contextlib.ExitStack() as all_of_them:
                for mapped, _ in self.remote.values():
                    all_of_them.callback(mapped.close)

    def __del__(self) -> None:
        """Let go of without close: the same. Nobody can be told here of what fails; the communicator's close tells."""
        try:
            self.close()
        except DriverError as error:
            self.owner.failures.append(error)
