"""Running a program under `allranks sim run`, as a user does, or as a client of a broker that the test holds."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest

from allranks import sim
from allranks.sim.broker import Broker, HostMemory, client_folder

ROOT = Path(__file__).resolve().parents[3]
ALLRANKS = [sys.executable, "-P", "-c", "import sys; from allranks.cli import main; sys.exit(main())"]
LIMIT_S = 120


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What `allranks sim run` printed, wrote and answered."""

    code: int
    out: str
    err: str
    report: dict[str, Any]

    def kinds(self, rank: int | None) -> list[str]:
        """Give the kinds of what was found in a rank, in order."""
        return [finding["kind"] for finding in self.report["findings"] if finding["rank"] == rank]

    def texts(self, kind: str) -> list[str]:
        """Give what was found of a kind."""
        return [finding["text"] for finding in self.report["findings"] if finding["kind"] == kind]


def environment() -> dict[str, str]:
    """Give an environment in which programs find this project's tests, and no other node."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "SIMCU_"))}
    return kept | {"PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))}


def program(name: str, *arguments: str) -> list[str]:
    """Give the command of one of the programs."""
    return [sys.executable, "-S", "-m", f"tests.sim.run.programs.{name}", *arguments]


def python(text: str) -> list[str]:
    """Give the command of a program in a few words, which may call the driver."""
    return [sys.executable, "-S", "-c", f"from tests.sim.run.programs.client import *\n{text}"]


@pytest.fixture
def sim_run(tmp_path: Path) -> Callable[..., Ran]:
    """Give a function that runs a command as so many processes."""

    def run(size: int, command: list[str], *options: str) -> Ran:
        file = tmp_path / "report.json"
        whole = [*ALLRANKS, "sim", "run", "-n", str(size), "--json", str(file), *options, "--", *command]
        ran = subprocess.run(
            whole, env=environment(), cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        report = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        return Ran(code=ran.returncode, out=ran.stdout, err=ran.stderr, report=report)

    return run


@pytest.fixture(params=get_args(HostMemory))
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """Give a broker that reaches the memory of clients in either way."""
    with Broker(sim.machine("h100", devices=2), host_memory=request.param) as made:
        yield made


def client_environment(broker: Broker, rank: int = 0) -> dict[str, str]:
    """Give the environment of a client."""
    return environment() | broker.environment(rank) | {"LD_LIBRARY_PATH": str(client_folder())}


def client(broker: Broker, text: str, rank: int = 0) -> None:
    """Run a client to its end."""
    ran = subprocess.run(
        python(text),
        env=client_environment(broker, rank),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


@contextlib.contextmanager
def waiting_client(broker: Broker, text: str) -> Iterator[subprocess.Popen[str]]:
    """Give a client that has done something, and then waits for a line from us."""
    command = python(f"{text}\nimport sys\nprint('done', flush=True)\nsys.stdin.readline()")
    with subprocess.Popen(
        command,
        env=client_environment(broker),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        try:
            assert running.stdout.readline() == "done\n"
            yield running
        finally:
            running.kill()


def eventually(broker: Broker, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Ask for the report until something is so."""
    while not holds(report := broker.report()):
        os.sched_yield()
    return report


def none_alive(report: dict[str, Any]) -> bool:
    """Whether every client has ended."""
    return not any(client["alive"] for client in report["clients"])
