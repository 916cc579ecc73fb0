"""Whether the processes of a run have come to rest for good."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from allranks.processes.watch import ThreadState, all_blocked, descendants, look

# How long nothing may have moved before ranks are called blocked: far longer than anything that is on its way takes.
STILL_S: Final = 0.2
_NOTHING: Final[Mapping[int, Collection[int]]] = {}


class Stillness:
    """Looks at processes again and again, until none of their threads has moved for `STILL_S`.

    What they have started counts as they do: a rank that waits for a compiler, or for a proxy of its own, goes on when
    that has done its work.
    """

    def __init__(self) -> None:
        self._seen: list[list[ThreadState]] = []
        self.since = 0.0  # when that began which was seen last

    def forget(self) -> None:
        """Begin anew: something has moved."""
        self._seen = []

    def reached(self, now: float, pids: Sequence[int], ours: Mapping[int, Collection[int]] = _NOTHING) -> bool:
        """Look once more; whether all of these are blocked, and have been for long enough.

        Threads that are `ours`, by process, count as blocked: they do nothing by themselves.
        """
        seen = [look(pid, ours.get(pid, ())) for rank in pids for pid in (rank, *descendants(rank))]
        if not all(map(all_blocked, seen)):
            self._seen = []
        elif seen != self._seen:
            self._seen, self.since = seen, now
        return bool(self._seen) and now - self.since >= STILL_S
