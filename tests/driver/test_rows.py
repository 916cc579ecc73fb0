"""The rows of `tests/driver/rows` on the simulated driver, in a child process; on hardware they are run by hand.

Not verified here: that hardware answers alike; ``ALLRANKS_DRIVER=libcuda.so.1 python -m tests.driver.rows`` does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from allranks import sim
from tests.driver.rows.__main__ import name_of, rows
from tests.driver.rows.client import VARIABLE

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def told() -> dict[str, dict[str, str]]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SIMCU_")}
    environment |= {VARIABLE: str(sim.library_path()), "SIMCU_MACHINE": "h200", "SIMCU_DEVICES": "2"}
    command = [sys.executable, "-m", "tests.driver.rows"]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    found = {one["row"]: one for one in map(json.loads, ran.stdout.splitlines())}
    found[""] = {"row": "", "verdict": "failed", "text": f"exit code {ran.returncode}\n{ran.stderr[-4000:]}"}
    return found


@pytest.mark.parametrize("row", [name_of(row) for row in rows()])
def test_row(row: str, told: dict[str, dict[str, str]]) -> None:
    outcome = told.get(row, told[""])
    if outcome["verdict"] == "skipped":
        pytest.skip(outcome["text"])
    if outcome["verdict"] != "passed":
        pytest.fail(outcome["text"], pytrace=False)
