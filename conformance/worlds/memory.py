"""The user's buffers on one rank: allocated, freed, read and written as a user of the communicator would."""

from __future__ import annotations

from allranks.conformance.program import Allocate
from allranks.conformance.trace import Placed
from allranks.conformance.worlds.site import Block, Site, Where
from allranks.errors import WorldError

_PROBE: int = -1  # ordinal of the buffer that no step knows of


class UserMemory:
    """All buffers of one rank."""

    def __init__(self, site: Site, scratch_bytes: int) -> None:
        self.site = site
        self.live: dict[int, Block] = {}
        self._scratch = site.allocate(scratch_bytes, "plain", Where()) if scratch_bytes else None
        self._freed: dict[int, int] = {}  # base address -> ordinal of the buffer that had it last
        self._last_freed = 0

    @property
    def scratch(self) -> int:
        """Address of memory for what a rank puts."""
        assert self._scratch is not None
        return self._scratch.address

    def _where(self, step: Allocate, number: int) -> Where:
        match step.placement:
            case "reuse":
                return Where(wish=self._last_freed)
            case "equal":
                return Where(wish=self.site.equal_address(number))
            case rule:
                return Where(rule)

    def allocate(self, ordinal: int, step: Allocate, number: int) -> Placed:
        """Allocate a buffer, and say where it lies."""
        block = self.live[ordinal] = self.site.allocate(step.size_bytes, step.kind, self._where(step, number))
        pieces = tuple(
            (piece.allocation, piece.offset_bytes, piece.size_bytes)
            for piece in self.site.resolve(block.address, block.size_bytes) or ()
        )
        return Placed(pieces=pieces, same_base_as=self._freed.get(block.address, -1))

    def fresh(self, size_bytes: int) -> Block:
        """Give a buffer that no step knows of."""
        block = self.live.get(_PROBE)
        if block is None:
            block = self.live[_PROBE] = self.site.allocate(size_bytes, "vmm", Where())
        return block

    def free(self, ordinal: int) -> None:
        """Free a buffer."""
        block = self.live.pop(ordinal)
        self._freed[block.address] = ordinal
        self._last_freed = block.address
        self.site.free(block)

    def free_all(self) -> None:
        """Free what is left; the first error is raised after all were tried."""
        first: WorldError | None = None
        for ordinal in list(self.live):
            try:
                self.free(ordinal)
            except WorldError as error:
                first = first or error
        if self._scratch is not None:
            scratch, self._scratch = self._scratch, None
            self.site.free(scratch)
        if first is not None:
            raise first
