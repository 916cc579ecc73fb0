"""Runs a launcher, and outlives whoever has asked for that: when they end, the job ends, and nothing of it is left.

A script of its own, of the standard library only: ``sentinel.py DESCRIPTOR MARK COMMAND...``. The descriptor is the
reading end of a pipe. Each line that comes through it is a file in shared memory that the job has made; its end is the
order to end the job. MARK is a variable in the environment of the job's processes, by which they are known.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

_SHARED_MEMORY = "/dev/shm"
_MAPPED = re.compile(r" (/dev/shm/[^\n]+?)(?: \(deleted\))?$", re.MULTILINE)
_END_S = 1.5
_LOOK_S = 0.02


def mapped(pid: int | str) -> set[str]:
    """Give the files in shared memory that a process has mapped."""
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as maps:
            return set(_MAPPED.findall(maps.read()))
    except OSError:
        return set()


def marked(mark: bytes) -> Iterator[int]:
    """Give the processes that have the mark, but for this one."""
    for name in os.listdir("/proc"):
        if name.isdecimal() and int(name) != os.getpid():
            with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as environment:
                if mark in environment.read().split(b"\0"):
                    yield int(name)


def end(running: subprocess.Popen[bytes], mark: bytes) -> set[str]:
    """End the job; gives the files in shared memory that its processes still had."""
    files = {path for pid in marked(mark) for path in mapped(pid)}
    if running.poll() is None:
        running.terminate()  # a launcher that is killed leaves files behind
        until = time.monotonic() + _END_S
        while running.poll() is None and time.monotonic() < until:
            time.sleep(_LOOK_S)
    for pid in marked(mark):  # what the launcher could not reach, such as processes that are stopped
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    running.wait()
    return files


def main(descriptor: int, mark: str, command: list[str]) -> int:
    """Run the command until it ends or is to end."""
    os.setpgid(0, 0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    before = set(os.listdir(_SHARED_MEMORY)) if os.path.isdir(_SHARED_MEMORY) else set()
    try:
        running = subprocess.Popen(command, restore_signals=True, preexec_fn=_usual_signals)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return 127
    told, open_ended = b"", True
    while open_ended and running.poll() is None:
        if select.select([descriptor], [], [], _LOOK_S)[0]:
            read = os.read(descriptor, 1 << 16)
            told, open_ended = told + read, bool(read)
    files = set(told.decode().splitlines()) | end(running, mark.encode())
    for path in files:
        if path.startswith(_SHARED_MEMORY) and path.removeprefix(f"{_SHARED_MEMORY}/") not in before:
            with contextlib.suppress(OSError):
                os.unlink(path)
    return running.returncode if running.returncode >= 0 else 128 - running.returncode


def _usual_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
