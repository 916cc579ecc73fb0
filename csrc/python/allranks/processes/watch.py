"""What the threads of other processes are at, by ``/proc``: computing, waiting with a time-out, or blocked for good.

*Blocked*: the thread is in a system call in which no time-out is pending, and nothing about it changes. A process with
an armed timer of its own counts as waiting with a time-out. What cannot be read counts as that too. Not seen: an alarm
(`setitimer`), and a signal that some other process means to send.
"""

from __future__ import annotations

import ctypes
import os
import re
import socket
import struct
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal

from allranks.processes.system_calls import SystemCall, by_number, has_timeout

State = Literal["computing", "timed", "blocked", "stopped"]

_BY_NUMBER: Final = by_number()
_PIDFD_GETFD: Final = 438  # the same on every machine
_TIMEVAL: Final = struct.Struct("ll")
_ARMED: Final = re.compile(r"it_value: \((?!0, 0\))")
_libc: Final = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class ThreadState:
    """One thread at one time.

    `print` is equal at two times only if the thread did not run in between.
    """

    state: State
    call: str
    object: str
    print: str


_OURS: Final = ThreadState("blocked", "the world", "", "")


def _read(path: str) -> str:
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read()


def _thread(pid: int, folder: str) -> ThreadState:
    line = _read(f"{folder}/syscall").strip()
    status = _read(f"{folder}/status")
    state = status.partition("State:\t")[2][:1]
    switches = status.partition("\nvoluntary_ctxt_switches:")[2]
    mark = f"{line} {state} {switches}"
    if state in "Tt":
        return ThreadState("stopped", "", "", mark)
    words = line.split()
    if len(words) < 7:  # "running", or "-1 sp pc" for a thread that waits outside of any call
        return ThreadState("computing", "", "", mark)
    call = _BY_NUMBER.get(int(words[0]))
    arguments = tuple(int(word, 16) for word in words[1:7])
    if call is None:
        return ThreadState("timed", f"system call {words[0]}", "", mark)
    thing = _object(pid, arguments[0]) if call.uses else ""
    timed = has_timeout(call, arguments) or (thing == "a socket" and _socket_times_out(pid, call, arguments[0]))
    return ThreadState("timed" if timed else "blocked", call.name, thing, mark)


_OBJECTS: Final = (
    ("socket:", "a socket"),
    ("pipe:", "a pipe"),
    ("anon_inode:[eventfd", "an event descriptor"),
    ("anon_inode:[timerfd", "a timer"),
    ("anon_inode:", "a descriptor of the kernel"),
    ("/dev/", "a device"),
)


def _object(pid: int, descriptor: int) -> str:
    try:
        target = os.readlink(f"/proc/{pid}/fd/{descriptor}")
    except OSError:
        return "a closed descriptor"
    return next((name for start, name in _OBJECTS if target.startswith(start)), "a file")


def _socket_times_out(pid: int, call: SystemCall, descriptor: int) -> bool:
    """Whether a socket of another process has a time-out of its own; True if it cannot be asked."""
    option = socket.SO_RCVTIMEO if call.uses == "receive" else socket.SO_SNDTIMEO
    try:
        process = os.pidfd_open(pid)
    except OSError:
        return True
    try:
        copied = _libc.syscall(_PIDFD_GETFD, process, descriptor, 0)
    finally:
        os.close(process)
    if copied < 0:
        return True
    with socket.socket(fileno=copied) as theirs:
        return any(_TIMEVAL.unpack(theirs.getsockopt(socket.SOL_SOCKET, option, _TIMEVAL.size)))


def _has_timer(pid: int) -> bool:
    """Whether a timer of the process is armed, or may be."""
    try:
        if _read(f"/proc/{pid}/timers"):
            return True
    except FileNotFoundError:
        pass  # the kernel was built without it
    for descriptor in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{descriptor}")
            if target == "anon_inode:[timerfd]" and _ARMED.search(_read(f"/proc/{pid}/fdinfo/{descriptor}")):
                return True
        except FileNotFoundError:
            continue
    return False


def look(pid: int, ours: Collection[int] = ()) -> list[ThreadState]:
    """Say what the threads of a process are at, the main one first; empty: there is no such process.

    Those that are `ours` count as blocked, whatever they do.
    """
    try:
        threads = sorted(map(int, os.listdir(f"/proc/{pid}/task")))
    except (FileNotFoundError, ProcessLookupError):
        return []
    found = []
    for thread in threads:
        if thread in ours:
            found.append(_OURS)
            continue
        try:
            found.append(_thread(pid, f"/proc/{pid}/task/{thread}"))
        except (FileNotFoundError, ProcessLookupError):
            continue
        except PermissionError:
            found.append(ThreadState("timed", "an unknown call", "", ""))
    try:
        if found and all(thread.state == "blocked" for thread in found) and _has_timer(pid):
            found[0] = ThreadState("timed", found[0].call, found[0].object, found[0].print)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        pass
    return found


def look_at(pid: int, thread: int) -> ThreadState | None:
    """Say what one thread of a process is at; None: it is gone, or may not be looked at."""
    try:
        return _thread(pid, f"/proc/{pid}/task/{thread}")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None


def says(thread: ThreadState) -> str:
    """Say in words what a thread is at."""
    thing = f" on {thread.object}" if thread.object else ""
    return {
        "blocked": f"waits in {thread.call}{thing}, without a time-out",
        "timed": f"waits in {thread.call}{thing}, with a time-out",
        "computing": "computes",
        "stopped": "is stopped by a signal",
    }[thread.state]


def descendants(pid: int) -> list[int]:
    """Give the processes that a process has started, and those that they have, as far as they live."""
    found: list[int] = []
    for child in children(pid):
        if _state(child) not in "ZX":
            found += [child, *descendants(child)]
    return found


def children(pid: int) -> set[int]:
    """Give the processes that a process has started and not waited for yet."""
    folder = f"/proc/{pid}/task"
    try:
        return {int(child) for task in os.listdir(folder) for child in _read(f"{folder}/{task}/children").split()}
    except ProcessLookupError:
        return set()
    except FileNotFoundError:
        if not os.path.exists(folder):
            return set()
    # A thread has just ended, or the kernel was built without these lists.
    return {other for other in map(int, filter(str.isdecimal, os.listdir("/proc"))) if _stat(other)[1:2] == [str(pid)]}


def _stat(pid: int) -> list[str]:
    try:
        return _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _state(pid: int) -> str:
    return (_stat(pid) or ["X"])[0]


def all_blocked(threads: list[ThreadState]) -> bool:
    """Whether a process can never go on by itself."""
    return bool(threads) and all(thread.state == "blocked" for thread in threads)
