"""Crews: the ranks that a launcher has started, as the one sees them who gives them Programs.

A `LaunchedCrew` is a job of a launcher that this process has started: every rank connects to it by a socket that has no
name in any folder, and writes what it does into memory that both ends map, if they are on one machine. So it hears of
the end of each rank, whatever ends it, and can start the job again. A `WireCrew` is the job that this process is itself
the first rank of: another launcher has started it, and nobody can start it again.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Client, Connection, Listener, wait
from typing import IO, Any, Final, Protocol

from allranks.conformance.launchers import Launch
from allranks.conformance.worlds import sentinel
from allranks.conformance.worlds.rest import BOARD_BYTES, Rest
from allranks.conformance.worlds.wire import Lane
from allranks.errors import UsageError, WorldError
from allranks.processes.interpreter import interpreter

# How long a job may take to come up; importing a large library on a busy machine is the longest part.
START_S: Final = 120.0
_END_S: Final = 5.0
_SAID_BYTES: Final = 4000
GONE: Final = "its process has ended"
_KEY: Final = "ALLRANKS_KEY"


@dataclass(frozen=True, slots=True)
class Lost:
    """What comes instead of a message when a rank is gone."""

    how: str


class Crew(Protocol):
    """The ranks, as who gives them Programs sees them."""

    size: int
    facts: dict[str, str]  # versions of what they run
    board: MutableSequence[int]  # labels of what they do

    @property
    def pids(self) -> list[int]:
        """Processes of those that are on this machine, as far as they are known."""

    def send(self, rank: int, message: object) -> None:
        """Send a message."""

    def receive(self, timeout_s: float) -> tuple[int, Any] | None:
        """Give the next message, or that a rank is `Lost`; None: nothing came in time."""

    def state(self, rank: int) -> str:
        """Say what the operating system knows of a rank that says nothing; empty: nothing."""

    def rest(self, rank_count: int) -> Rest:
        """Give what looks at the first ranks for whether they have come to rest for good."""

    def again(self) -> bool:
        """End all ranks and start new ones; False: this crew cannot."""

    def close(self) -> None:
        """End the ranks."""


@dataclass(slots=True)
class _Job:
    """One life of a launched crew."""

    running: subprocess.Popen[bytes]
    said: IO[bytes]
    sentinel: int  # a pipe; its end is the job's
    connections: dict[int, Connection] = field(default_factory=dict)
    pids: dict[int, int] = field(default_factory=dict)  # those of this machine


class LaunchedCrew:
    """A job of a launcher.

    Parameters
    ----------
    launched : Launch
        How to start ranks.
    size : int
        How many there will be.
    arguments : mapping
        What each rank is told: plain data.
    beat : callable
        Called again and again while the job comes up.
    """

    def __init__(
        self, launched: Launch, size: int, arguments: Mapping[str, Any], *, beat: Callable[[], None] = lambda: None
    ) -> None:
        self.beat = beat
        self.launched = launched
        self.size = size
        self.arguments = dict(arguments)
        self.facts: dict[str, str] = {}
        self._memory = os.memfd_create("allranks-board")
        os.truncate(self._memory, BOARD_BYTES)
        self.board: Any = memoryview(mmap.mmap(self._memory, BOARD_BYTES)).cast("q")
        self._job: _Job | None = None
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        for at in range(len(self.board)):  # what ranks have left there that are gone
            self.board[at] = 0
        key = secrets.token_hex(16)
        address = f"\0allranks-{os.getpid()}-{secrets.token_hex(8)}"
        with Listener(address, "AF_UNIX", backlog=self.size, authkey=key.encode()) as listener:
            told = {**self.arguments, "address": address, "size": self.size}
            told["board"] = f"/proc/{os.getpid()}/fd/{self._memory}"
            program = interpreter("allranks.conformance.worlds.launched_rank", json.dumps(told))
            said = tempfile.TemporaryFile()  # noqa: SIM115 -- as long as the job
            reading, writing = os.pipe()
            watched = [sys.executable, "-S", "-P", sentinel.__file__, str(reading), f"{_KEY}={key}"]
            running = subprocess.Popen(
                [*watched, *self.launched.command, *program],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                pass_fds=[reading],
                env={**os.environ, **self.launched.environment, _KEY: key},
            )
            os.close(reading)
            self._job = _Job(running, said, writing)
            try:
                self._gather(listener, self._job)
            except BaseException:
                self._end()
                raise

    def _gather(self, listener: Listener, job: _Job) -> None:
        """Take the connections of all ranks, and what they say of themselves."""
        end = time.monotonic() + START_S
        # The listener's own socket is the one way to wait for connections and messages together.
        listening: Any = listener._listener._socket  # type: ignore[attr-defined]
        silent: list[Connection] = []  # connected, and in the library's own start
        try:
            self._take_in(listening, listener, job, silent, end)
        finally:
            for connection in silent:
                connection.close()

    def _take_in(self, listening: Any, listener: Listener, job: _Job, silent: list[Connection], end: float) -> None:
        while len(job.connections) < self.size:
            ready = wait([listening, *silent], timeout=0.1)
            self.beat()
            if not ready and job.running.poll() is not None:
                raise UsageError(f"launcher: {self._command()} ended before any Program ran{self._quoted()}")
            if time.monotonic() > end:
                raise UsageError(f"launcher: {self._command()} did not start {self.size} ranks within {START_S:g} s")
            for one in ready:
                if one is listening:
                    silent.append(listener.accept())
                    continue
                assert isinstance(one, Connection)
                try:
                    self._greet(job, one, one.recv())
                except EOFError:  # a rank has ended: the launcher will say so
                    one.close()
                silent.remove(one)

    def _greet(self, job: _Job, connection: Connection, hello: dict[str, Any]) -> None:
        if "usage" in hello:
            raise UsageError(hello["usage"])
        if hello["local"]:
            os.write(job.sentinel, "".join(f"{path}\n" for path in hello["shared"]).encode())
        if hello["size"] != self.size or hello["rank"] in job.connections:
            what = f"{self.size} jobs of one rank" if hello["size"] == 1 else f"{hello['size']} ranks"
            raise UsageError(f"launcher: {self._command()} started {what}, not one job of {self.size}")
        job.connections[hello["rank"]] = connection
        if hello["local"]:
            job.pids[hello["rank"]] = hello["pid"]
        self.facts = self.facts or hello["facts"]

    def _command(self) -> str:
        return repr(self.launched.command[0])

    def _quoted(self) -> str:
        said = self.said().strip().splitlines()
        return f": {said[-1]}" if said else ""

    def said(self) -> str:
        """Give the end of what the ranks and their launcher have printed."""
        if self._job is None:
            return ""
        size = os.fstat(self._job.said.fileno()).st_size
        start = max(0, size - _SAID_BYTES)
        return os.pread(self._job.said.fileno(), _SAID_BYTES, start).decode(errors="replace")

    def _now(self) -> _Job:
        if self._job is None:
            raise WorldError("the crew is closed")
        return self._job

    @property
    def pids(self) -> list[int]:
        """Processes of those that are on this machine."""
        return list(self._now().pids.values())

    def send(self, rank: int, message: object) -> None:
        """Send a message; that a rank is gone is heard by receiving."""
        with contextlib.suppress(OSError):
            self._now().connections[rank].send(message)

    def receive(self, timeout_s: float) -> tuple[int, Any] | None:
        """Give the next message."""
        job = self._now()
        ranks = {connection: rank for rank, connection in job.connections.items()}
        for ready in wait(list(ranks), timeout=timeout_s):
            assert isinstance(ready, Connection)
            rank = ranks[ready]
            try:
                return rank, ready.recv()
            except (EOFError, OSError):
                job.connections.pop(rank).close()
                return rank, Lost(GONE)
            except Exception as error:  # noqa: BLE001 -- whatever unpickling garbage raises
                return rank, Lost(f"what it says is no message: {type(error).__name__}: {error}")
        return None

    def state(self, rank: int) -> str:
        """Say whether a process of this machine is stopped, or gone."""
        if rank not in self._now().pids:
            return ""
        pid = self._now().pids[rank]
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
                letter = stat.read().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            return "its process is gone"
        return {"T": "its process is stopped", "Z": "its process is gone"}.get(letter, "")

    def rest(self, rank_count: int) -> Rest:
        """Give what looks at the ranks."""
        return Rest(self.board, self._now().pids, rank_count)

    def again(self) -> bool:
        """End the job and start another."""
        self._end()
        self._start()
        return True

    def _end(self) -> None:
        job, self._job = self._job, None
        if job is None:
            return
        for connection in job.connections.values():
            connection.close()
        os.close(job.sentinel)
        job.running.wait()
        job.said.close()

    def close(self) -> None:
        """End the job; ranks that can are asked to end by themselves."""
        if self._job is not None:
            for rank in list(self._job.connections):
                self.send(rank, None)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._job.running.wait(_END_S)
        self._end()
        if self._memory >= 0:
            self.board.release()
            os.close(self._memory)
            self._memory = -1


def connect(told: Mapping[str, Any]) -> tuple[Connection, MutableSequence[int] | None]:
    """Connect to the crew that has started this rank; its board can be had if it is on this machine."""
    connection: Any = Client(told["address"], "AF_UNIX", authkey=os.environ.pop(_KEY).encode())
    board: Any = None
    with contextlib.suppress(OSError):
        descriptor = os.open(told["board"], os.O_RDWR)
        board = memoryview(mmap.mmap(descriptor, BOARD_BYTES)).cast("q")
        os.close(descriptor)
    return connection, board


class WireCrew:
    """The other ranks of a job that this process is the first rank of.

    Parameters
    ----------
    lane : Lane
        A lane for this alone.
    size : int
        Number of ranks.
    facts : mapping of str to str
        Versions of what they run.
    board : mutable sequence of int
        Where this rank notes what it does; of others nothing is seen.
    """

    def __init__(self, lane: Lane, size: int, facts: Mapping[str, str], board: MutableSequence[int]) -> None:
        self.lane = lane
        self.size = size
        self.facts = dict(facts)
        self.board = board

    @property
    def pids(self) -> list[int]:
        """None are known."""
        return []

    def send(self, rank: int, message: object) -> None:
        """Send a message."""
        self.lane.send(rank, message)

    def receive(self, timeout_s: float) -> tuple[int, Any] | None:
        """Give the next message."""
        return self.lane.receive(timeout_s)

    def state(self, rank: int) -> str:
        """Nothing is known of another host's processes."""
        return ""

    def rest(self, rank_count: int) -> Rest:
        """Of these ranks nobody can tell."""
        return Rest(self.board, {}, rank_count)

    def again(self) -> bool:
        """Only its launcher could."""
        return False

    def close(self) -> None:
        """Let the ranks end."""
        for rank in range(1, self.size):
            self.lane.send(rank, None)
        self.lane.flush()


def as_list(labels: Sequence[int], count: int) -> list[int]:
    """Give the first labels of a board as they are now."""
    return [int(label) for label in labels[:count]]
