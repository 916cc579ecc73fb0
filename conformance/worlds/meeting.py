"""Where ranks meet: values exchanged, barriers, shared objects. In one process, all of it through the turnstile."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Protocol, TypeVar

from allranks import sim
from allranks.errors import Stalled, Timeout

T = TypeVar("T")


class Meeting(Protocol):
    """Where the ranks of a run meet: for the world's own purposes, and for those of a backend that asks for it."""

    def exchange(
        self, rank: int, value: T, what: str, timeout_s: float | None, members: tuple[int, ...] | None = None
    ) -> list[T]:
        """Give the value of every rank, or of every member, in the order of ranks; each of them has to call it.

        Raises
        ------
        Timeout
            If some rank does not come within `timeout_s`; the error names those. None: there is no deadline.
        Stalled
            If the world knows that some rank will never come.
        """

    def look(self, rank: int, action: Callable[[], T], what: str) -> T:
        """Meet all ranks, and give what `action` does, or raise its error; no rank goes on before all have looked.

        Raises
        ------
        Stalled
            If the world knows that some rank will never come.
        """
        self.exchange(rank, None, what, None)
        try:
            return action()
        finally:
            self.exchange(rank, None, f"{what}, looked", None)

    def shared(self, key: Hashable, make: Callable[[], T]) -> T:
        """Give the one object of that key that the ranks of this process share; the first asker makes it."""


class TurnMeeting(Meeting):
    """The meeting point of the ranks of one process, through the turnstile.

    Ranks that exchange for different purposes do not meet: each purpose counts its rounds by itself, as messages with
    tags do. Whoever is the last to come looks for all of them, so that nobody has to be waited for again.
    """

    def __init__(self, rank_count: int) -> None:
        self.rank_count = rank_count
        self._meeting = sim.Meeting(rank_count)
        self._shared: dict[Hashable, Any] = {}
        # The run is over and nobody comes any more: what a backend's finaliser still waits for then, fails at once.
        self.end = self._meeting.end

    def exchange(
        self, rank: int, value: T, what: str, timeout_s: float | None, members: tuple[int, ...] | None = None
    ) -> list[T]:
        """Give the value of every rank, or of every member, in the order of ranks.

        Raises
        ------
        Timeout, Stalled
            If some rank does not come; the error names those.
        """
        got = self._meeting.exchange(rank, value, what, timeout_s, members)
        if isinstance(got, sim.Missing):
            raise _missing(rank, what, got)
        return got

    def look(self, rank: int, action: Callable[[], T], what: str) -> T:
        """Meet all ranks, and give what `action` does, or raise its error."""
        got = self._meeting.look(rank, action, what)
        if isinstance(got, sim.Missing):
            raise _missing(rank, what, got)
        seen: T = got
        return seen

    def shared(self, key: Hashable, make: Callable[[], T]) -> T:
        """Give the object of that key; the first asker makes it."""
        if key not in self._shared:
            self._shared[key] = make()
        found: T = self._shared[key]
        return found


def _missing(rank: int, what: str, found: sim.Missing) -> Timeout | Stalled:
    """Give the error of a rank that waited for others in vain."""
    absent = tuple(peer for peer in found.ranks if peer != rank)
    if found.result is sim.WaitResult.NO_RUN:
        why = f"{what}: the run is over, and nobody comes any more"
    else:
        why = f"{what} #{found.round}: still waiting for ranks {list(absent)}"
    kind = Timeout if found.result is sim.WaitResult.TIMEOUT else Stalled
    return kind(f"rank {rank}: {why}", ranks=absent, rank=rank)
