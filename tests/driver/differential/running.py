"""Sequences executed on a library, in child processes that are replaced when one breaks, hangs or ends.

Starting a process and its contexts takes longer on hardware than a sequence does, so a child executes many sequences,
and several children work at once. A child reads one sequence a line, and answers one line for each step when it is
done, so that it is known in which step a child ended. A sequence that takes longer than its deadline is ended with its
child. A child ends with its parent, whatever it is waiting for.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from tests.driver.differential import memory_calls, stream_calls
from tests.driver.differential.abi import Library, RefusedError, code_name
from tests.driver.differential.execution import CALLS, Execution, Result, Seat, Step
from tests.driver.differential.lending import BY_ITSELF, Lender, lend_to_itself

__all__ = ["CALLS", "AtOnce", "Sequence", "end_with", "memory_calls", "run_sequences", "serve", "stream_calls"]

Sequence = dict[str, Any]  # "id" and "steps"; a transcript has "results", "end" and perhaps "broken" besides

ROOT: Final = Path(__file__).resolve().parents[3]
DEADLINE_S: Final = 30.0
START_S: Final = 120.0  # for a process to have its contexts, when many start at once
END_S: Final = 10.0  # for a process to end when it has nothing more to do, and once more when it is killed
NOT_SIMULATED: Final = "is not simulated"
READY: Final = {"ready": True}
PR_SET_PDEATHSIG: Final = 1


def execute(seat: Seat, steps: list[Step], answers: IO[str]) -> bool:
    """Execute a sequence, one line for each step and one for the end; say whether the process can go on."""

    def tell(line: dict[str, Any]) -> None:
        answers.write(json.dumps(line, separators=(",", ":")) + "\n")
        answers.flush()

    run = Execution(seat)
    for result in run.run(steps):
        tell(result)
    last: dict[str, Any] = {"end": run.give_back()}
    code = seat.synchronize()
    if code or run.lost:
        last["broken"] = run.lost or code_name(code)
    tell(last)
    return "broken" not in last


def end_with(parent: int) -> bool:
    """See that this process ends with that parent; false if that has ended already."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent


def serve(path: str, lent: str) -> int:
    """Be a child: answer each line of the standard input. Gives the exit code."""
    try:
        library = Library(path)
        host, handles = lend_to_itself(library) if lent == BY_ITSELF else (None, [])
        seat = Seat(library, handles or [bytes.fromhex(one) for one in lent.split(",") if one])
    except (RefusedError, RuntimeError) as error:
        sys.stderr.write(f"allranks: {error}\n")
        return 2
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    answers.write(json.dumps(READY) + "\n")
    answers.flush()
    for line in sys.stdin:
        if not execute(seat, json.loads(line)["steps"], answers):
            os._exit(0)  # a broken context cannot be given back
    seat.close()
    if host is not None:
        host.close()
    return 0


