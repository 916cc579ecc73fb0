"""Running a backend in processes of its own, so that one that ends its process, or never ends, ends nothing else.

Several jobs go on at once, each in a process that is used again for the next. When a process ends on its own, what it
said before is kept; the Program that it was at becomes a finding, with what each rank was doing and, where it can be
had, the stack; and a new process goes on with the next Program.
"""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, Pipe, wait
from typing import Final

from allranks.conformance.backend import load_backend
from allranks.conformance.cases import shipped
from allranks.conformance.draws import WITHOUT_FOLDER, draw_programs
from allranks.conformance.engine import CASES, FAULTS, MOST_INTERRUPTIONS
from allranks.conformance.narrowing import contract_of
from allranks.conformance.plan import planned
from allranks.conformance.program import Program
from allranks.conformance.result import Finding, Ran, Result, Tally, interruption
from allranks.conformance.trace import OPENING, Event, Trace, place_of
from allranks.conformance.worker import BOARD_BYTES, BOARD_HEAD, Done, Ending, Failed, Job, Listed
from allranks.conformance.worlds.stacks import from_dump
from allranks.errors import UsageError
from allranks.processes.interpreter import interpreter

Progress = Callable[[Ran], None]

# How much longer than its own world's time-out a process may give no sign of life: only one that holds Python's lock,
# or whose main thread is stuck, gets there.
_QUIET_TIMES: Final = 3
_ABORT_S: Final = 5.0
_POLL_S: Final = 0.5


@dataclass(slots=True)
class _Process:
    """One process, and what it shares with us."""

    running: subprocess.Popen[bytes]
    connection: Connection
    board: memoryview
    epitaph: int

    @classmethod
    def start(cls) -> _Process:
        ours, theirs = Pipe()
        board, epitaph = os.memfd_create("allranks-board"), os.memfd_create("allranks-epitaph")
        os.truncate(board, BOARD_BYTES)
        descriptors = (theirs.fileno(), board, epitaph)
        running = subprocess.Popen(
            interpreter("allranks.conformance.worker", *map(str, descriptors)),
            pass_fds=descriptors,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            env={**WITHOUT_FOLDER, **os.environ},
        )
        theirs.close()
        shared = memoryview(mmap.mmap(board, BOARD_BYTES)).cast("q")
        os.close(board)
        return cls(running, ours, shared, epitaph)

    def stacks(self) -> str:
        """Give the stacks that the interpreter wrote in its last moments."""
        size = os.fstat(self.epitaph).st_size
        return os.pread(self.epitaph, size, 0).decode(errors="replace")

    def abort(self) -> None:
        """Have the interpreter write its stacks and end, which it does whoever holds its lock."""
        self.running.send_signal(signal.SIGABRT)
        try:
            self.running.wait(_ABORT_S)
        except subprocess.TimeoutExpired:
            self.running.kill()

    def again(self) -> _Process:
        """End the process, and start another."""
        self.end()
        return _Process.start()

    def end(self) -> None:
        """End the process, whatever it is doing."""
        self.running.kill()
        self.running.wait()
        self.connection.close()
        self.board.release()
        os.close(self.epitaph)


@dataclass(slots=True)
class _Task:
    """A job on its way."""

    job: Job
    result: Result
    process: _Process
    done: Done | None = None
    finished: int = 0  # number of the last Program that was reported
    ending: Ending | None = None
    listed: tuple[Program, ...] = ()
    beat: bytes = b""
    beat_at: float = field(default_factory=time.monotonic)

    @property
    def interruptions(self) -> int:
        return len(self.result.interruptions)


def run_jobs(
    jobs: Sequence[Job], *, processes: int = 1, progress: Progress = lambda ran: None
) -> list[tuple[Result, Done]]:
    """Do jobs, several at a time, and give what came of each in their order.

    Raises
    ------
    allranks.errors.UsageError
        If a job cannot be done as it was asked for.
    RuntimeError
        If something of this package's own went wrong; the text has the traceback.
    """
    waiting = list(enumerate(jobs))[::-1]
    idle: list[_Process] = []
    tasks: dict[int, _Task] = {}
    done: dict[int, tuple[Result, Done]] = {}
    try:
        while waiting or tasks:
            while waiting and len(tasks) < max(1, processes):
                number, job = waiting.pop()
                process = idle.pop() if idle else _Process.start()
                if process.running.poll() is not None:  # what a backend left behind ended it, with nothing to do
                    process = process.again()
                tasks[number] = _begin(job, process)
            by_connection = {task.process.connection: task for task in tasks.values()}
            for ready in wait(list(by_connection), timeout=_POLL_S):
                assert isinstance(ready, Connection)
                _receive(by_connection[ready], progress)
            for number, task in list(tasks.items()):
                if task.done is not None:
                    done[number] = (task.result, task.done)
                    idle.append(tasks.pop(number).process)
                else:
                    _watch(task, progress)
    finally:
        for process in [*idle, *(task.process for task in tasks.values())]:
            process.end()
    return [done[number] for number in range(len(jobs))]


def _begin(job: Job, process: _Process) -> _Task:
    name = load_backend(job.backend).name
    result = Result(name, job.machine.name, job.seed, job.max_ranks, job.requirements)
    process.connection.send(job)
    return _Task(job, result, process, finished=job.skip)


