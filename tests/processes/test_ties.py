"""A process that was started to serve another one ends with it, whenever the other one ends."""

from __future__ import annotations

import subprocess
import sys

# A parent, its child, and nothing that keeps the child but its end of a pipe that it holds itself: as a pool's worker.
# The child asks for the tie before or after its parent has ended, and then waits for ever.
_CODE = """
import os, signal, sys
from allranks.processes.ties import end_with_parent
late = sys.argv[1] == "late"
ready, told = os.pipe()
gone, held = os.pipe()
parent = os.getpid()
if os.fork():
    os.close(told)
    if not late:
        os.read(ready, 1)
    os.kill(os.getpid(), signal.SIGKILL)
os.close(held)
if late:
    os.read(gone, 1)  # end of file: the parent is no more
    while os.getppid() == parent:  # its files are closed before its children are given away
        os.sched_yield()
end_with_parent(parent)
os.write(told, b"x")
forever, mine = os.pipe()
os.read(forever, 1)
"""


def _run(when: str) -> subprocess.CompletedProcess[bytes]:
    # communicate() ends when nobody is left who could write: the child holds the same standard output.
    return subprocess.run([sys.executable, "-P", "-c", _CODE, when], stdout=subprocess.PIPE, check=False)


def test_a_child_that_is_tied_ends_when_its_parent_is_killed() -> None:
    assert _run("early").returncode == -9


def test_a_child_whose_parent_ended_before_it_was_tied_ends_at_once() -> None:
    assert _run("late").returncode == -9
