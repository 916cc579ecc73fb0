"""Communicators in host memory that stop, compute, die, lie, leave things behind, or give wrong bytes.

Each misbehaves in the all_reduce of rank 1, of two elements or more.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing import shared_memory
from typing import Any

from allranks.conformance.backend import RankContext
from allranks.conformance.data import ITEM_BYTES
from allranks.conformance.worlds.processes import journal
from allranks.conformance.worlds.processes.wire import record
from tests.conformance.worlds.host_communicator import (
    HostBackend,
    HostChannels,
    HostCommunicator,
    unruly_sockets,
)


class _Unruly(HostCommunicator):
    def all_reduce(self, send: int, receive: int, count: int, dtype: str, operation: str) -> None:
        if self.context.rank == 1 and count > 1:
            self.misbehave()
        super().all_reduce(send, receive, count, dtype, operation)

    def misbehave(self) -> None:
        raise NotImplementedError


class _Blocks(_Unruly):
    def misbehave(self) -> None:
        first, second = socket.socketpair()
        with first, second:
            first.recv(1)


class _BlocksOnALock(_Unruly):
    def misbehave(self) -> None:
        threading.Event().wait()


class _Sleeps(_Unruly):
    def misbehave(self) -> None:
        time.sleep(3600)


class _Polls(_Unruly):
    def misbehave(self) -> None:
        while not select.select([], [], [], 0.005)[0]:
            pass


class _WaitsWithATimer(_Unruly):
    """Blocks in a read without a time-out, while a socket option, which no argument shows, is one."""

    def misbehave(self) -> None:
        first, second = socket.socketpair()
        with first, second:
            first.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 3600, 0))
            os.read(first.fileno(), 1)


class _HasAHelper(_Unruly):
    """Blocks, while another thread of the process would go on some time."""

    def misbehave(self) -> None:
        gate = threading.Event()

        def later() -> None:
            time.sleep(3600)
            gate.set()

        threading.Thread(target=later, daemon=True).start()
        gate.wait()


def _for_a_while() -> float:
    return float(os.environ.get("ALLRANKS_TEST_COMPUTES_S", "3600"))


class _SleepsForAWhile(_Unruly):
    def misbehave(self) -> None:
        time.sleep(_for_a_while())


class _AsksAHelper(_Unruly):
    """Waits for a process of its own that takes its time, as for a compiler; then goes on."""

    def misbehave(self) -> None:
        subprocess.run(["sleep", "0.6"], check=True)


class _Computes(_Unruly):
    def misbehave(self) -> None:
        until = time.monotonic() + _for_a_while()
        while time.monotonic() < until:
            pass


class _StopsItself(_Unruly):
    def misbehave(self) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)


class _Dies(_Unruly):
    def misbehave(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class _Crashes(_Unruly):
    def misbehave(self) -> None:
        ctypes.string_at(8)


class _Exits(_Unruly):
    def misbehave(self) -> None:
        os._exit(7)


class _Garbles(_Unruly):
    """Writes over what is not its own: every socket of the process."""

    def misbehave(self) -> None:
        for descriptor in unruly_sockets():
            os.write(descriptor, b"garbage " * 8)
        time.sleep(3600)


class _ClosesAll(_Unruly):
    def misbehave(self) -> None:
        for descriptor in list(unruly_sockets()):
            os.close(descriptor)
        time.sleep(3600)


class _Speaks(_Unruly):
    def misbehave(self) -> None:
        sys.stdout.write("about to stop\n")
        ctypes.CDLL(None).puts(b"and so is the library")
        sys.stderr.write("no way out\n")
        threading.Event().wait()


class _Floods(_Unruly):
    def misbehave(self) -> None:
        while True:
            os.write(1, b"again and again\n" * 1000)


class _LeavesThings(_Unruly):
    """Starts a process in a session of its own, and shared memory, and stops."""

    def misbehave(self) -> None:
        kept = shared_memory.SharedMemory(f"allranks-test-{os.getppid()}", create=True, size=4096)
        subprocess.Popen(
            [sys.executable, "-S", "-c", "import time; time.sleep(3600)", "allranks-left"], start_new_session=True
        )
        threading.Event().wait()
        kept.close()


class _Misnumbers(_Unruly):
    """Has the world tell of this step under another number."""

    def misbehave(self) -> None:
        _tell(lambda told: record({**told, "step": told["step"] + 1} if "step" in told else told))


class _Damages(_Unruly):
    """Writes over what the world tells of this step."""

    def misbehave(self) -> None:
        _tell(lambda told: record(told)[:-1] + b"!")


def _tell(recorded: Callable[[Any], bytes]) -> None:
    setattr(journal, "record", recorded)  # noqa: B010 -- a name that the module only uses


class _Meets(HostCommunicator):
    """Exchanges values among some ranks; then rank 0 waits for the others in vain, and not for ever."""

    def all_reduce(self, send: int, receive: int, count: int, dtype: str, operation: str) -> None:
        context = self.context
        if context.rank != 1:
            members = tuple(rank for rank in range(context.rank_count) if rank != 1)
            assert context.exchange({"rank": context.rank}, "some", members) == [{"rank": rank} for rank in members]
        if context.rank == 0:
            context.barrier("in vain")
        super().all_reduce(send, receive, count, dtype, operation)


class _EndsLater(HostCommunicator):
    """Is well-behaved until it was closed; then its process ends."""

    def close(self) -> None:
        if self.context.rank == 1 and not self.closed:
            threading.Timer(0.2, lambda: os._exit(9)).start()
        super().close()


class _Forgets(_Unruly):
    """One element comes from another rank's place."""

    def all_gather(self, send: int, receive: int, count: int, dtype: str) -> None:
        super().all_gather(send, receive, count, dtype)
        if self.context.rank == 1 and count > 1:
            ctypes.memmove(receive, receive + count, 1)

    def misbehave(self) -> None:
        return


