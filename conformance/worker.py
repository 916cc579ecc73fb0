"""The process that runs a backend: what it does with each job, and how it says what came of it.

A backend can end the process that it runs in. So it runs in one of its own, which reports every Program as soon as it
is judged, and writes what each rank is doing into memory that outlives it. `allranks.conformance.isolated` is the other
end.
"""

from __future__ import annotations

import faulthandler
import mmap
import os
import resource
import sys
import threading
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Final, NoReturn

from allranks import sim
from allranks.conformance.backend import load_backend
from allranks.conformance.casefile import Case
from allranks.conformance.cases import shipped
from allranks.conformance.engine import CASES, FAULTS, Engine
from allranks.conformance.narrowing import contract_of
from allranks.conformance.program import Program
from allranks.conformance.result import Finding, Ran
from allranks.conformance.worlds.stacks import stack_of
from allranks.errors import UsageError
from allranks.processes.ties import end_with_parent

# The shared board: [0] is the number of the Program that runs, [1] counts signs of life, and then one number a rank.
BOARD_HEAD: Final = 2
BOARD_RANKS: Final = 1024
BOARD_BYTES: Final = 8 * (BOARD_HEAD + BOARD_RANKS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a process is asked to do: the shipped cases, the Programs of a family, one case, or to reduce a finding.

    Parameters
    ----------
    backend : str
        Name, or ``module:Class``.
    machine : sim.Machine
        What it runs on.
    requirements : tuple of str
        Which checks to apply.
    seed, max_ranks, quiet_timeout_s
        As `Engine` takes them.
    source : str
        A family, `CASES`, or `FAULTS`.
    count : int
        Programs of the family.
    skip : int
        How many of them are done already.
    case : Case, optional
        Run this one instead.
    finding : Finding, optional
        Reduce this one instead.
    strict : bool
        Whether Programs also go beyond what the library's contract offers.
    """

    backend: str
    machine: sim.Machine
    requirements: tuple[str, ...]
    seed: int
    max_ranks: int
    quiet_timeout_s: float
    source: str
    count: int = 0
    skip: int = 0
    case: Case | None = None
    finding: Finding | None = None
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """A job is done: the digest of what was drawn, or the reduced finding."""

    draws: str = ""
    reduced: Finding | None = None


@dataclass(frozen=True, slots=True)
class Listed:
    """The Programs of a source that cannot be drawn again without the backend."""

    programs: tuple[Program, ...]


@dataclass(frozen=True, slots=True)
class Ending:
    """The backend ends the process."""

    code: int
    thread: str
    stack: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """Something of ours went wrong: the caller's mistake, or a traceback."""

    usage: bool
    text: str


class _Worker:
    def __init__(self, connection: Connection, board: memoryview) -> None:
        self.connection = connection
        self.board = board
        self._exit = os._exit
        os._exit = self.end  # type: ignore[assignment]

    def end(self, code: int) -> NoReturn:
        """Say who ends the process, and end it."""
        here = sys._getframe(1)
        self.connection.send(Ending(code, threading.current_thread().name, stack_of(here)))
        self._exit(code)

    def serve(self) -> None:
        """Do jobs until there are no more."""
        while (job := self.connection.recv()) is not None:
            try:
                done: Done | Failed = self.do(job)
            except UsageError as error:
                done = Failed(True, str(error))
            except Exception:  # noqa: BLE001 -- whatever it is, the other end has to hear of it
                done = Failed(False, traceback.format_exc())
            self.connection.send(done)

    def do(self, job: Job) -> Done:
        """Do one job."""

        def starting(examples: int) -> None:
            self.board[0] = examples
            self.board[1] += 1

        def progress(ran: Ran) -> None:
            self.connection.send(ran)

        self.board[0] = 0
        backend = load_backend(job.backend)
        engine = Engine(
            backend,
            job.machine,
            job.requirements,
            seed=job.seed,
            max_ranks=job.max_ranks,
            progress=progress,
            starting=starting,
            quiet_timeout_s=job.quiet_timeout_s,
            board=self.board[BOARD_HEAD:],  # type: ignore[arg-type]
            contract=contract_of(backend, strict=job.strict),
        )
        try:
            if job.finding is not None:
                return Done(reduced=engine.reduce(job.finding))
            if job.case is not None:
                engine.run_case(job.source, job.case)
                return Done()
            if job.source == CASES:
                engine.run_cases(shipped().items(), skip=job.skip)
                return Done()
            if job.source == FAULTS:
                faulted = engine.faulted()
                self.connection.send(Listed(tuple(faulted)))
                engine.run_faults(faulted, skip=job.skip)
                return Done()
            engine.run_family(job.source, job.count, skip=job.skip)
            return Done(draws=engine.result.draws[job.source])
        finally:
            engine.close()


def main(connection: str, board: str, epitaph: str) -> None:
    """Serve the process at the other end; the arguments are descriptors."""
    end_with_parent()
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    faulthandler.enable(file=int(epitaph))
    shared = memoryview(mmap.mmap(int(board), BOARD_BYTES)).cast("q")
    _Worker(Connection(int(connection)), shared).serve()
