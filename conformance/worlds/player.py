"""One rank of a world whose ranks are processes that a launcher has started: it plays Programs, and says how it went.

The session runs in a thread of its own. The main thread looks on, and when the session has come no further for the
whole deadline it tells what there is so far, with the stack of the place where the session is.
"""

from __future__ import annotations

import copy
import sys
import threading
import time
from collections.abc import Callable, Hashable, MutableSequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from allranks.conformance.backend import Backend
from allranks.conformance.plan import Planned
from allranks.conformance.program import Program
from allranks.conformance.trace import CLOSING, OPENING, Event
from allranks.conformance.worlds.arena import Arena
from allranks.conformance.worlds.host_session import host_session
from allranks.conformance.worlds.meeting import Meeting
from allranks.conformance.worlds.rest import SIGN_S, Signs
from allranks.conformance.worlds.session import Session
from allranks.conformance.worlds.stacks import stack_of
from allranks.conformance.worlds.told import Told
from allranks.conformance.worlds.wire import Lane, Message
from allranks.errors import Timeout

T = TypeVar("T")

_LOOK_S: Final = 0.1
# What a communicator's own blocking calls get of the deadline, so that its errors come before the world's verdict.
_OWN_SHARE: Final = 0.5


@dataclass(slots=True, kw_only=True)
class Played:
    """How one rank's session ended, and what it saw; `over`: it came to its end."""

    rank: int
    over: bool
    at: int  # the label of what it was doing last
    told: Told
    stack: tuple[str, ...] = ()
    failure: str = ""


class Labels(list[int]):
    """What each rank does, as a session notes it; counts the changes, and can be seen from outside the process."""

    def __init__(self, count: int, shared: MutableSequence[int] | None = None) -> None:
        super().__init__([0] * count)
        self.shared = shared
        self.changes = 0

    def seen(self, count: int) -> tuple[int, list[int]]:
        """Give what changes whenever one of so many ranks gets further, as far as it can be seen from here."""
        return self.changes, [] if self.shared is None else list(self.shared[:count])

    def __setitem__(self, rank: Any, label: Any) -> None:
        super().__setitem__(rank, label)
        self.changes += 1
        if self.shared is not None:
            self.shared[rank] = label


class LaneMeeting(Meeting):
    """Where the ranks of one run meet: by messages. Ranks that exchange for different purposes do not meet."""

    def __init__(self, lane: Lane, rank: int, rank_count: int, run: int, signs: Signs) -> None:
        self.lane = lane
        self.signs = signs
        self.rank = rank
        self.run = run
        self._everyone = tuple(range(rank_count))
        self._next: dict[tuple[str, tuple[int, ...]], int] = {}
        self._come: dict[tuple[str, tuple[int, ...], int], dict[int, Any]] = {}
        self._shared: dict[Hashable, Any] = {}

    def exchange(
        self, rank: int, value: T, what: str, timeout_s: float | None, members: tuple[int, ...] | None = None
    ) -> list[T]:
        """Give the value of every rank, or of every member, in the order of ranks.

        Raises
        ------
        Timeout
            If some rank does not come in time.
        """
        members = self._everyone if members is None else members
        number = self._next.get((what, members), 0)
        self._next[what, members] = number + 1
        key = (what, members, number)
        for peer in members:
            if peer != rank:
                self.lane.send(peer, (self.run, key, value))
        end = None if timeout_s is None else time.monotonic() + timeout_s
        come = self._come.setdefault(key, {})
        come[rank] = value
        for_ever = end is None and members == self._everyone
        while len(come) < len(members):
            found: Message | None
            if for_ever:
                found = self._look((self.run, what, number))
            else:
                found = self.lane.receive(None if end is None else max(end - time.monotonic(), 0.0))
            if found is None:
                absent = tuple(peer for peer in members if peer not in come)
                raise Timeout(f"rank {rank}: {what}: still waiting for ranks {list(absent)}", ranks=absent, rank=rank)
            peer, (run, theirs, brought) = found
            if run == self.run:  # what an earlier run has left on the way is nobody's
                self._come.setdefault(theirs, {})[peer] = brought
        del self._come[key]
        return [come[peer] for peer in members]

    def _look(self, where: object) -> Message:
        """Wait for a message, however long it takes, and let that be seen."""
        found = self.lane.receive(SIGN_S)
        if found is not None:
            return found
        self.signs.waits(where)
        try:
            while found is None:
                self.signs.looked()
                found = self.lane.receive(SIGN_S, eager=False)
        finally:
            self.signs.waits(None)
        return found

    def shared(self, key: Hashable, make: Callable[[], T]) -> T:
        """Give the object of that key, which this rank has for itself."""
        if key not in self._shared:
            self._shared[key] = make()
        found: T = self._shared[key]
        return found


