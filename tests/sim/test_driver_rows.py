"""The rows of `tests/sim/rows`, run by a client that nobody here wrote: NVIDIA's `cuda-bindings`.

One child process runs them all, with the simulated driver on its library path under the name ``libcuda.so.1``; each
row is then a test of its own here. What this does not verify: that hardware answers alike. Where a row was measured on
hardware, the row says so.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import NamedTuple

import pytest

from allranks import sim

ROOT = Path(__file__).resolve().parents[2]
ROWS = Path("tests", "sim", "rows")
CHILD_LIMIT_S = 300


class Outcome(NamedTuple):
    """How a row ended: "passed", "skipped" or "failed", and what it said."""

    verdict: str
    text: str


def child(library_folder: Path, *arguments: str, limit_s: float = CHILD_LIMIT_S) -> subprocess.CompletedProcess[str]:
    """Run pytest on the rows in a process whose library path holds the simulated driver."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "SIMCU_"))}
    environment |= {
        "ALLRANKS_DRIVER_ROWS": "1",
        "LD_LIBRARY_PATH": os.pathsep.join(filter(None, [str(library_folder), os.environ.get("LD_LIBRARY_PATH")])),
        "SIMCU_MACHINE": "h200",
        "SIMCU_DEVICES": "2",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments, str(ROWS)]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=limit_s, check=False
    )


@functools.cache
def row_ids() -> list[str]:
    """Ask the child which rows there are; "file::test[parameters]" each."""
    listing = child(Path(os.devnull), "--collect-only")
    prefix = f"{ROWS.as_posix()}/"
    rows = [line.removeprefix(prefix) for line in listing.stdout.splitlines() if line.startswith(prefix)]
    if listing.returncode != 0 or not rows:
        raise RuntimeError(f"the rows cannot be collected:\n{listing.stdout}\n{listing.stderr}")
    return rows


def outcome_of(case: ElementTree.Element) -> Outcome:
    """Read one case of a JUnit report."""
    for part in case:
        if part.tag in ("failure", "error", "skipped"):
            verdict = "skipped" if part.tag == "skipped" else "failed"
            return Outcome(verdict, f"{part.get('message')}\n{part.text}")
    return Outcome("passed", "")


@pytest.fixture(scope="session")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """Run the rows once; give how each ended, and under "" what the child said."""
    folder = tmp_path_factory.mktemp("driver")
    (folder / "libcuda.so.1").symlink_to(sim.library_path().resolve())
    report = folder / "rows.xml"
    ran = child(folder, f"--junit-xml={report}")
    outcomes = {"": Outcome("failed", f"exit code {ran.returncode}\n{ran.stdout[-4000:]}\n{ran.stderr[-4000:]}")}
    if report.is_file():
        for case in ElementTree.parse(report).iter("testcase"):
            file = f"{case.get('classname', '').rsplit('.', 1)[-1]}.py"
            outcomes[f"{file}::{case.get('name')}"] = outcome_of(case)
    return outcomes


@pytest.mark.parametrize("row", row_ids())
def test_row(row: str, outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes.get(row)
    if outcome is None:
        pytest.fail(f"the child process ended before this row: {outcomes[''].text}", pytrace=False)
    if outcome.verdict == "skipped":
        pytest.skip(outcome.text)
    if outcome.verdict == "failed":
        pytest.fail(outcome.text, pytrace=False)
