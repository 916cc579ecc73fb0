"""A rank's place in ordinary host memory: for communicators that know no devices.

Nothing watches the communicator here: there is no ledger, no call log and no log of writes. Checks that need those are
inconclusive.
"""

from __future__ import annotations

from typing import Final, NoReturn, cast

from allranks.conformance.backend import MemorySpace
from allranks.conformance.program import MemoryKind
from allranks.conformance.worlds.arena import Arena
from allranks.conformance.worlds.site import Block, Where
from allranks.driver import Driver
from allranks.errors import UsageError

_EQUAL_SLOTS: Final = 256


class _NoDriver:
    """What stands for the driver where there is none."""

    def __getattr__(self, name: str) -> NoReturn:
        raise UsageError(f"driver.{name}: this world has host memory and no CUDA driver")


NO_DRIVER: Final = cast(Driver, _NoDriver())


class HostSite:
    """The site of a rank whose buffers are in the memory of its process.

    Parameters
    ----------
    arena : Arena
        Where buffers are; it outlives the site, and serves one site at a time.
    shift_bytes : int
        How far this rank's addresses are shifted.
    """

    memory_space: MemorySpace = "host"
    device: Final = -1
    driver: Final = NO_DRIVER

    def __init__(self, arena: Arena, shift_bytes: int = 0) -> None:
        self.arena = arena
        self.shift_bytes = shift_bytes
        self.peek = arena.peek
        self.poke = arena.poke

    def enter(self, order: int) -> None:
        """Nobody takes turns here."""

    def leave(self) -> None:
        """Nobody takes turns here."""

    def label(self, step: int, operation: str, *, owner: int = 0) -> None:
        """There is no log that a label could go into."""

    def open(self) -> None:
        """Begin with an empty arena."""
        self.arena.reset(self.shift_bytes)

    def close(self) -> None:
        """Take back what was not freed."""
        self.arena.reset()

    def equal_address(self, number: int) -> int:
        """Give a place that is kept free for such buffers."""
        return self.arena.equal_base + (number % _EQUAL_SLOTS) * (self.arena.equal_bytes // _EQUAL_SLOTS)

    def allocate(self, size_bytes: int, kind: MemoryKind, where: Where) -> Block:
        """Get a buffer; one of `segments` lies in one piece, as there are no segments in host memory."""
        address = self.arena.allocate(size_bytes, whole_pages=kind != "plain", rule=where.rule, wish=where.wish)
        return Block(address, size_bytes)

    def free(self, block: Block) -> None:
        """Give a buffer back."""
        self.arena.free(block.address)

    def resolve(self, address: int, size: int) -> None:
        """Nobody can tell where an address leads that a communicator made."""

    def usage(self) -> None:
        """Nobody counts what a communicator uses."""

    def calls(self) -> None:
        """There are no driver calls."""
