"""Where ranks meet: values exchanged, barriers, shared objects. In one process, all of it through the turnstile."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from allranks import sim
from allranks.errors import Stalled, Timeout

T = TypeVar("T")


@dataclass(slots=True)
class _Round:
    """One exchange: where its ranks come together, who has come with what, and how many have taken it."""

    gathering: sim.Gathering
    values: dict[int, Any] = field(default_factory=dict)
    taken: int = 0


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

    def shared(self, key: Hashable, make: Callable[[], T]) -> T:
        """Give the one object of that key that the ranks of this process share; the first asker makes it."""


class TurnMeeting:
    """The meeting point of the ranks of one process, through the turnstile.

    Ranks that exchange for different purposes do not meet: each purpose counts its rounds by itself, as messages with
    tags do.
    """

    def __init__(self, rank_count: int) -> None:
        self.rank_count = rank_count
        self._rounds: dict[tuple[str, tuple[int, ...], int], _Round] = {}
        self._next: dict[tuple[str, tuple[int, ...], int], int] = {}
        self._everyone = tuple(range(rank_count))
        self._shared: dict[Hashable, Any] = {}
        self._over = False

    def end(self) -> None:
        """The run is over and nobody comes any more: what a backend's finaliser still waits for then, fails at once."""
        self._over = True

    def exchange(
        self, rank: int, value: T, what: str, timeout_s: float | None, members: tuple[int, ...] | None = None
    ) -> list[T]:
        """Give the value of every rank, or of every member, in the order of ranks.

        Raises
        ------
        Timeout, Stalled
            If some rank does not come; the error names those.
        """
        members = self._everyone if members is None else members
        if self._over:
            absent = tuple(peer for peer in members if peer != rank)
            raise Stalled(f"rank {rank}: {what}: the run is over, and nobody comes any more", ranks=absent, rank=rank)
        number = self._next.get((what, members, rank), 0)
        self._next[what, members, rank] = number + 1
        key = what, members, number
        meeting = self._rounds.get(key)
        if meeting is None:
            meeting = self._rounds[key] = _Round(sim.Gathering(members, f"{what} #{number}"))
        meeting.values[rank] = value
        ended = meeting.gathering.arrive(rank, timeout_s=timeout_s)
        if ended is not sim.WaitResult.READY:
            absent = tuple(meeting.gathering.missing())
            kind = Timeout if ended is sim.WaitResult.TIMEOUT else Stalled
            raise kind(
                f"rank {rank}: {what} #{number}: still waiting for ranks {list(absent)}", ranks=absent, rank=rank
            )
        meeting.taken += 1
        if meeting.taken == len(members):
            del self._rounds[key]
        return [meeting.values[peer] for peer in members]

    def shared(self, key: Hashable, make: Callable[[], T]) -> T:
        """Give the object of that key; the first asker makes it."""
        if key not in self._shared:
            self._shared[key] = make()
        found: T = self._shared[key]
        return found
