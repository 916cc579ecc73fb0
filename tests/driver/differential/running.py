"""Sequences executed on a library, in child processes that are replaced when a context breaks or a process ends.

A child reads one sequence a line and answers one line, so that it is known which sequence a child ended in. When the
parent is gone, a child's input ends, and so does the child.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Final

from tests.driver.differential import memory_calls, stream_calls
from tests.driver.differential.abi import Library, RefusedError, code_name
from tests.driver.differential.execution import CALLS, Execution, Result, Seat, Step

__all__ = ["CALLS", "Sequence", "memory_calls", "run_sequences", "serve", "stream_calls"]

Sequence = dict[str, Any]  # "id" and "steps"; a transcript has "results", "end" and perhaps "broken" besides

ROOT: Final = Path(__file__).resolve().parents[3]
SEQUENCE_LIMIT_S: Final = 60.0
NOT_SIMULATED: Final = "is not simulated"


def transcript(seat: Seat, sequence: Sequence) -> tuple[Sequence, bool]:
    """Execute a sequence; give its transcript, and whether the process can go on."""
    steps: list[Step] = sequence["steps"]
    run = Execution(seat)
    results: list[Result] = run.run(steps)
    end = run.give_back()
    told = {"id": sequence["id"], "steps": steps, "results": results, "end": end}
    code = seat.synchronize()
    if code or run.lost:
        told["broken"] = run.lost or code_name(code)
        return told, False
    return told, True


def serve(path: str) -> int:
    """Be a child: answer each line of the standard input. Gives the exit code."""
    try:
        library = Library(path)
        seat = Seat(library)
    except (RefusedError, RuntimeError) as error:
        sys.stderr.write(f"allranks: {error}\n")
        return 2
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    for line in sys.stdin:
        told, healthy = transcript(seat, json.loads(line))
        answers.write(json.dumps(told, separators=(",", ":")) + "\n")
        answers.flush()
        if not healthy:
            os._exit(0)  # a broken context cannot be given back
    seat.close()
    return 0


class Child:
    """A process that executes sequences."""

    def __init__(self, library: str, errors: IO[bytes]) -> None:
        environment = {"SIMCU_MACHINE": "h200", "SIMCU_DEVICES": "2", **os.environ}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.driver.differential", "serve", "--library", library],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )

    def ask(self, sequence: Sequence) -> tuple[Sequence | None, str]:
        """Have a sequence executed; give its transcript, or None and how the process ended."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(sequence, separators=(",", ":")).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return None, f"exit code {self.process.wait()}"
        ready, _, _ = select.select([self.process.stdout], [], [], SEQUENCE_LIMIT_S)
        if not ready:
            self.process.kill()
            self.process.wait()
            return None, f"no answer within {SEQUENCE_LIMIT_S:g} s"
        line = self.process.stdout.readline()
        if not line.endswith(b"\n"):
            return None, f"exit code {self.process.wait()}"
        told: Sequence = json.loads(line)
        return told, ""

    def close(self) -> None:
        """Let the process end by itself."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def run_sequences(library: str, sequences: Iterable[Sequence], batch: int = 500) -> Iterator[Sequence]:
    """Execute sequences on a library, so many in a process; give each one's transcript, and what the library lacks.

    Raises
    ------
    RefusedError
        If the library cannot be used at all.
    """
    with tempfile.TemporaryFile() as errors:
        child: Child | None = None
        done, total = 0, 0
        try:
            for sequence in sequences:
                if child is None:
                    child, done = Child(library, errors), 0
                told, ended = child.ask(sequence)
                if told is None and total == 0 and child.process.poll() == 2:
                    errors.seek(0)
                    raise RefusedError(errors.read().decode(errors="replace").strip().removeprefix("allranks: "))
                done, total = done + 1, total + 1
                yield told or {"id": sequence["id"], "steps": sequence["steps"], "results": [], "broken": ended}
                if told is None or "broken" in told or done >= batch:
                    child.close()
                    child = None
        finally:
            if child is not None:
                child.close()
        errors.seek(0)
        said = errors.read().decode(errors="replace").splitlines()
    lacks = sorted({line.split()[1] for line in said if NOT_SIMULATED in line and len(line.split()) > 1})
    yield {
        "id": "end",
        "library": library,
        "lacks": lacks,
        "said": [line for line in said if NOT_SIMULATED not in line][:50],
    }