class Child:
    """A process that executes sequences, and the one that it is at."""

    def __init__(self, library: str, lent: str, errors: IO[bytes]) -> None:
        environment = {"SIMCU_MACHINE": "h200", "SIMCU_DEVICES": "2", **os.environ}
        command = [sys.executable, "-m", "tests.driver.differential", "serve", "--library", library]
        self.process = subprocess.Popen(
            [*command, "--lent", lent, "--parent", str(os.getpid())],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        self.sequence: Sequence | None = None
        self.results: list[Result] = []
        self.ready, self.done = False, 0
        self.until = time.monotonic() + START_S
        self.rest = b""

    @property
    def output(self) -> IO[bytes]:
        """Where it answers."""
        assert self.process.stdout is not None
        return self.process.stdout

    def begin(self, sequence: Sequence, deadline_s: float) -> None:
        """Have a sequence executed. A child that has ended is noticed by the end of its output."""
        assert self.process.stdin is not None
        self.sequence, self.results = sequence, []
        self.until = time.monotonic() + deadline_s
        line = json.dumps({"steps": sequence["steps"]}, separators=(",", ":")).encode() + b"\n"
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(line)
            self.process.stdin.flush()

    def told(self, last: dict[str, Any]) -> Sequence:
        """Give the transcript of the sequence that it was at; `last` is what is said of its end."""
        assert self.sequence is not None
        transcript = {"id": self.sequence["id"], "steps": self.sequence["steps"], "results": self.results, **last}
        self.sequence, self.done = None, self.done + 1
        return transcript

    def read(self) -> Sequence | None:
        """Take in what it has said; give the transcript if that was the last of it.

        Raises
        ------
        EOFError
            If the process has ended.
        """
        data = os.read(self.output.fileno(), 1 << 16)
        if not data:
            raise EOFError
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            answer: dict[str, Any] = json.loads(line)
            if answer == READY:
                self.ready = True
            elif "end" in answer:
                return self.told(answer)
            else:
                self.results.append(answer)
        return None

    def dismiss(self) -> None:
        """Let the process end by itself."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()

    def end(self, patience_s: float) -> int:
        """See that the process has ended, as far as that can be had; give its exit code."""
        for _ in range(2):
            try:
                self.process.wait(patience_s)
                break
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.dismiss()
        self.output.close()
        code = self.process.returncode
        return -signal.SIGKILL if code is None else code  # it hangs in the kernel, and ends when that lets it go


@dataclass(frozen=True, slots=True, kw_only=True)
class AtOnce:
    """How a run is spread: processes at once, sequences in each before another takes its place, seconds for one."""

    jobs: int = 1
    batch: int = 500
    deadline_s: float = DEADLINE_S


class Crew:
    """Children at work: `jobs` of them, each replaced after so many sequences."""

    def __init__(self, library: str, lent: str, at_once: AtOnce, errors: IO[bytes]) -> None:
        self.library, self.lent, self.errors = library, lent, errors
        self.jobs, self.batch, self.deadline_s = at_once.jobs, at_once.batch, at_once.deadline_s
        self.selector = selectors.DefaultSelector()
        self.working: list[Child] = []
        self.leaving: list[Child] = []

    def hire(self) -> None:
        """Start another child."""
        child = Child(self.library, self.lent, self.errors)
        self.working.append(child)
        self.selector.register(child.output, selectors.EVENT_READ, child)

    def let_go(self, child: Child) -> None:
        """Let a child end."""
        self.selector.unregister(child.output)
        self.working.remove(child)
        child.dismiss()
        self.leaving.append(child)

    def lose(self, child: Child, why: str) -> Sequence | None:
        """End a child that has ended, or should have answered; give the transcript of what it was at."""
        self.let_go(child)
        self.leaving.remove(child)
        if why:
            child.process.kill()
        code = child.end(END_S)
        if not child.ready:
            self.errors.seek(0)
            said = self.errors.read().decode(errors="replace").strip()
            raise RefusedError(said.removeprefix("allranks: ") or f"a process ended at once, exit code {code}")
        return child.told({"broken": why or f"exit code {code}"}) if child.sequence is not None else None

    def wait(self) -> Iterator[Sequence]:
        """Wait until something happens; give the transcripts that came of it."""
        patience = min(child.until for child in self.working) - time.monotonic()
        for key, _ in self.selector.select(max(patience, 0.0)):
            child: Child = key.data
            try:
                told = child.read()
            except EOFError:
                told = self.lose(child, "")
            else:
                if told is not None and ("broken" in told or child.done >= self.batch):
                    self.let_go(child)
            if told is not None:
                yield told
        now = time.monotonic()
        for child in [one for one in self.working if one.until < now and (one.sequence or not one.ready)]:
            told = self.lose(child, f"no answer within {self.deadline_s:g} s")
            if told is not None:
                yield told

    def work(self, sequences: Iterable[Sequence]) -> Iterator[Sequence]:
        """Have all sequences executed; give the transcripts as they come."""
        source = iter(sequences)
        following = next(source, None)
        while following is not None or self.working:
            for child in [one for one in self.working if one.ready and one.sequence is None]:
                if following is None:
                    self.let_go(child)
                else:
                    child.begin(following, self.deadline_s)
                    following = next(source, None)
            while following is not None and len(self.working) < self.jobs:
                self.hire()
            if self.working:
                yield from self.wait()

    def close(self) -> None:
        """See that all children have ended."""
        for child in list(self.working):
            self.let_go(child)
            child.process.kill()
        for child in self.leaving:
            child.end(END_S)
        self.selector.close()


def run_sequences(
    library: str, sequences: Iterable[Sequence], at_once: AtOnce | None = None, *, lends: bool = True
) -> Iterator[Sequence]:
    """Execute sequences on a library; give each one's transcript as it is done, and at last what the library lacks.

    Parameters
    ----------
    library : str
        A path, or the name ``libcuda.so.1``.
    sequences : iterable
        Each with "id" and "steps". Taken one after the other, when a process is free.
    at_once : AtOnce, optional
        With one process, as by default, the transcripts are in the order of the sequences.
    lends : bool
        Whether there is memory of another process to open; steps that want it are skipped otherwise.

    Raises
    ------
    RefusedError
        If the library cannot be used at all.
    """
    with tempfile.TemporaryFile() as errors, contextlib.ExitStack() as at_end:
        lent = None
        if lends:
            lender = Lender(library, os.getpid(), errors)
            at_end.callback(lender.close)
            lent = lender.handles
        crew = Crew(library, lent or "", at_once or AtOnce(), errors)
        with contextlib.closing(crew):
            yield from crew.work(sequences)
        errors.seek(0)
        said = errors.read().decode(errors="replace").splitlines()
    lacks = sorted({line.split()[1] for line in said if NOT_SIMULATED in line and len(line.split()) > 1})
    yield {
        "id": "end",
        "library": library,
        "lacks": lacks,
        "said": [line for line in said if NOT_SIMULATED not in line][:50],
    }
