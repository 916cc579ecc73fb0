"""Starts clients of a broker without starting an interpreter for each: they are forked off this one.

Run as ``python -m tests.sim.run.starter SOCKET OUTPUT MODULE`` with the client library on the library path. For each
list of environments that comes as JSON, a process for each runs the module; their process ids are answered, and then
``[pid, status]`` of each that has ended. They end with this process, and it ends with the other side of the socket.
"""

from __future__ import annotations

import array  # noqa: F401  (what the modules need, loaded once)
import contextlib
import ctypes  # noqa: F401
import json
import os
import runpy
import select
import signal
import socket
import struct  # noqa: F401
import subprocess
import sys
from typing import Any, NoReturn

from allranks.processes.ties import end_with_parent
from allranks.sim.broker import client_folder
from tests.sim.run.conftest import ROOT, environment

FRAME = 1 << 16


class Starter:
    """The process that starts others, seen from who wants them.

    Parameters
    ----------
    module : str
        What they run.
    """

    def __init__(self, module: str) -> None:
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._said = os.memfd_create("said")
        passed = (theirs.fileno(), self._said)
        command = [sys.executable, "-P", "-m", "tests.sim.run.starter", *map(str, passed), module]
        variables = environment() | {"LD_LIBRARY_PATH": str(client_folder())}
        self._process = subprocess.Popen(command, cwd=ROOT, env=variables, pass_fds=passed)
        theirs.close()

    @property
    def pid(self) -> int:
        """The process that starts others."""
        return self._process.pid

    def start(self, environments: list[dict[str, str]]) -> list[int]:
        """Start a process for each environment; their process ids."""
        os.ftruncate(self._said, 0)
        os.lseek(self._said, 0, os.SEEK_SET)  # theirs too
        self._link.send(json.dumps(environments).encode())
        pids: list[int] = self._hear()
        return pids

    def _hear(self) -> Any:
        data = self._link.recv(FRAME)
        if not data:
            raise RuntimeError(f"the process that starts others has ended: {self.said()}")
        return json.loads(data)

    def ended(self, timeout_s: float) -> tuple[int, int] | None:
        """Wait for the end of one: its process id and exit status; None: nobody has ended."""
        if not select.select([self._link], [], [], timeout_s)[0]:
            return None
        pid, status = self._hear()
        return pid, status

    def said(self) -> str:
        """Give what they printed."""
        return os.pread(self._said, FRAME, 0).decode(errors="replace")

    def close(self) -> None:
        """End it."""
        self._link.close()
        self._process.wait()
        os.close(self._said)


def _run(module: str, variables: dict[str, str], output: int) -> NoReturn:
    status = 1
    try:
        end_with_parent()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ.update(variables)
        try:
            runpy.run_module(module, run_name="__main__")
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
        sys.stderr.flush()
        sys.stdout.flush()
    finally:
        os._exit(status)


def _be_starter(link: socket.socket, output: int, module: str) -> None:
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(writing)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([link.fileno(), reading], [], [])
        if reading in ready:
            os.read(reading, 4096)
            with contextlib.suppress(ChildProcessError):
                while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                    link.send(json.dumps([ended[0], os.waitstatus_to_exitcode(ended[1])]).encode())
        if link.fileno() not in ready:
            continue
        data = link.recv(FRAME)
        if not data:
            return
        pids = []
        for variables in json.loads(data):
            pid = os.fork()
            if pid == 0:
                link.close()
                _run(module, variables, output)
            pids.append(pid)
        link.send(json.dumps(pids).encode())


if __name__ == "__main__":
    _be_starter(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]), sys.argv[3])
