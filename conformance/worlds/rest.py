"""Whether the ranks that a launcher has started have come to rest for good, as far as they are on this machine.

Each rank is a process in which two threads are this package's: one watches and never waits for long, the other calls
the communicator under test. So a rank is at rest when all threads but the first are blocked; or when its second waits
in the world itself, for ranks that do not come. The latter looks again and again, and says so by signs that it gives.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping, MutableSequence
from typing import Final

from allranks.conformance.trace import Event
from allranks.processes.stillness import Stillness
from allranks.processes.watch import look_at, says

MOST_RANKS: Final = 1024
# Words of eight bytes, by rank: its label; its thread that plays a Program, 0 between two; where it waits in the world
# itself, 0 if it does not; how often it has looked there in vain.
_THREAD, _MEETING, _LOOKS, _FIELDS = 1, 2, 3, 4
BOARD_BYTES: Final = 8 * _FIELDS * MOST_RANKS

# How long a look of a rank takes that waits in the world, and how many there have to be while nothing moves: what was
# on its way to it is there by then.
SIGN_S: Final = 0.05
_LOOKS_IN_VAIN: Final = 2


class Signs:
    """What a rank lets be seen of itself.

    Parameters
    ----------
    board : mutable sequence of int, optional
        Where; None: nobody sees it.
    rank : int
        Which rank.
    """

    def __init__(self, board: MutableSequence[int] | None, rank: int) -> None:
        self._board = board
        self._rank = rank

    def _give(self, field: int, value: int) -> None:
        if self._board is not None:
            self._board[field * MOST_RANKS + self._rank] = value

    def plays(self, thread: int) -> None:
        """Say which thread plays, by its number in the operating system; 0: none does any more."""
        self._give(_THREAD, thread)

    def waits(self, where: object) -> None:
        """Say that the rank waits in the world itself for all others, and without a limit; None: it does not."""
        self._give(_MEETING, 0 if where is None else 1 + zlib.crc32(repr(where).encode()))

    def looked(self) -> None:
        """Say that nothing had come."""
        if self._board is not None:
            self._board[_LOOKS * MOST_RANKS + self._rank] += 1


class Rest:
    """Looks at the ranks of a run again and again.

    Parameters
    ----------
    board : mutable sequence of int
        With the signs of the ranks.
    pids : mapping of int to int
        Their processes, as far as they are known.
    rank_count : int
        Ranks of the run.
    """

    def __init__(self, board: MutableSequence[int], pids: Mapping[int, int], rank_count: int) -> None:
        self._board = board
        self._pids = pids
        self._ranks = range(rank_count)
        self._known = all(rank in pids for rank in self._ranks)
        self._stillness = Stillness()
        self._meetings: list[int] = []
        self._looks: list[int] = []
        self._since = 0.0

    def _read(self, field: int) -> list[int]:
        return [int(self._board[field * MOST_RANKS + rank]) for rank in self._ranks]

    def forget(self) -> None:
        """Begin anew: something has moved."""
        self._stillness.forget()

    def reached(self, now: float, through: Collection[int]) -> bool:
        """Look once more; whether none of the ranks can ever go on. Those that are `through` need not."""
        if not self._known:  # then there need be no signs of them either
            return False
        meetings, threads, looks = self._read(_MEETING), self._read(_THREAD), self._read(_LOOKS)
        if meetings != self._meetings:
            self._meetings = meetings
            self.forget()
        all_there = bool(meetings[0]) and len(set(meetings)) == 1  # they are about to go on
        if all_there or any(not threads[rank] for rank in self._ranks if rank not in through):
            self.forget()
            return False
        ours: dict[int, Collection[int]] = {}
        for rank, pid in self._pids.items():
            if rank in self._ranks:
                ours[pid] = (pid, threads[rank]) if meetings[rank] else (pid,)
        still = self._stillness.reached(now, list(ours), ours)
        if self._stillness.since != self._since:
            self._since, self._looks = self._stillness.since, looks
        in_vain = [looks[rank] - self._looks[rank] for rank in self._ranks if meetings[rank]] if self._looks else []
        return still and all(count >= _LOOKS_IN_VAIN for count in in_vain)

    def event(self, rank: int) -> Event:
        """Give what the step is in which a rank was found at rest."""
        state = None if self._meetings[rank] else look_at(self._pids[rank], self._read(_THREAD)[rank])
        text = says(state) if state is not None else "waits in the world itself for the other ranks"
        return Event(status="stalled", error_type="Blocked", error=f"{text}, for ever")
