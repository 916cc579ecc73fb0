"""A keeper: the process that starts the ranks of a run, tells how they ended, and lets none of theirs outlive it.

Run as ``python -m allranks.processes.keeper DESCRIPTOR``, with what to start on its standard input as JSON and a
connection to whoever runs it, the *supervisor*, as that descriptor. What a rank started and left to nobody comes to the
keeper. When all ranks have ended, when it is told so, or when the supervisor is gone for whatever reason, everything
that is left is killed. A rank dies with the keeper; what others of its processes are then left to the supervisor.

Says ``{"started": [pids]}``, ``{"ended": rank, "status": s}`` for each rank, and last ``{"over": n}``: so many
processes had been left behind. Status as `os.waitstatus_to_exitcode` gives it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
from typing import Any, Final, NoReturn

from allranks.processes.ties import adopt_orphans, end_with_parent
from allranks.processes.watch import descendants

NOT_STARTED: Final = 127


def end_all(reaped: dict[int, int]) -> int:
    """Kill all descendants of this process and wait for them; how many there were.

    Parameters
    ----------
    reaped : dict of int to int
        Takes the wait status of each child, by pid.
    """
    seen: set[int] = set()
    while True:
        for pid in descendants(os.getpid()):
            seen.add(pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return len(seen)
        reaped[pid] = status


class _Keeper:
    def __init__(self, link: socket.socket, wanted: dict[str, Any]) -> None:
        self._link = link
        self._ranks: dict[int, int] = {}
        self._wake, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for rank in range(len(wanted["environments"])):
            self._ranks[self._start(wanted, rank)] = rank
        for descriptor in [*wanted["outputs"], *wanted["errors"]]:
            os.close(descriptor)
        self._say(started=list(self._ranks))

    def _start(self, wanted: dict[str, Any], rank: int) -> int:
        parent = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        try:
            self._become(wanted, rank, parent)
        finally:
            os._exit(NOT_STARTED)

    def _become(self, wanted: dict[str, Any], rank: int, parent: int) -> NoReturn:
        end_with_parent(parent, NOT_STARTED)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(wanted["outputs"][rank], 1)
        os.dup2(wanted["errors"][rank], 2)
        command: list[str] = wanted["command"]
        try:
            os.execvpe(command[0], command, wanted["environments"][rank])
        except OSError as error:
            os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        os._exit(NOT_STARTED)

    def _say(self, **words: object) -> None:
        with contextlib.suppress(OSError):  # the supervisor is gone, as will be seen
            self._link.sendall(json.dumps(words).encode() + b"\n")

    def _ended(self, pid: int, status: int) -> None:
        rank = self._ranks.pop(pid, None)
        if rank is not None:
            self._say(ended=rank, status=os.waitstatus_to_exitcode(status))

    def run(self) -> None:
        """Keep the ranks until all have ended, or nobody wants them any more."""
        poller = select.poll()
        poller.register(self._link, select.POLLIN | select.POLLHUP)
        poller.register(self._wake, select.POLLIN)
        while self._ranks:
            ready = {descriptor for descriptor, _ in poller.poll()}
            if self._wake in ready:
                os.read(self._wake, 4096)
            while self._ranks:
                try:
                    pid, status = os.waitpid(-1, os.WNOHANG)
                except ChildProcessError:
                    break
                if pid == 0:
                    break
                self._ended(pid, status)
            if self._link.fileno() in ready:
                break

    def end(self) -> None:
        """Kill what is left, and say how much that was."""
        mine = set(self._ranks)
        reaped: dict[int, int] = {}
        count = end_all(reaped)
        for pid, status in reaped.items():
            self._ended(pid, status)
        self._say(over=max(0, count - len(mine)))


def main() -> None:
    """Be a keeper."""
    link = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the supervisor decides
    wanted: dict[str, Any] = json.load(sys.stdin)
    for descriptor in (link.fileno(), *wanted["outputs"], *wanted["errors"]):
        os.set_inheritable(descriptor, False)
    adopt_orphans()
    keeper = _Keeper(link, wanted)
    try:
        keeper.run()
    finally:
        keeper.end()


if __name__ == "__main__":
    main()
