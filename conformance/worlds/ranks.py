"""Threads that play ranks: made once, used for every run.

A run is long over when the next begins, so a rank's thread only ever waits for its next job. Threads that a backend
blocked for good are left behind and replaced; those that compute are told to end, and do so if they are in Python.
"""

from __future__ import annotations

import ctypes
import os
import queue
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass

from allranks.conformance.worlds.stacks import Abandoned, stack_of, within_allranks

Job = Callable[[], None]


@dataclass(slots=True)
class _Worker:
    thread: threading.Thread
    jobs: queue.SimpleQueue[Job | None]


def _serve(jobs: queue.SimpleQueue[Job | None], cpu: int) -> None:
    # Only one task runs at a time: on one processor a change of turn is a plain context switch.
    # As a batch task a thread that is woken lets the one that woke it go to its own wait first: half the switches.
    os.sched_setaffinity(0, {cpu})
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    try:
        while (job := jobs.get()) is not None:
            job()
    except Abandoned:
        return


def _end(workers: list[_Worker]) -> None:
    for worker in workers:
        worker.jobs.put(None)
    for worker in workers:
        worker.thread.join()
    workers.clear()


class RankThreads:
    """A pool of daemon threads, one a rank. They end with it, and before the interpreter does."""

    def __init__(self) -> None:
        self._workers: list[_Worker] = []
        # A daemon thread that is still in native code when the interpreter ends would take the process with it.
        self._finalizer = weakref.finalize(self, _end, self._workers)
        self._cpu = sorted(os.sched_getaffinity(0))[os.getpid() % len(os.sched_getaffinity(0))]

    def start(self, jobs: list[Job]) -> None:
        """Give each thread its job."""
        while len(self._workers) < len(jobs):
            inbox: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
            thread = threading.Thread(
                target=_serve, args=(inbox, self._cpu), name=f"allranks-rank-{len(self._workers)}", daemon=True
            )
            thread.start()
            self._workers.append(_Worker(thread, inbox))
        for worker, job in zip(self._workers, jobs, strict=False):
            worker.jobs.put(job)

    def stacks(self, count: int) -> dict[int, tuple[tuple[str, ...], bool]]:
        """Say where the first `count` ranks are, and whether they may be waiting for their turn there."""
        frames = sys._current_frames()
        found = {}
        for rank, worker in enumerate(self._workers[:count]):
            frame = frames.get(worker.thread.ident or 0)
            if frame is not None:
                found[rank] = (stack_of(frame), within_allranks(frame))
        return found

    def abandon(self) -> None:
        """Leave the threads to what they are stuck in; each that comes back to Python ends there."""
        for worker in self._workers:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(worker.thread.ident or 0), ctypes.py_object(Abandoned)
            )
            worker.jobs.put(None)  # for one that was between two jobs
        self._workers.clear()

    def close(self) -> None:
        """End the threads."""
        _end(self._workers)
