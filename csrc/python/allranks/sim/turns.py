"""What a task of a run does: say what it is at, wait for a condition, give others a chance."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NamedTuple

from allranks._native import sim as _sim


class WaitResult(enum.Enum):
    """How a wait ended."""

    READY = 0
    TIMEOUT = 1
    STALLED = 2
    NO_RUN = 3


class Missing(NamedTuple):
    """How a meeting failed."""

    result: WaitResult
    ranks: tuple[int, ...]
    round: int


class Meeting:
    """Where the tasks of a run meet; those that are early wait for the others.

    Tasks that meet for different purposes do not meet each other: each purpose counts its rounds by itself.

    Parameters
    ----------
    rank_count : int
        How many ranks there are.
    """

    __slots__ = ("_native", "end")

    def __init__(self, rank_count: int) -> None:
        self._native = _sim.Meeting(rank_count)
        self.end: Callable[[], None] = self._native.end  # nobody comes any more: whoever waits finds all missing

    def exchange(
        self,
        rank: int,
        value: Any,
        what: str,
        timeout_s: float | None = None,
        members: tuple[int, ...] | None = None,
    ) -> list[Any] | Missing:
        """Give what every rank, or every member, brought, in their order; called by the rank's own task.

        Raises
        ------
        ValueError
            If the rank is no member.
        """
        got = self._native.exchange(rank, value, what, timeout_s, members)
        return got if type(got) is list else _missing(got)

    def look(self, rank: int, action: Callable[[], Any], what: str) -> Any:
        """Meet all ranks; the last one to come carries out the actions of all, before anybody goes on.

        Gives, or raises, what the own action did; `Missing` if somebody does not come.
        """
        got = self._native.look(rank, action, what)
        return _missing(got) if type(got) is _sim.Missing else got


def _missing(native: _sim.Missing) -> Missing:
    return Missing(WaitResult(native.result), tuple(native.ranks), native.round)


def label(step: int, operation: str, *, owner: int = 0) -> None:
    """Say what the calling task does from now on.

    Parameters
    ----------
    step : int
        Number of the step, from 0.
    operation : str
        The step's operation, for stories.
    owner : int
        0 for the user's own driver calls, 1 for the communicator's.
    """
    _sim.label(step, operation, owner)


def wait(
    ready: Callable[[], bool],
    *,
    call: str,
    object: str,
    waits_for: Callable[[], list[int]] | None = None,
    key: int = 0,
    timeout_s: float | None = None,
) -> WaitResult:
    """Block the calling task until a condition holds.

    Parameters
    ----------
    ready : callable
        The condition. It has no side effects, and is asked again at each ``notify(key)``, by any thread.
    call, object : str
        What the task waits in and on, for stories: ``"exchange"``, ``"connect #3"``.
    waits_for : callable, optional
        Gives the ranks that are still missing.
    key : int
        Number that ``notify`` names.
    timeout_s : float, optional
        Deadline from now, in seconds of the node's clock; none by default.

    Returns
    -------
    WaitResult
        ``STALLED`` means that nothing can ever run again and the task should unwind.
    """
    return WaitResult(_sim.wait(ready, call, object, waits_for, key, timeout_s))


def notify(key: int) -> None:
    """Have the conditions of those who wait with this key asked again."""
    _sim.notify(key)


def now() -> float:
    """Give the node's clock in seconds; it moves only when nothing can run and a deadline is pending."""
    return _sim.now_us() / 1e6


def yield_turn() -> None:
    """Let the schedule decide whether another task goes first."""
    _sim.yield_turn()


def leave() -> None:
    """End the calling thread's part in the run."""
    _sim.leave()


def unbind() -> None:
    """Undo `Process.bind` for the calling thread."""
    _sim.unbind()
