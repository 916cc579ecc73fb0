"""Threads that play ranks: made once, used for every run.

A run is long over when the next begins, so a rank's thread only ever waits for its next job. Threads that a backend
blocked for good are left behind and replaced.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass

Job = Callable[[], None]


@dataclass(slots=True)
class _Worker:
    thread: threading.Thread
    jobs: queue.SimpleQueue[Job | None]


def _serve(jobs: queue.SimpleQueue[Job | None], cpu: int) -> None:
    # Only one task runs at a time: on one processor a change of turn is a plain context switch.
    os.sched_setaffinity(0, {cpu})
    while (job := jobs.get()) is not None:
        job()


class RankThreads:
    """A pool of daemon threads, one a rank."""

    def __init__(self) -> None:
        self._workers: list[_Worker] = []
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

    def abandon(self) -> str:
        """Leave the threads to what they are stuck in, and give their stacks."""
        frames = sys._current_frames()
        stacks = []
        for worker in self._workers:
            frame = frames.get(worker.thread.ident or 0)
            if frame is not None:
                stacks.append(f"{worker.thread.name}:\n{''.join(traceback.format_stack(frame))}")
        self._workers = []
        return "\n".join(stacks)

    def close(self) -> None:
        """End the threads."""
        for worker in self._workers:
            worker.jobs.put(None)
        for worker in self._workers:
            worker.thread.join()
        self._workers = []
