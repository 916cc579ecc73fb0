"""Where processes are below Python, by whatever well-kept tool is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

_LONGEST_S: Final = 30.0
_MOST_LINES: Final = 24
# eu-stack is of elfutils. gdb is kept from downloading symbols, and from running what it finds beside libraries.
# py-spy (benfred/py-spy) knows the frames of Python, too, and does not take the word of the process for them.
_FRAME: Final = re.compile(
    r"#\d+\s+(?:0x[0-9a-f]+ )?(?:in |- )?(?P<name>[\w:~<>@.?]+)[^\n]*?(?: from (?P<library>\S+))?$"
)
_PYTHON: Final = ("_PyEval", "method_vectorcall", "cfunction_", "_PyObject", "PyObject_")
_SPIED: Final = re.compile(r"    (?P<name>\S.*) \((?P<place>[^()]+)\)$")
_TOOLS: Final = (
    ("py-spy", "dump", "--native", "--pid"),
    ("eu-stack", "-p"),
    (
        *("gdb", "-batch", "-nx", "-iex", "set auto-load off", "-iex", "set debuginfod enabled off"),
        *("-iex", "set print frame-arguments none", "-ex", "thread apply all backtrace 12", "-p"),
    ),
)


def tool() -> tuple[str, ...] | None:
    """Give the command of the first tool that is installed, which wants a process id; None: there is none."""
    return next((command for command in _TOOLS if shutil.which(command[0])), None)


def native_stacks(pids: Sequence[int]) -> dict[int, tuple[str, ...]]:
    """Give the native stacks of processes, as far as that can be done; it takes seconds."""
    command = tool()
    if command is None:
        return {}
    asked = {
        pid: subprocess.Popen(
            [*command, str(pid)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="replace",
        )
        for pid in pids
    }
    until = time.monotonic() + _LONGEST_S
    return {pid: _frames(running, until) for pid, running in asked.items()}


def _frames(running: subprocess.Popen[str], until: float) -> tuple[str, ...]:
    with running:
        try:
            said, _ = running.communicate(timeout=max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            running.kill()
            return ()
    return tuple(shown(said.splitlines()))[:_MOST_LINES]


def shown(lines: Sequence[str]) -> Iterator[str]:
    """Give the functions of each thread, innermost first, down to where Python called them, as far as that is told."""
    below = False
    for line in lines:
        if line.startswith(("Thread", "TID")):
            below = False
            yield line.partition(" (")[0].rstrip(":")
        spied = _SPIED.match(line)
        if spied is not None:
            place = spied["place"]
            if not spied["name"].startswith("0x"):
                yield f"{spied['name']} ({place})" if ":" in place else f"{spied['name']} of {place}"
            continue
        frame = _FRAME.match(line)
        if frame is not None and not below:
            below = frame["name"].startswith(_PYTHON)
            if not below:
                yield f"{frame['name']}{' of ' + Path(frame['library']).name if frame['library'] else ''}"
