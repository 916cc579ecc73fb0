"""Episodes on the client library: two processes of a node, and the broker in the one that forked them.

Nothing can go on when all are in calls, which wait, and nothing moves for as long as `allranks sim run` looks. Threads
are not looked at as there: those of sanitizers have time-outs.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import os
import pickle
import random
import select
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from allranks.processes.stillness import STILL_S
from allranks.processes.ties import end_with_parent
from allranks.sim.broker import Broker, HostMemory, client_folder
from tests.sim.fuzz.embedded import machine
from tests.sim.fuzz.player import Player, Surface
from tests.sim.fuzz.record import Record

LOOK_S: Final = 0.02
FRAME: Final = 4096
WAYS: Final[tuple[HostMemory, ...]] = ("kernel", "kernel", "socket")


class Link:
    """Values on their way to the other process; none waits for them."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        end.setblocking(False)

    def tell(self, kind: str, value: Any) -> None:
        """Send a value; a descriptor travels as one."""
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [value]))] if kind == "descriptor" else []
        with contextlib.suppress(OSError):
            self._end.sendmsg([pickle.dumps((kind, value))], rights)

    def close(self) -> None:
        """Close this process's end."""
        self._end.close()

    def take(self, into: dict[str, list[Any]]) -> None:
        """Receive what has come."""
        with contextlib.suppress(OSError):
            data, descriptors, _, _ = socket.recv_fds(self._end, FRAME, 1)
            if data:
                kind, value = pickle.loads(data)
                into.setdefault(kind, []).append(descriptors[0] if descriptors else value)


def _be_client(surface: Surface, seed: str, calls: int, record: Record, start: int, link: Link) -> None:
    end_with_parent()
    for name, value in pickle.loads(os.read(start, FRAME)).items():
        os.environ[name] = value
    library = ctypes.CDLL(str(client_folder() / "libcuda.so.1"))
    player = Player(library, surface, seed, record, link.tell)
    player.start()
    for _ in range(calls // 8):
        link.take(player.values.foreign)
        player.play(8)


def _fork_client(surface: Surface, seed: str, calls: int, record: Record, link: Link) -> tuple[int, int]:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(reading)
        return pid, writing
    try:
        os.close(writing)
        _be_client(surface, seed, calls, record, reading, link)
    except BaseException:
        import traceback

        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _follow(broker: Broker, clients: Mapping[int, Record]) -> dict[int, int]:
    """Wait for the end of the clients, or until none can go on; give the exit statuses of those that ended."""
    statuses: dict[int, int] = {}
    progress, since = -1, 0.0
    watched = {os.pidfd_open(pid): pid for pid in clients}
    while watched:
        ended, _, _ = select.select(list(watched), [], [], LOOK_S)
        for descriptor in ended:
            pid = watched.pop(descriptor)
            os.close(descriptor)
            statuses[pid] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        waiting = broker.at_rest and all(clients[pid].in_call for pid in watched.values())
        if ended or progress != broker.progress or not waiting:
            progress, since = broker.progress, time.monotonic()
        elif time.monotonic() - since > STILL_S:
            break
    for descriptor, pid in watched.items():
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(descriptor)
    return statuses


def play(surface: Surface, seed: str, calls: int, records: Sequence[Record]) -> str | None:
    """Play an episode; what is wrong after it, or None."""
    chosen = random.Random(seed)
    ends = [Link(end) for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)]
    clients = [
        _fork_client(surface, f"{seed}/{rank}", calls, record, ends[rank % 2]) for rank, record in enumerate(records)
    ]
    for end in ends:  # with what was sent and not received: an export is a reference until its last copy is closed
        end.close()
    with Broker(machine(chosen), host_memory=chosen.choice(WAYS)) as broker:
        for rank, (_, writing) in enumerate(clients):
            os.write(writing, pickle.dumps(broker.environment(rank)))
            os.close(writing)
        statuses = _follow(broker, {pid: record for (pid, _), record in zip(clients, records, strict=True)})
        broker.stop()
        report = broker.report()
    if any(statuses.values()):
        return f"clients ended with {sorted(statuses.values())}"
    if report["broken"] is not None:
        return f"the books do not agree: {report['broken']}"
    if any(report["used"].values()):
        return f"not given back at the end of all clients: {report['used']}"
    return None