class _WritesBeside(HostCommunicator):
    """Writes a byte behind what it was asked for, as a vectorised tail does."""

    def all_reduce(self, send: int, receive: int, count: int, dtype: str, operation: str) -> None:
        super().all_reduce(send, receive, count, dtype, operation)
        if self.context.rank == 1 and count > 1:
            ctypes.memset(receive + count * ITEM_BYTES[dtype] + 1, 0x5A, 1)


class _StaleChannels(HostCommunicator):
    """What was connected at an address is used again for whatever is connected there, with its first offset."""

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self.known: dict[int, HostChannels] = {}

    def connect(self, address: int, size_bytes: int) -> HostChannels:
        if address not in self.known:
            self.known[address] = super().connect(address, size_bytes)
        return self.known[address]


class _RefusesLargeRegions(HostCommunicator):
    """Has room for 1 MiB, and says so on every rank."""

    def connect(self, address: int, size_bytes: int) -> HostChannels:
        if size_bytes > 1 << 20:
            raise ValueError(f"size_bytes={size_bytes}: no room for so large a region")
        return super().connect(address, size_bytes)


def _backend(kind: type[HostCommunicator]) -> type[HostBackend]:
    name = kind.__name__.removeprefix("_")
    return type(name, (HostBackend,), {"name": name, "communicator": kind})


Blocks, BlocksOnALock, Sleeps = map(_backend, (_Blocks, _BlocksOnALock, _Sleeps))
Polls, WaitsWithATimer, HasAHelper = map(_backend, (_Polls, _WaitsWithATimer, _HasAHelper))
SleepsForAWhile, AsksAHelper = map(_backend, (_SleepsForAWhile, _AsksAHelper))
Computes, StopsItself, Dies, Crashes = map(_backend, (_Computes, _StopsItself, _Dies, _Crashes))
Exits, Garbles, ClosesAll, Speaks = map(_backend, (_Exits, _Garbles, _ClosesAll, _Speaks))
Floods, LeavesThings, EndsLater = map(_backend, (_Floods, _LeavesThings, _EndsLater))
Misnumbers, Damages, Meets = map(_backend, (_Misnumbers, _Damages, _Meets))
Forgets, StaleChannels, WritesBeside = map(_backend, (_Forgets, _StaleChannels, _WritesBeside))
RefusesLargeRegions = _backend(_RefusesLargeRegions)


class NeverPrepared(HostBackend):
    """Takes for ever to be prepared."""

    name = "NeverPrepared"

    def prepare(self) -> None:
        """Sleep."""
        os.write(1, f"{os.getpid()}\n".encode())
        time.sleep(3600)


class Unprepared(HostBackend):
    """Cannot be prepared."""

    name = "Unprepared"

    def prepare(self) -> None:
        """Fail."""
        raise LookupError("no such device")


class Prepared(HostBackend):
    """Opens only where it was prepared in the process that the rank is forked from."""

    name = "Prepared"
    prepared_in = 0

    def prepare(self) -> None:
        """Remember where."""
        self.prepared_in = os.getpid()

    def open(self, context: RankContext) -> HostCommunicator:
        """Make a communicator, if it may be."""
        if self.prepared_in != os.getppid():
            raise LookupError(f"prepared in {self.prepared_in}")
        return super().open(context)


class _WrongOnce(HostCommunicator):
    """Gives wrong bytes in the first run of all, and never again."""

    def all_gather(self, send: int, receive: int, count: int, dtype: str) -> None:
        super().all_gather(send, receive, count, dtype)
        mark = os.environ["ALLRANKS_TEST_MARK"]
        if self.context.rank == 1 and count > 0:
            try:
                os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return
            ctypes.memset(receive, 0xA5, 1)
            ctypes.memset(receive + 1, 0x5A, count * ITEM_BYTES[dtype] - 1)


class WrongOnce(HostBackend):
    """A fault that is not seen again."""

    name = "WrongOnce"

    communicator = _WrongOnce
