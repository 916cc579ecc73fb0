"""One of four processes is killed at a random driver call; `make evidence-kills` does it 1,000 times."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.sim.run.conftest import ROOT, environment

ROUNDS = 20


def test_what_a_killed_process_had_is_given_back() -> None:
    command = [sys.executable, "-P", "-m", "tests.sim.run.kills", str(ROUNDS), "7"]
    ran = subprocess.run(command, env=environment(), cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-4000:]
    told = json.loads(ran.stdout)
    assert told["rounds"] == ROUNDS
    assert sum(told["others"].values()) == 3 * ROUNDS
