"""What threads of other processes are at, asked of real ones."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from allranks.processes.system_calls import by_number, has_timeout
from allranks.processes.watch import ThreadState, all_blocked, descendants, look

SETTLE_S = 20.0
_LOOK_AGAIN_S = 0.02  # longer than any wait for the interpreter's lock is without being asked again
BEGIN = "import ctypes, os, select, signal, socket, sys, threading, time\nprint(flush=True)\n"


@contextmanager
def at(text: str) -> Iterator[int]:
    """Give a process that executes some Python."""
    with subprocess.Popen([sys.executable, "-S", "-c", BEGIN + text], stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        running.stdout.readline()
        try:
            yield running.pid
        finally:
            running.kill()


def settled(pid: int, *calls: str) -> list[ThreadState]:
    """Look at a process until its threads stay in these calls, the main one in the first."""
    until = time.monotonic() + SETTLE_S
    before: list[ThreadState] = []
    while True:
        seen = look(pid)
        if time.monotonic() > until:
            return seen
        if tuple(thread.call for thread in seen) == calls and seen == before:
            return seen
        before = seen
        time.sleep(_LOOK_AGAIN_S)


FIFO = "r, w = os.pipe()\n"
PAIR = "a, b = socket.socketpair()\n"


@pytest.mark.parametrize(
    ("text", "call", "thing"),
    [
        (FIFO + "os.read(r, 1)", "read", "a pipe"),
        (FIFO + "os.write(w, bytes(1 << 20))", "write", "a pipe"),
        (PAIR + "a.recv(1)", "recvfrom", "a socket"),
        (PAIR + "a.sendall(bytes(1 << 24))", "sendto", "a socket"),
        ("os.read(os.eventfd(0), 8)", "read", "an event descriptor"),
        ("p = select.poll(); p.poll()", "poll", ""),
        ("select.select([], [], [])", "pselect6", ""),
        ("select.epoll().poll()", "epoll_wait", ""),
        ("l = threading.Lock(); l.acquire(); l.acquire()", "futex", ""),
        ("signal.sigwait([signal.SIGUSR1])", "rt_sigtimedwait", ""),
        ("if not os.fork(): time.sleep(60)\nos.wait()", "wait4", ""),
        ("s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); s.accept()", "accept4", "a socket"),
    ],
)
def test_a_wait_without_a_timeout_is_blocked(text: str, call: str, thing: str) -> None:
    with at(text) as pid:
        seen = settled(pid, call)
        assert [(thread.state, thread.call, thread.object) for thread in seen] == [("blocked", call, thing)]
        assert all_blocked(seen)
        assert look(pid) == seen


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("p = select.poll(); p.poll(3_600_000)", "poll"),
        ("select.select([], [], [], 3600)", "pselect6"),
        ("select.epoll().poll(3600)", "epoll_wait"),
        ("l = threading.Lock(); l.acquire(); l.acquire(timeout=3600)", "futex"),
        ("signal.sigtimedwait([signal.SIGUSR1], 3600)", "rt_sigtimedwait"),
        ("time.sleep(3600)", "clock_nanosleep"),
        (PAIR + "import struct; a.setsockopt(1, 20, struct.pack('ll', 3600, 0)); os.read(a.fileno(), 1)", "read"),
    ],
)
def test_a_wait_with_a_timeout_is_not(text: str, call: str) -> None:
    with at(text) as pid:
        seen = settled(pid, call)
        assert [(thread.state, thread.call) for thread in seen] == [("timed", call)]
        assert not all_blocked(seen)


TIMER = (
    "class T(ctypes.Structure): _fields_ = [('n', ctypes.c_long * 4)]\n"
    "libc = ctypes.CDLL(None); t = libc.timerfd_create(1, 0)\n"
    "libc.timerfd_settime(t, 0, ctypes.byref(T((0, 0, %d, 0))), None)\n"
)


@pytest.mark.parametrize(("seconds", "state"), [(3600, "timed"), (0, "blocked")])
def test_an_armed_timer_is_a_timeout(seconds: int, state: str) -> None:
    with at(TIMER % seconds + "os.read(t, 8)") as pid:
        assert settled(pid, "read")[0].state == state


def test_one_thread_that_goes_on_keeps_a_process_from_being_blocked() -> None:
    with at("threading.Thread(target=time.sleep, args=(3600,)).start()") as pid:
        seen = settled(pid, "futex", "clock_nanosleep")
        assert seen[0].state == "blocked"
        assert [thread.state for thread in seen[1:]] == ["timed"]
        assert not all_blocked(seen)


@pytest.mark.parametrize("lock", ["fcntl.flock(f, fcntl.LOCK_EX)", "fcntl.lockf(f, fcntl.LOCK_EX)"])
def test_a_lock_may_be_anybodys(lock: str, tmp_path: Path) -> None:
    with open(tmp_path / "lock", "w") as held:
        (fcntl.flock if "flock" in lock else fcntl.lockf)(held, fcntl.LOCK_EX)
        with at(f"import fcntl; f = open({str(tmp_path / 'lock')!r}, 'w'); {lock}") as pid:
            assert settled(pid, "flock" if "flock" in lock else "fcntl")[0].state == "timed"


def test_descendants_are_those_that_live() -> None:
    ended = "import subprocess; subprocess.Popen(['true']); "
    text = f"{ended}p = subprocess.Popen(['sh', '-c', 'sleep 3600; true']); p.wait()"
    with at(text) as pid:
        settled(pid, "wait4")
        until = time.monotonic() + SETTLE_S
        names: list[str] = []
        while names != ["sh", "sleep"] and time.monotonic() < until:
            found = descendants(pid)
            names = [Path(f"/proc/{one}/comm").read_text(encoding="ascii").strip() for one in found]
        for one in found:
            os.kill(one, signal.SIGKILL)
        assert names == ["sh", "sleep"]


def test_what_computes_and_what_is_stopped_is_not_blocked() -> None:
    with at("while True: pass") as pid:
        assert not all_blocked(look(pid))
    with at("os.kill(os.getpid(), signal.SIGSTOP)") as pid:
        until = time.monotonic() + SETTLE_S
        while (seen := look(pid))[0].state != "stopped" and time.monotonic() < until:
            pass
        assert seen[0].state == "stopped"
        assert not all_blocked(seen)


def test_no_process_is_not_blocked() -> None:
    assert look(2**22 + 1) == []
    assert not all_blocked([])


@pytest.mark.parametrize(("machine", "futex", "poll"), [("x86_64", 202, 271), ("aarch64", 98, 73)])
def test_arguments_mean_the_same_on_every_machine(machine: str, futex: int, poll: int) -> None:
    calls = by_number(machine)
    assert has_timeout(calls[futex], (1, 9 | 128, 0, 4096, 0, 0))
    assert not has_timeout(calls[futex], (1, 9 | 128, 0, 0, 0, 0))
    assert has_timeout(calls[futex], (1, 1, 0, 0, 0, 0))  # wakes, and does not wait
    assert has_timeout(calls[poll], (1, 1, 4096, 0, 0, 0))
    assert not has_timeout(calls[poll], (1, 1, 0, 0, 0, 0))


def test_a_negative_number_of_milliseconds_is_no_timeout() -> None:
    calls = by_number("x86_64")
    assert not has_timeout(calls[7], (1, 1, 0xFFFF_FFFF, 0, 0, 0))
    assert not has_timeout(calls[7], (1, 1, 0xFFFF_FFFF_FFFF_FFFF, 0, 0, 0))
    assert has_timeout(calls[7], (1, 1, 0, 0, 0, 0))


def test_a_machine_whose_numbers_are_not_known_has_no_blocked_thread() -> None:
    assert by_number("s390x") == {}
