"""Where the ranks of one process meet: values exchanged, barriers, shared objects, all through the turnstile."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from allranks import sim
from allranks.errors import Stalled, Timeout

T = TypeVar("T")


@dataclass(slots=True)
class _Round:
    """One exchange: who has come with what, and how many have taken it."""

    values: dict[int, Any] = field(default_factory=dict)
    result: list[Any] = field(default_factory=list)  # in the order of ranks, once all have come
    taken: int = 0


class Meeting:
    """The meeting point of a run.

    Ranks that exchange for different purposes do not meet: each purpose counts its rounds by itself, as messages with
    tags do.
    """

    def __init__(self, rank_count: int) -> None:
        self.rank_count = rank_count
        self._rounds: dict[tuple[str, tuple[int, ...], int], _Round] = {}
        self._next: dict[tuple[str, tuple[int, ...], int], int] = {}
        self._everyone = tuple(range(rank_count))
        self._keys: dict[str, int] = {}
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
        meeting = self._rounds.setdefault((what, members, number), _Round())
        meeting.values[rank] = value
        key = self._keys.setdefault(what, 1 + len(self._keys))
        if len(meeting.values) == len(members):
            sim.notify(key)
        else:
            self._await(meeting, key, f"{what} #{number}", rank, timeout_s, members)
        if not meeting.result:
            meeting.result = [meeting.values[peer] for peer in members]
        meeting.taken += 1
        if meeting.taken == len(members):
            del self._rounds[what, members, number]
        return meeting.result.copy()

    def _await(
        self, meeting: _Round, key: int, what: str, rank: int, timeout_s: float | None, members: tuple[int, ...]
    ) -> None:
        def missing() -> list[int]:
            return [peer for peer in members if peer not in meeting.values]

        result = sim.wait(
            lambda: len(meeting.values) == len(members),
            call="exchange",
            object=what,
            waits_for=missing,
            key=key,
            timeout_s=timeout_s,
        )
        if result is sim.WaitResult.READY:
            return
        absent = tuple(missing())
        kind = Timeout if result is sim.WaitResult.TIMEOUT else Stalled
        raise kind(f"rank {rank}: {what}: still waiting for ranks {list(absent)}", ranks=absent, rank=rank)

    def shared(self, key: Hashable, make: Callable[[], T]) -> T:
        """Give the object of that key; the first asker makes it."""
        if key not in self._shared:
            self._shared[key] = make()
        found: T = self._shared[key]
        return found
