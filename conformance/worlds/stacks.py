"""Where a communicator under test was: stacks without the frames of the suite itself."""

from __future__ import annotations

import re
import threading
import traceback
from pathlib import Path
from types import FrameType
from typing import Final

_MOST_FRAMES: Final = 8
_OURS: Final = Path(__file__).parent  # the worlds: what stands above the backend in every stack
_PACKAGE: Final = _OURS.parent.parent


class Abandoned(BaseException):
    """Raised in a thread whose run was given up."""


def _shown(frames: list[traceback.FrameSummary]) -> tuple[str, ...]:
    """Give the frames from the backend on, as ``file.py:12 in connect``."""
    theirs = [
        frame
        for frame in frames
        if _OURS not in Path(frame.filename).parents and frame.filename != threading.__file__.removesuffix("c")
    ]
    # Where a backend waits in threading is worth a line; how its thread was started is not.
    inner = frames[-1:] if frames and frames[-1] not in theirs and theirs else []
    return tuple(f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}" for frame in (theirs + inner))[
        -_MOST_FRAMES:
    ]


def raised_at(error: BaseException) -> tuple[str, ...]:
    """Say where an exception came from, without the frames of the world; outermost first."""
    return _shown(list(traceback.extract_tb(error.__traceback__)))


def stack_of(frame: FrameType) -> tuple[str, ...]:
    """Say where a thread is, without the frames of the world; outermost first."""
    return _shown(list(traceback.extract_stack(frame)))


_DUMPED: Final = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.*)')


def from_dump(text: str) -> list[str]:
    """Give what is worth a line of the interpreter's own dump of its threads: what killed it, and where backends are.

    A thread that waits for its turn is left out, and so are the frames of the world.
    """
    lines = [line.strip() for line in text.splitlines() if line.startswith("Fatal Python error")]
    lines = [line for line in lines if not line.endswith("Aborted")]  # by whoever wants the dump, as often as not
    for block in re.split(r"(?m)^.*\(most recent call first\):$", text)[1:]:
        frames = [
            traceback.FrameSummary(match["file"], int(match["line"]), match["name"], lookup_line=False)
            for match in reversed([*_DUMPED.finditer(block)])
        ]
        shown = _shown(frames)
        if shown and not _waits(frames[-1].filename):
            lines += shown
    return lines


def within_allranks(frame: FrameType) -> bool:
    """Whether a thread is in a function of this package, as every rank is that waits for its turn."""
    return _waits(frame.f_code.co_filename)


def _waits(filename: str) -> bool:
    path = Path(filename)
    return (
        any(_PACKAGE / part in path.parents for part in ("sim", "refimpl", "conformance/worlds"))
        or path == _PACKAGE / "driver.py"
    )
