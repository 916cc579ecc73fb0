"""The process that the workers are forked from: it has imported the backend, and runs none of its code beside that.

So a worker is there within milliseconds, however long the backend takes to be imported. The nursery is the parent of
all workers: it kills them, says how each of them ended, and sees to it that nothing which they started is left. When
the other end of its socket is gone, it ends them all; when it is gone itself, the kernel ends them.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import selectors
import signal
import socket
import threading
import traceback
from collections.abc import Iterator
from typing import Any, Final

from allranks.conformance.backend import Backend, load_backend
from allranks.conformance.worlds.hardware import DriverName
from allranks.conformance.worlds.processes.worker import serve
from allranks.errors import UsageError
from allranks.processes.ties import adopt_orphans, end_with_parent
from allranks.processes.watch import children

_MOST_BYTES: Final = 1 << 16


class _Nursery:
    """The workers that are alive, by process id."""

    def __init__(self, link: socket.socket, backend: Backend, driver: DriverName) -> None:
        self.link = link
        self.backend = backend
        self.driver = driver
        self.alive: set[int] = set()
        self.woken, self.wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self.wakes, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        adopt_orphans()

    def say(self, **what: Any) -> None:
        """Tell the supervisor."""
        self.link.send(json.dumps(what).encode())

    def run(self) -> None:
        """Do what is asked until nobody asks any more."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.link, selectors.EVENT_READ)
            selector.register(self.woken, selectors.EVENT_READ)
            self.say(ready=True)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is self.link and not self.listen():
                        return
                    if key.fd == self.woken:
                        os.read(self.woken, 4096)
                        self.reap()

    def listen(self) -> bool:
        """Do one thing that is asked; False: nobody asks any more."""
        message, descriptors, _, _ = socket.recv_fds(self.link, _MOST_BYTES, 8)
        if not message:
            return False
        asked = json.loads(message)
        if "kill" in asked and asked["kill"] in self.alive:
            _kill_group(asked["kill"])
        if "spawn" in asked:
            pid = self.fork(descriptors, asked["spawn"])
            self.alive.add(pid)
            handle = os.pidfd_open(pid)  # it may have ended already, but nobody else has reaped it
            socket.send_fds(self.link, [json.dumps({"spawned": pid}).encode()], [handle])
            os.close(handle)
        for descriptor in descriptors:
            os.close(descriptor)
        return True

    def fork(self, descriptors: list[int], rank: int) -> int:
        """Start a worker on these descriptors: link, journal, output, stacks."""
        parent = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        try:
            _become_worker(parent)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self.link.close()
            os.close(self.woken)
            os.close(self.wakes)
            link, journal, output, stacks = descriptors
            for stream in (1, 2):
                os.dup2(output, stream)
            os.close(output)
            serve(self.backend, socket.socket(fileno=link), journal, stacks, rank, self.driver)
        except BaseException:  # noqa: BLE001 -- a worker ends here, whatever happens
            traceback.print_exc()
            os._exit(70)
        os._exit(0)

    def reap(self) -> None:
        """Say how workers ended, and end what they have left behind."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                break
            if pid in self.alive:
                self.alive.discard(pid)
                _kill_group(pid)  # what it started in its own group
                self.say(exited=pid, status=os.waitstatus_to_exitcode(status))
        for stranger in children(os.getpid()) - self.alive:
            _kill_group(stranger)

    def end(self) -> None:
        """End all that is left, and wait for it."""
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        while True:
            for pid in children(os.getpid()):
                _kill_group(pid)
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                return


def _become_worker(parent: int) -> None:
    os.setsid()
    end_with_parent(parent)


def _kill_group(pid: int) -> None:
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


@contextlib.contextmanager
def _ends_with(supervisor: socket.socket) -> Iterator[None]:
    """End this process and all that it started when the supervisor is gone, whatever it is at meanwhile."""
    stop, stopping = os.pipe()

    def watch() -> None:
        poll = select.poll()
        poll.register(supervisor, select.POLLHUP)
        poll.register(stop, select.POLLIN)
        if any(descriptor != stop for descriptor, _ in poll.poll()):
            os.killpg(0, signal.SIGKILL)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield
    finally:
        os.write(stopping, b"x")
        watching.join()
        os.close(stop)
        os.close(stopping)


def main(link: str, backend: str, driver: DriverName) -> None:
    """Import a backend and serve the supervisor at the other end of a socket."""
    supervisor = socket.socket(fileno=int(link))
    try:
        with _ends_with(supervisor):
            found = load_backend(backend)
            try:
                getattr(found, "prepare", lambda: None)()
            except UsageError:  # it says itself what it misses
                raise
            except (Exception, SystemExit) as error:
                said = f"backend={backend!r}: prepare() raises {type(error).__name__}: {error}"
                raise UsageError(said) from error
    except UsageError as error:
        supervisor.send(json.dumps({"refused": str(error)[: _MOST_BYTES // 2]}).encode())
        return
    gc.collect()
    gc.freeze()  # no worker's collector goes through what was imported, and all workers keep sharing those pages
    nursery = _Nursery(supervisor, found, driver)
    try:
        nursery.run()
    except (BrokenPipeError, ConnectionResetError):
        pass  # nobody is there any more
    finally:
        nursery.end()
