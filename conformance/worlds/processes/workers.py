"""The supervisor's side of its workers: started from the nursery, listened to, killed and replaced."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from allranks.conformance.worlds.hardware import DriverName, guarded
from allranks.conformance.worlds.processes import nursery
from allranks.conformance.worlds.processes.journal import Journal
from allranks.conformance.worlds.processes.wire import Frame, Inbox, Kind
from allranks.conformance.worlds.processes.worker import STACKS_SIGNAL
from allranks.errors import UsageError
from allranks.processes.interpreter import interpreter

_IMPORT_S: Final = 120.0  # how long the backend may take to be imported
_KILL_S: Final = 5.0
_END_S: Final = 1.0  # how long a worker may live on whose stream has ended
_SEND_S: Final = 2.0  # how long a worker may leave what it is sent where it is
_KEPT_OUTPUT: Final = 1 << 16
_READ: Final = 1 << 18
_SHARED_MEMORY: Final = Path("/dev/shm")
_MAPPED: Final = re.compile(r" (/dev/shm/[^\n]+?)(?: \(deleted\))?$", re.MULTILINE)


@dataclass(slots=True)
class Worker:
    """One worker process, and what it shares with the supervisor."""

    rank: int
    pid: int
    handle: int  # a descriptor of the process: its id may be given again once it has ended
    stream: socket.socket
    journal: Journal
    output: int
    stacks: int
    inbox: Inbox = field(default_factory=Inbox)
    said: bytearray = field(default_factory=bytearray)
    exited: int | None = None  # exit code, or minus the signal

    def send(self, frame: Frame) -> bool:
        """Send a frame; False: it is there and does not take it. One that is gone is noticed elsewhere."""
        try:
            self.stream.sendall(frame.packed())
        except TimeoutError:
            return False
        except OSError:
            pass
        return True

    def receive(self) -> bytes | None:
        """Give what has come along the stream; empty: it has ended; None: nothing has come."""
        try:
            return self.stream.recv(_READ, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def listen(self) -> None:
        """Take in what it has printed; the last of it is kept."""
        while True:
            try:
                read = os.read(self.output, _READ)
            except OSError:
                return
            self.said += read
            del self.said[:-_KEPT_OUTPUT]
            if len(read) < _READ:
                return

    def written_stacks(self) -> str:
        """Give the stacks that the interpreter wrote."""
        size = os.fstat(self.stacks).st_size
        return os.pread(self.stacks, size, 0).decode(errors="replace")

    def ask_for_stacks(self) -> None:
        """Have the interpreter write its stacks."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.handle, STACKS_SIGNAL)

    def shared_memory(self) -> set[str]:
        """Give the files in shared memory that it has mapped."""
        try:
            return set(_MAPPED.findall(Path(f"/proc/{self.pid}/maps").read_text(encoding="utf-8", errors="replace")))
        except OSError:
            return set()

    def close(self) -> None:
        """Give back what is shared."""
        self.stream.close()
        self.journal.close()
        for descriptor in (self.handle, self.output, self.stacks):
            os.close(descriptor)


