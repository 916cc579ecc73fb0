"""One run of a Program, as the supervisor follows it: who is at work, who waits for whom, who is through or gone."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from typing import Any, Literal

from allranks.conformance.worlds.processes.wire import Frame, Garbled, Kind
from allranks.conformance.worlds.processes.workers import Worker

State = Literal["at work", "meets", "done", "died", "lied"]
_GONE = ("done", "died", "lied")


@dataclass(slots=True)
class Rank:
    """One rank in a run.

    Parameters
    ----------
    worker : Worker
        Its process.
    state : State
        `meets`: it waits for other ranks, in an exchange of the world.
    what, members, until
        Of a rank that meets: what for, who takes part, and the time when it has waited enough; None: never.
    word : str
        How it ended, of one that died; what was wrong, of one that lied.
    """

    worker: Worker
    state: State = "at work"
    what: str = ""
    members: tuple[int, ...] = ()
    number: int = 0
    until: float | None = None
    word: str = ""

    @property
    def left(self) -> bool:
        """Whether it is neither through nor gone."""
        return self.state not in _GONE


@dataclass(slots=True)
class Run:
    """A run: frames come in, answers go out."""

    number: int
    ranks: list[Rank]
    failure: str = ""  # of this package itself
    _rounds: dict[tuple[str, tuple[int, ...], int], dict[int, bytes]] = field(default_factory=dict)
    _counts: dict[tuple[str, tuple[int, ...], int], int] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Whether nothing more can come."""
        return not any(rank.left for rank in self.ranks)

    @property
    def well(self) -> bool:
        """Whether all are through."""
        return all(rank.state == "done" for rank in self.ranks)

    @property
    def hopeless(self) -> bool:
        """Whether all that are left wait for others in exchanges of the world, and without a deadline."""
        left = [rank for rank in self.ranks if rank.left]
        return bool(left) and all(rank.state == "meets" and rank.until is None for rank in left)

    def missing(self, rank: Rank) -> list[int]:
        """Give the ranks that one which meets still waits for."""
        there = self._rounds.get((rank.what, rank.members, rank.number), {})
        return [member for member in rank.members if member not in there]

    def lost(self, rank: Rank, when: str = "") -> None:
        """Note that a worker has ended."""
        if rank.left:
            code = rank.worker.exited or 0
            rank.state = "died"
            rank.word = (signal.Signals(-code).name if code < 0 else f"exit code {code}") + when

    def lied(self, rank: Rank, why: str) -> None:
        """Note that a worker said something that cannot be."""
        rank.state, rank.word = "lied", why

    def take(self, rank: Rank, data: bytes, now: float) -> None:
        """Take in what has come from a worker."""
        try:
            for frame in rank.worker.inbox.feed(data):
                self._frame(rank, frame, now)
        except Garbled as error:
            self.lied(rank, str(error))

    def _frame(self, rank: Rank, frame: Frame, now: float) -> None:
        if frame.run != self.number or rank.state != "at work":
            raise Garbled(f"a message of kind {frame.kind.name} comes out of turn")
        match frame.kind:
            case Kind.MEET:
                self._meet(rank, frame, now)
            case Kind.DONE:
                rank.state = "done"
            case Kind.FAILED:
                self.failure, rank.state = str(frame.value), "done"
            case _:
                raise Garbled(f"a message of kind {frame.kind.name} is not a worker's to send")

    def _meet(self, rank: Rank, frame: Frame, now: float) -> None:
        what, timeout_s, members, blob = _meeting(frame.value, len(self.ranks))
        mine = self.ranks.index(rank)
        number = self._counts.get((what, members, mine), 0)
        self._counts[what, members, mine] = number + 1
        key = (what, members, number)
        there = self._rounds.setdefault(key, {})
        there[mine] = blob
        if len(there) < len(members):
            rank.state, rank.what, rank.members, rank.number = "meets", what, members, number
            rank.until = None if timeout_s is None else now + timeout_s
            return
        del self._rounds[key]
        answer = Frame(Kind.MET, self.number, [there[member] for member in members])
        for member in members:
            self._answer(self.ranks[member], answer)

    def _answer(self, rank: Rank, answer: Frame) -> None:
        if not rank.left:
            return
        rank.state = "at work"
        if not rank.worker.send(answer):
            self.lied(rank, "it does not take the answer that it waits for")

    def late(self, now: float) -> bool:
        """Answer the ranks whose deadline has passed; whether there were any."""
        found = [rank for rank in self.ranks if rank.state == "meets" and rank.until is not None and rank.until <= now]
        missing = [self.missing(rank) for rank in found]
        for rank, ranks in zip(found, missing, strict=True):
            self._answer(rank, Frame(Kind.LATE, self.number, ranks))
        return bool(found)


def _meeting(value: Any, rank_count: int) -> tuple[str, float | None, tuple[int, ...], bytes]:
    """Read what a rank meets for."""
    try:
        what, timeout_s, named, blob = value
        members = tuple(range(rank_count)) if named is None else tuple(named)
        if not all(type(member) is int and 0 <= member < rank_count for member in members) or not members:
            raise ValueError("no such members")
        return str(what), None if timeout_s is None else float(timeout_s), members, bytes(blob)
    except (TypeError, ValueError) as error:
        raise Garbled(f"it wants to meet others by {value!r}: {error}") from None
