"""A job: one command as several processes on one simulated node, from its start until none of them is left."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

import allranks
from allranks.errors import WorldError
from allranks.processes.keeper import end_all
from allranks.processes.stillness import Stillness
from allranks.processes.ties import adopt_orphans
from allranks.processes.watch import ThreadState, look
from allranks.sim.broker import Broker, client_folder

_LOOK_S: Final = 0.05

_RANK_NAMES: Final = (
    *("RANK", "LOCAL_RANK", "ROLE_RANK"),
    *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_NODE_RANK"),
    *("SLURM_PROCID", "SLURM_LOCALID"),
)
_SIZE_NAMES: Final = (
    *("WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE"),
    *("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    *("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_TASKS_PER_NODE"),
)

Hang = Literal["blocked", "timeout", "interrupted"]


@dataclass(slots=True, kw_only=True)
class Ended:
    """How a job ended.

    Parameters
    ----------
    statuses : dict of int to int
        By rank: the exit code, or minus the signal that killed it.
    pids : list of int
        By rank.
    hang : {"blocked", "timeout", "interrupted"}, optional
        Why it was ended; None: by itself.
    stuck : dict of int to list of ThreadState
        By rank, for those that had to be ended: what their threads were at.
    waiting : dict, optional
        The broker's report at that moment.
    left_behind : int
        Processes that ranks had started and that were there still when all ranks had ended.
    seconds : float
        How long it took.
    """

    statuses: dict[int, int] = field(default_factory=dict)
    pids: list[int] = field(default_factory=list)
    hang: Hang | None = None
    stuck: dict[int, list[ThreadState]] = field(default_factory=dict)
    waiting: dict[str, Any] | None = None
    left_behind: int = 0
    seconds: float = 0.0


def rank_variables(rank: int, size: int, port: int) -> dict[str, str]:
    """Give what torchrun, Open MPI and Slurm tell a rank of a job on one host."""
    return {
        **dict.fromkeys(_RANK_NAMES, str(rank)),
        **dict.fromkeys(_SIZE_NAMES, str(size)),
        "GROUP_RANK": "0",
        "SLURM_NODEID": "0",
        "SLURM_NNODES": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _environments(broker: Broker, size: int) -> list[dict[str, str]]:
    port = _free_port()
    inherited = os.environ.get("LD_LIBRARY_PATH")
    path = os.pathsep.join(filter(None, [str(client_folder()), inherited]))
    return [
        {**os.environ, **rank_variables(rank, size, port), **broker.environment(rank), "LD_LIBRARY_PATH": path}
        for rank in range(size)
    ]


class _Lines:
    """Copies what a rank prints, line by line, with the rank before each."""

    def __init__(self, rank: int, width: int, target: BinaryIO) -> None:
        self._prefix = f"[{rank:>{width}}] ".encode()
        self._target = target
        self._rest = b""

    def add(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._target.write(b"".join(self._prefix + line + b"\n" for line in lines))
        self._target.flush()

    def end(self) -> None:
        if self._rest:
            self.add(b"\n")


class Job:
    """Starts the processes and follows them.

    Parameters
    ----------
    broker : Broker
        Their node.
    command : sequence of str
        What each of them executes.
    size : int
        How many.
    """

    def __init__(self, broker: Broker, command: Sequence[str], size: int) -> None:
        self._broker = broker
        self._ended = Ended()
        self._alive: set[int] = set()
        self._over = False
        self._heard = b""
        self._selector = selectors.DefaultSelector()
        self._began = time.monotonic()
        adopt_orphans()  # should the keeper be killed, what it kept comes here
        self._allow_many_descriptors(size)
        self._start(command, size)

    @staticmethod
    def _allow_many_descriptors(size: int) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = 4096 + 64 * size
        if soft != resource.RLIM_INFINITY and soft < wanted:
            most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))

    def _start(self, command: Sequence[str], size: int) -> None:
        ours, theirs = socket.socketpair()
        writing: dict[str, list[int]] = {"outputs": [], "errors": []}
        width = len(str(size - 1))
        for rank in range(size):
            for kind, target in (("outputs", sys.stdout.buffer), ("errors", sys.stderr.buffer)):
                read, write = os.pipe2(os.O_CLOEXEC)
                writing[kind].append(write)
                self._selector.register(read, selectors.EVENT_READ, _Lines(rank, width, target))
        wanted = {"command": list(command), "environments": _environments(self._broker, size), **writing}
        descriptors = [*writing["outputs"], *writing["errors"]]
        self._keeper = subprocess.Popen(
            [sys.executable, "-P", "-m", "allranks.processes.keeper", str(theirs.fileno())],
            stdin=subprocess.PIPE,
            pass_fds=(theirs.fileno(), *descriptors),
            env={**os.environ, "PYTHONPATH": _import_path()},
        )
        theirs.close()
        for descriptor in descriptors:
            os.close(descriptor)
        self._link = ours
        self._selector.register(ours, selectors.EVENT_READ, None)
        assert self._keeper.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._keeper.stdin as stdin:
            stdin.write(json.dumps(wanted).encode())

    def run(self, timeout_s: float | None = None) -> Ended:
        """Follow the processes until none is left.

        Parameters
        ----------
        timeout_s : float, optional
            After so many seconds the job is ended as one that hangs. One of which nothing can ever go on is ended at
            once in any case.

        Raises
        ------
        allranks.errors.WorldError
            If the keeper was killed; nothing is left then either.
        """
        stillness = Stillness()
        progress = -1
        while not self._over:
            moved = self._hear(_LOOK_S)
            now = time.monotonic()
            if self._over or self._ended.hang is not None or not self._alive:
                continue
            if moved or progress != self._broker.progress or not self._broker.at_rest:
                progress = self._broker.progress
                stillness.forget()
            elif stillness.reached(now, [self._ended.pids[rank] for rank in self._alive]):
                self.end("blocked")
            if timeout_s is not None and now - self._began >= timeout_s:
                self.end("timeout")
        while self._hear(0.0):
            pass
        self._close()
        return self._ended

    def end(self, why: Hang) -> None:
        """End all processes, after having looked at what they are at."""
        if self._ended.hang is not None:
            return
        self._ended.hang = why
        self._ended.stuck = {rank: look(self._ended.pids[rank]) for rank in sorted(self._alive)}
        self._ended.waiting = self._broker.report()
        with contextlib.suppress(OSError):
            self._link.sendall(b"end\n")

    def close(self) -> None:
        """End everything without looking at it; for a job that is not run to its end."""
        self._link.close()
        end_all({})

    def _hear(self, timeout_s: float) -> bool:
        """Take what there is to be read; whether there was anything."""
        ready = self._selector.select(timeout_s)
        for key, _ in ready:
            if key.data is None:
                self._listen()
                continue
            data = os.read(key.fd, 1 << 16)
            if data:
                key.data.add(data)
            else:
                self._forget(key)
        return bool(ready)

    def _forget(self, key: selectors.SelectorKey) -> None:
        self._selector.unregister(key.fileobj)
        os.close(key.fd)
        key.data.end()

    def _listen(self) -> None:
        data = self._link.recv(1 << 16)
        *lines, self._heard = (self._heard + data).split(b"\n")
        for line in lines:
            said = json.loads(line)
            if "started" in said:
                self._ended.pids = said["started"]
                self._alive = set(range(len(self._ended.pids)))
            elif "ended" in said:
                self._alive.discard(said["ended"])
                self._ended.statuses[said["ended"]] = said["status"]
            else:
                self._ended.left_behind = said["over"]
                self._over = True
        if not data and not self._over:
            end_all({})
            raise WorldError("the process that keeps the ranks was killed; they were ended")
        if self._over:
            self._selector.unregister(self._link)

    def _close(self) -> None:
        for key in list(self._selector.get_map().values()):
            self._forget(key)
        self._selector.close()
        self._link.close()
        self._keeper.wait()
        self._ended.seconds = time.monotonic() - self._began


def _import_path() -> str:
    """Give the keeper this package, wherever it was imported from."""
    folder = str(Path(allranks.__file__).parent.parent)
    return os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
