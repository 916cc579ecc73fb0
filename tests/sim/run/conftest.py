"""Running a program under `allranks sim run`, as a user does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

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
    foreign = ("PYTEST_", "SIMCU_NODE", "SIMCU_RANK")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
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
