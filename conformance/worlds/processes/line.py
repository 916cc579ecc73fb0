"""A worker's side of its link to the supervisor: it gets Programs along it, and meets the other ranks through it."""

from __future__ import annotations

import pickle
import socket
import threading
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from allranks.conformance.worlds.meeting import Meeting
from allranks.conformance.worlds.processes.wire import Frame, Inbox, Kind, receive
from allranks.errors import Timeout

T = TypeVar("T")


class Line:
    """A stream of frames to and from the supervisor."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._inbox = Inbox()
        self._waiting: list[Frame] = []

    def send(self, frame: Frame) -> None:
        """Send a frame."""
        self._stream.sendall(frame.packed())

    def receive(self) -> Frame:
        """Wait for a frame, for as long as it takes."""
        return receive(self._stream, self._inbox, self._waiting)


class LineMeeting(Meeting):
    """The meeting point of ranks that are processes: the supervisor passes on what each of them brings.

    Values are pickled here and unpickled by the other ranks, and by nobody else.
    """

    def __init__(self, line: Line, run: int, rank_count: int) -> None:
        self._line = line
        self._run = run
        self._everyone = list(range(rank_count))
        self._shared: dict[Hashable, Any] = {}
        self._one_at_a_time = threading.Lock()

    def exchange(
        self, rank: int, value: T, what: str, timeout_s: float | None, members: tuple[int, ...] | None = None
    ) -> list[T]:
        """Give the value of every rank, or of every member, in the order of ranks.

        Raises
        ------
        Timeout
            If some rank does not come in time; the error names those.
        """
        blob = b"" if value is None else pickle.dumps(value)
        with self._one_at_a_time:
            self._line.send(Frame(Kind.MEET, self._run, (what, timeout_s, members, blob)))
            answer = self._line.receive()
        if answer.kind is Kind.LATE:
            missing = tuple(answer.value)
            raise Timeout(f"rank {rank}: {what}: still waiting for ranks {list(missing)}", ranks=missing, rank=rank)
        values: list[Any] = [pickle.loads(brought) if brought else None for brought in answer.value]
        return values

    def shared(self, key: Hashable, make: Callable[[], T]) -> T:
        """Give the object of that key, which this rank has for itself: no other rank is in its process."""
        if key not in self._shared:
            self._shared[key] = make()
        found: T = self._shared[key]
        return found