class Workers:
    """The workers of a world, one a rank, and the nursery that they come from.

    Parameters
    ----------
    backend : str
        Name of the backend, or ``module:Class``.
    driver : {"sim", "cuda"}
        Whether they work on real GPUs; then multicast is disabled in their environment, unless the guard allows it.

    Raises
    ------
    allranks.errors.UsageError
        If the backend cannot be had.
    """

    def __init__(self, backend: str, driver: DriverName = "sim") -> None:
        self.backend = backend
        self.driver: DriverName = driver
        self.by_rank: dict[int, Worker] = {}
        self.selector = selectors.DefaultSelector()
        self.spawned = 0
        self._mapped_before = set(os.listdir(_SHARED_MEMORY)) if _SHARED_MEMORY.is_dir() else set()
        self._start_nursery()

    def _start_nursery(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = guarded(os.environ) if self.driver == "cuda" else dict(os.environ)
        self._nursery = subprocess.Popen(
            interpreter(nursery.__name__, str(theirs.fileno()), self.backend, self.driver),
            pass_fds=[theirs.fileno()],
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            env={"OPENBLAS_NUM_THREADS": "1", **environment},  # a process with threads is a bad one to fork
        )
        theirs.close()
        self._link = ours
        self.selector.register(ours, selectors.EVENT_READ, None)
        told = self._hear(_IMPORT_S)
        if told is None or "ready" not in told:
            self.close()
            why = "takes too long" if told is None else "ends the process"
            refused = (told or {}).get("refused", f"backend={self.backend!r}: importing it {why}")
            raise UsageError(refused)

    def _hear(self, timeout_s: float) -> dict[str, Any] | None:
        """Give what the nursery says next; empty: it is gone; None: it says nothing in that time."""
        self._link.settimeout(timeout_s)
        try:
            message, handles, _, _ = socket.recv_fds(self._link, 1 << 16, 1)
        except (BlockingIOError, TimeoutError):
            return None
        except OSError:
            return {}
        told: dict[str, Any] = json.loads(message) if message else {}
        if "spawned" in told:
            told["handle"] = handles[0]
        if "exited" in told:
            for worker in self.by_rank.values():
                if worker.pid == told["exited"]:
                    worker.exited = told["status"]
        return told

    def hear(self, timeout_s: float = 0) -> None:
        """Take in what the nursery says; when it is gone, so are all workers, and a new one is started."""
        if self._hear(timeout_s) == {}:
            for worker in self.by_rank.values():
                worker.exited = -signal.SIGKILL if worker.exited is None else worker.exited
            self._end_nursery()
            self._start_nursery()

    def of(self, rank_count: int) -> list[Worker]:
        """Give the workers of the first ranks; those that there are not are started."""
        return [self.by_rank.get(rank) or self._spawn(rank) for rank in range(rank_count)]

    def _spawn(self, rank: int) -> Worker:
        ours, theirs = socket.socketpair()
        ours.settimeout(_SEND_S)
        journal, stacks = Journal.create(), os.memfd_create("allranks-stacks")
        output, printed = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(output, False)
        shared = [theirs.fileno(), journal, printed, stacks]
        socket.send_fds(self._link, [json.dumps({"spawn": rank}).encode()], shared)
        told = self._hear(_KILL_S)
        while told and "spawned" not in told:
            told = self._hear(_KILL_S)
        if not told:
            raise RuntimeError("the process that workers are forked from does not answer")
        worker = Worker(rank, told["spawned"], told["handle"], ours, Journal(journal), output, stacks)
        theirs.close()
        os.close(journal)
        os.close(printed)
        self.by_rank[rank] = worker
        self.selector.register(ours, selectors.EVENT_READ, worker)
        self.selector.register(output, selectors.EVENT_READ, worker)
        self.spawned += 1
        return worker

    def deaf(self, worker: Worker) -> None:
        """Listen to a worker no more, but for what it prints."""
        with contextlib.suppress(KeyError):
            self.selector.unregister(worker.stream)

    def ends(self, worker: Worker) -> bool:
        """Whether a worker whose stream has ended ends as well, as it should."""
        if select.select([worker.handle], [], [], _END_S)[0]:
            self._until_ended([worker])
        return worker.exited is not None

    def put_down(self, worker: Worker) -> None:
        """End a worker, without waiting for that."""
        with contextlib.suppress(OSError):  # when the nursery is gone, so is the worker
            self._link.send(json.dumps({"kill": worker.pid}).encode())

    def end(self, workers: Iterable[Worker]) -> None:
        """End workers at once, with all that they started or left in shared memory; what they told is there still."""
        ending = list(workers)
        left = {path for worker in ending for path in worker.shared_memory()}
        for worker in ending:
            if worker.exited is None:
                self.put_down(worker)
        self._until_ended(ending)
        for path in left:
            if path.removeprefix(f"{_SHARED_MEMORY}/") not in self._mapped_before:
                Path(path).unlink(missing_ok=True)

    def replace(self, workers: Iterable[Worker]) -> None:
        """End workers; others take their places when they are needed."""
        gone = list(workers)
        self.end(gone)
        for worker in gone:
            self._forget(worker)

    def _until_ended(self, ending: list[Worker]) -> None:
        until = time.monotonic() + _KILL_S
        while any(worker.exited is None for worker in ending):
            if time.monotonic() > until:
                raise RuntimeError(f"workers {[worker.rank for worker in ending]} do not end when they are killed")
            self.hear(_KILL_S)

    def _forget(self, worker: Worker) -> None:
        self.deaf(worker)
        self.selector.unregister(worker.output)
        worker.close()
        del self.by_rank[worker.rank]

    def _end_nursery(self) -> None:
        self.selector.unregister(self._link)
        self._link.close()  # it ends its workers, and then itself
        try:
            self._nursery.wait(_KILL_S)
        except subprocess.TimeoutExpired:
            self._nursery.kill()
            self._nursery.wait()

    def close(self) -> None:
        """End everything: workers that are idle by themselves, so that what they hold is given back."""
        for worker in self.by_rank.values():
            worker.send(Frame(Kind.END, 0))
        until = time.monotonic() + _SEND_S
        while any(worker.exited is None for worker in self.by_rank.values()) and time.monotonic() < until:
            if self._hear(max(0.01, until - time.monotonic())) == {}:
                break
        self._end_nursery()
        for worker in list(self.by_rank.values()):
            self._forget(worker)
        self.selector.close()