class Player:
    """Plays one rank of Programs on a backend, in host memory.

    Parameters
    ----------
    backend : Backend
        The communicator under test.
    rank, size : int
        Which rank of how many there are.
    lane : Lane
        For the ranks to meet.
    deadline_s : float
        How long a session may come no further.
    shared : mutable sequence of int, optional
        Where each rank's label is written to, at its own index, and its signs.
    """

    def __init__(
        self,
        backend: Backend,
        rank: int,
        size: int,
        lane: Lane,
        *,
        deadline_s: float,
        shared: MutableSequence[int] | None = None,
    ) -> None:
        self.backend = backend
        self.rank = rank
        self.lane = lane
        self.deadline_s = deadline_s
        self.labels = Labels(size, shared)
        self.signs = Signs(shared, rank)
        self.arena = Arena()
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name=f"allranks-rank-{rank}", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            self._jobs.get()()

    def play(
        self, run: int, program: Program, plan: list[Planned], look: Callable[[], Event | None] = lambda: None
    ) -> Played:
        """Play this rank's part; the answer comes at the end, or when the deadline has passed without a change.

        A change of any rank counts: while one gets further, however slowly, those that wait for it are not stuck.
        Meanwhile `look` is called ten times a second. If it gives an event, the run has no end; the event is that of
        the step that the rank is in.
        """
        session = self._session(run, program, plan)
        over = threading.Event()

        def job() -> None:
            self.signs.plays(threading.get_native_id())
            try:
                session.play()
            except BaseException as error:  # noqa: BLE001 -- told to whoever waits for the run; a thread cannot
                session.failure = error
            finally:
                self.signs.plays(0)
                over.set()

        self.labels[self.rank] = OPENING
        seen, since = self.labels.seen(program.rank_count), time.monotonic()
        self._jobs.put(job)
        while not over.wait(_LOOK_S):
            if (event := look()) is not None:
                return self._told(session, over=False, event=event)
            now, before, seen = time.monotonic(), seen, self.labels.seen(program.rank_count)
            if seen != before:
                since = now
            elif now - since > self.deadline_s:
                return self._told(session, over=False)
        return self._told(session, over=True)

    def _session(self, run: int, program: Program, plan: list[Planned]) -> Session:
        return host_session(
            program,
            plan,
            rank=self.rank,
            backend=self.backend,
            arena=self.arena,
            meeting=LaneMeeting(self.lane, self.rank, program.rank_count, run, self.signs),
            board=self.labels,
            timeout_s=self.deadline_s * _OWN_SHARE,
        )

    def _told(self, session: Session, *, over: bool, event: Event | None = None) -> Played:
        frame = None if over else sys._current_frames().get(self._thread.ident or 0)
        stack = stack_of(frame) if frame is not None else ()
        played = Played(
            rank=self.rank,
            over=over,
            at=self.labels[self.rank],
            told=Told.of(session),
            stack=stack,
            failure="" if session.failure is None else f"{type(session.failure).__name__}: {session.failure}",
        )
        if over:
            return played
        played = copy.deepcopy(played)  # its thread may still be at it
        if event is None:
            event = waiting(f"no progress within {self.deadline_s:g} s")
        event.raised_at = played.stack
        return halted(played, event)


def halted(played: Played, event: Event) -> Played:
    """Put an event where a rank is that came no further; what is past stays as it was."""
    at, told = played.at, played.told
    if at == OPENING:
        told.opening = told.closing = event
    elif 0 <= at < len(told.events) and told.events[at].status == "not_reached":
        told.events[at] = event
    elif at == CLOSING:
        told.closing = event
    return played


def waiting(why: str) -> Event:
    """Give what a step is in which a rank is still at work when the deadline has passed."""
    return Event(status="stalled", error_type="Waiting", error=why)
