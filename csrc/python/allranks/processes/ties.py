"""What ties a process to the one that started it: it ends with its parent, and orphans come to who looks after them."""

from __future__ import annotations

import ctypes
import os
import signal
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
# Loaded here, so that a child between fork and exec need not.
_libc: Final = ctypes.CDLL(None, use_errno=True)


def end_with_parent(parent: int | None = None, status: int = 0) -> None:
    """Have the kernel end this process when the thread that started it ends.

    Parameters
    ----------
    parent : int, optional
        The id of the process that started this one. If it's another one by now, the parent has ended before the kernel
        was asked, no signal will ever come, and this process exits here.
    status : int
        What it exits with then.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        os._exit(status)


def adopt_orphans() -> None:
    """Become the parent of what descendants of this process leave behind."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