def _receive(task: _Task, progress: Progress) -> None:
    try:
        message = task.process.connection.recv()
    except (EOFError, ConnectionResetError):
        _ended(task, "", progress)
        return
    task.beat_at = time.monotonic()
    if isinstance(message, Ran):
        task.finished = message.examples
        task.result.add(message)
        progress(message)
        if message.interruption is not None:
            _go_on(task)  # its threads may still compute: begin anew with none of them
    elif isinstance(message, Listed):
        task.listed = message.programs
    elif isinstance(message, Ending):
        task.ending = message
    elif isinstance(message, Failed):
        wrong = RuntimeError(f"in the process of backend {task.job.backend!r}:\n{message.text}")
        raise UsageError(message.text) if message.usage else wrong
    else:
        assert isinstance(message, Done)
        task.done = message
        if message.draws:
            task.result.draws[task.job.source] = message.draws


def _watch(task: _Task, progress: Progress) -> None:
    """End a process that gives no sign of life."""
    beat, now = task.process.board.tobytes(), time.monotonic()
    if beat != task.beat:
        task.beat, task.beat_at = beat, now
    elif task.process.board[1] and now - task.beat_at > _QUIET_TIMES * task.job.quiet_timeout_s:
        task.process.abort()
        _ended(task, "gave no sign of life, and was ended", progress)


def _ended(task: _Task, how: str, progress: Progress) -> None:
    """Keep what can be known of a process that is over, as a finding, and go on with the next Program."""
    process, job = task.process, task.job
    if not how:
        how = _how(process.running.wait(), task.ending)
    if job.finding is not None:  # what it was to reduce is known already
        task.done = Done(reduced=job.finding)
        task.process = process.again()
        return
    number = int(process.board[0])
    if number == 0 and job.source == FAULTS:  # it could not even be asked which calls there are
        task.result.stopped[FAULTS] = 0
        task.done, task.process = Done(), process.again()
        return
    if number == 0:
        raise UsageError(f"backend={job.backend!r}: its process {how} before any Program ran")
    program = task.listed[number - 1] if job.source == FAULTS else _program(job, number)
    board = [int(process.board[BOARD_HEAD + rank]) for rank in range(program.rank_count)]
    names = {step.number: step.name for step in planned(program)}
    places = [f"rank {rank} was in {place_of(label, names)}" for rank, label in enumerate(board)]
    outside = "\n".join([*_last_words(task), *places])
    trace = Trace(
        backend=task.result.backend,
        machine=job.machine.name,
        rank_count=program.rank_count,
        capabilities=task.result.capabilities,
        events=[
            [Event(status="ok" if number < label != OPENING else "not_reached") for number in names] for label in board
        ],
        opening=[Event(status="not_reached" if label == OPENING else "ok") for label in board],
        closing=[Event() for _ in board],
        granularity_bytes=job.machine.multicast_granularity_minimum_bytes,
        outside=outside,
    )
    again = number == task.finished  # it had been judged: what it left behind ended the process later
    when = " after it" if again else ""
    found = interruption(program, trace, f"the backend's process {how}{when}:\n{outside}", job.source, number)
    ran = Ran(source=job.source, examples=number, interruption=found)
    if "RDV-1" in job.requirements:
        ran.tallies["RDV-1"] = Tally(evaluated=1, violations=1)
        ran.findings.append(found)
    task.result.add(ran)
    task.finished = number
    if not again:
        progress(ran)
    _go_on(task)


def _go_on(task: _Task) -> None:
    """Go on with the next Program in a new process, unless there have been too many."""
    task.process = task.process.again()
    task.ending = None
    if task.job.case is not None:
        task.done = Done()
    elif task.interruptions >= MOST_INTERRUPTIONS:
        task.result.stopped[task.job.source] = task.finished
        task.done = Done()
    else:
        task.process.connection.send(replace(task.job, skip=task.finished))
        task.beat_at = time.monotonic()


def _how(status: int, ending: Ending | None) -> str:
    if ending is not None:
        return f"ended: os._exit({ending.code}) in {ending.thread.removeprefix('allranks-').replace('-', ' ')}"
    if status < 0:
        return f"ended: {signal.Signals(-status).name}"
    return f"ended with exit code {status}"


def _last_words(task: _Task) -> list[str]:
    """Give the stack, from whoever could still say it."""
    found = task.ending.stack if task.ending is not None else from_dump(task.process.stacks())
    return [f"  {line}" for line in found]


def _program(job: Job, number: int) -> Program:
    """Give a Program by its number, by drawing it again."""
    if job.case is not None:
        return job.case.program
    contract = contract_of(load_backend(job.backend), strict=job.strict)
    if job.source == CASES:
        room = job.machine.device_count
        fitting = [case.program for case in shipped().values() if case.program.rank_count <= room]
        return contract.within(fitting[number - 1])
    found: list[Program] = []

    def use(program: Program, examples: int) -> None:
        if examples == number:
            found.append(program)

    draw_programs(job.source, job.count, use, seed=job.seed, max_ranks=job.max_ranks)
    return contract.within(found[0])


def reduce_findings(findings: Sequence[Finding], job: Job, *, processes: int = 1) -> list[Finding]:
    """Make the Programs of findings small; `job` says on what."""
    jobs = [replace(job, finding=finding) for finding in findings]
    return [
        done.reduced if done.reduced is not None else finding
        for finding, (_, done) in zip(findings, run_jobs(jobs, processes=processes), strict=True)
    ]
