"""One of four processes is killed at a random driver call; `make evidence-kills` does it 1,000 times."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.sim.run.conftest import ROOT, environment

ROUNDS = 30


def kills(rounds: int, file: Path) -> dict[str, Any]:
    command = [sys.executable, "-P", "-m", "tests.sim.run.kills", str(rounds), "7", str(file)]
    ran = subprocess.run(command, env=environment(), cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-4000:]
    told: dict[str, Any] = json.loads(ran.stdout)
    return told


def test_what_a_killed_process_had_is_given_back(tmp_path: Path) -> None:
    begun = kills(ROUNDS - 1, tmp_path / "kills.json")
    told = kills(ROUNDS, tmp_path / "kills.json")
    assert told["rounds"] == ROUNDS
    assert sum(told["others"].values()) == sum(begun["others"].values()) + 3 == 3 * ROUNDS
    assert os.listdir(tmp_path) == ["kills.json"]
