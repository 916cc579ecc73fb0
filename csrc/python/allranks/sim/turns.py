"""What a task of a run does: say what it is at, wait for a condition, give others a chance."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence

from allranks._native import sim as _sim


class WaitResult(enum.Enum):
    """How a wait ended."""

    READY = 0
    TIMEOUT = 1
    STALLED = 2
    NO_RUN = 3


class Gathering:
    """Where some ranks come together once; those that are early wait for the others.

    Parameters
    ----------
    members : sequence of int
        The ranks.
    object : str
        What it is, for stories: ``"connect #3"``.
    """

    __slots__ = ("_native",)

    def __init__(self, members: Sequence[int], object: str) -> None:
        self._native = _sim.Gathering(members, object)

    def arrive(self, rank: int, *, timeout_s: float | None = None) -> WaitResult:
        """Come, and wait until all have; called by the rank's own task.

        Raises
        ------
        ValueError
            If the rank is no member.
        """
        ended = self._native.arrive(rank, timeout_s)
        return WaitResult(ended) if ended else WaitResult.READY

    def missing(self) -> list[int]:
        """Give the members that have not come, in their order."""
        return self._native.missing()


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
