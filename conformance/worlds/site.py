"""Where a rank runs: what its place offers to the steps of a Program. The seam between a `Session` and its world.

Two kinds of memory are known. *Device* memory belongs to a CUDA driver; there is one implementation,
`allranks.conformance.worlds.sim_site.SimSite`. *Host* memory is the ordinary memory of the rank's process;
`allranks.conformance.worlds.host_site.HostSite` gives out parts of an arena. An address is an integer in both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from allranks.conformance.backend import MemorySpace
from allranks.conformance.program import MemoryKind
from allranks.driver import Driver
from allranks.sim import Piece

Rule = Literal["low", "high", "never_reuse"]


@dataclass(frozen=True, slots=True)
class Where:
    """Where a buffer should lie: at `wish` if that is free, else by the rule; 0: no wish."""

    rule: Rule = "low"
    wish: int = 0


@dataclass(frozen=True, slots=True)
class Block:
    """Memory that was given out, and what its place has to know to take it back."""

    address: int
    size_bytes: int
    mapped_bytes: int = 0  # of device memory: 0 is plain
    handles: tuple[int, ...] = ()


class Site(Protocol):
    """One rank's place in one run. Only the rank's own thread calls it."""

    @property
    def memory_space(self) -> MemorySpace:
        """Which memory the buffers are in."""

    @property
    def device(self) -> int:
        """Index of the rank's device; -1: there is none."""

    @property
    def driver(self) -> Driver:
        """The CUDA driver; without one, whatever is asked of it raises `UsageError`."""

    def enter(self, order: int) -> None:
        """Begin the calling thread's part in the run."""

    def leave(self) -> None:
        """End the calling thread's part in the run."""

    def label(self, step: int, operation: str, *, owner: int = 0) -> None:
        """Say what the rank does from now on, and on whose account: 0 the user's, 1 the communicator's."""

    def open(self) -> None:
        """Make memory available; before anything is allocated."""

    def close(self) -> None:
        """Give the memory as a whole back; after everything was freed."""

    def equal_address(self, number: int) -> int:
        """Give an address that is the same on every rank, for a wish; steps of different numbers get different ones."""

    def allocate(self, size_bytes: int, kind: MemoryKind, where: Where) -> Block:
        """Get a buffer.

        Raises
        ------
        allranks.errors.WorldError
            If there is no room.
        """

    def free(self, block: Block) -> None:
        """Give a buffer back."""

    def peek(self, address: int, size: int) -> bytes:
        """Read memory; ValueError if some byte is not memory that the user has there."""

    def poke(self, address: int, data: bytes | bytearray | memoryview | npt.NDArray[Any]) -> None:
        """Write memory; ValueError as in `peek`."""

    def resolve(self, address: int, size: int) -> list[Piece] | None:
        """Say which bytes of which allocations an address range reaches; None: this place cannot tell."""

    def usage(self) -> tuple[int, int, int] | None:
        """Give what all ranks use: memory bytes, multicast bytes, handles alive; None: this place cannot tell."""

    def calls(self) -> npt.NDArray[np.void] | None:
        """Give the driver calls made, as `allranks.sim.CALL_DTYPE`; None: this place does not see any."""
