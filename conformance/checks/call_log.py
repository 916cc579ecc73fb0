"""The driver calls of a run, as arrays: many ranks make thousands of them, and few are looked at one by one."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from allranks.sim import CALL_DTYPE, call_name

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Call:
    """A driver call: on which rank, as its how manieth, in which step, by whom, and what it returned."""

    rank: int
    index: int
    name: str
    step: int
    by_communicator: bool
    result: int


_name_of = cache(call_name)


@cache
def _numbers() -> dict[str, int]:
    numbers: dict[str, int] = {}
    with contextlib.suppress(ValueError):  # past the last
        while True:
            numbers[_name_of(len(numbers))] = len(numbers)
    return numbers


class CallLog:
    """All driver calls of a run, of each rank in its order.

    Parameters
    ----------
    logs : sequence over ranks of array of `allranks.sim.CALL_DTYPE`
        As a Trace has them; empty: the world cannot tell.
    rank_count : int
        Ranks of the run.
    """

    def __init__(self, logs: Sequence[npt.NDArray[np.void]], rank_count: int) -> None:
        self.known = bool(logs)
        self.rank_count = rank_count
        log = np.frombuffer(b"".join(log.data for log in logs), CALL_DTYPE)
        lengths = [len(log) for log in logs]
        self._first = np.cumsum([0, *lengths])
        self._rank = np.repeat(np.arange(len(logs)), lengths)
        self._call, self._step = log["call"].copy(), log["step"].copy()
        self._result = log["result"].copy()
        self._communicator: Mask = log["owner"] == 1

    def total(self) -> int:
        """Count the communicator's calls."""
        return int(np.count_nonzero(self._communicator))

    def count(
        self, name: str, *, well: bool = False, step: int | None = None, until: int | None = None
    ) -> npt.NDArray[np.intp]:
        """Count the communicator's calls of a name, by rank.

        Parameters
        ----------
        name : str
            Which.
        well : bool
            Only those that succeeded.
        step, until : int, optional
            Only those in a step; only those up to the end of a step.
        """
        chosen = self._communicator & (self._call == _numbers().get(name, -1))
        if well:
            chosen &= self._result == 0
        if step is not None:
            chosen &= self._step == step
        if until is not None:
            chosen &= self._step <= until
        return np.bincount(self._rank[chosen], minlength=self.rank_count)

    def failed(self, *, by_communicator: bool = False) -> list[Call]:
        """Give the calls that returned an error, rank by rank, those of the user too unless told otherwise."""
        chosen = self._result != 0
        return self._calls(chosen & self._communicator if by_communicator else chosen)

    def kth(self, rank: int, name: str, k: int) -> Call | None:
        """Give the k-th call (from 0) of a name on a rank, whoever made it."""
        if not self.known:
            return None
        first, last = self._first[rank], self._first[rank + 1]
        found = np.flatnonzero(self._call[first:last] == _numbers().get(name, -1))
        return self._at(int(first + found[k])) if k < len(found) else None

    def _calls(self, chosen: Mask) -> list[Call]:
        return [self._at(int(place)) for place in np.flatnonzero(chosen)]

    def _at(self, place: int) -> Call:
        rank = int(self._rank[place])
        return Call(
            rank=rank,
            index=place - int(self._first[rank]),
            name=_name_of(int(self._call[place])),
            step=int(self._step[place]),
            by_communicator=bool(self._communicator[place]),
            result=int(self._result[place]),
        )
