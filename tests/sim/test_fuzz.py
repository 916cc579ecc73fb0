"""Wild calls of every entry point for some seconds; `make fuzz` takes a minute, `make evidence-fuzz` ten.

Not verified: that wild arguments are answered with the codes of hardware; only that the driver lives, that its books
agree, and that everything is given back.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.sim.fuzz import __main__ as fuzz
from tests.sim.fuzz import header
from tests.sim.fuzz.player import Surface
from tests.sim.fuzz.record import Record

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 300


@pytest.mark.parametrize("target", ["embedded", "client"])
def test_wild_calls_are_answered(target: str) -> None:
    command = [sys.executable, "-P", "-m", "tests.sim.fuzz", "--target", target, "--episodes", "16", "--seed", "5"]
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
    ran = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-8000:]
    told = json.loads(ran.stdout)
    assert told["episodes"] == 16
    assert told["simulated"] > 140
    assert told["least_called"] > 0, "an entry point was never called"


@pytest.fixture(scope="module")
def surface() -> Surface:
    types, functions = header.read()
    return Surface(header=types, functions=functions)


def test_functions_are_known_with_their_parameters(surface: Surface) -> None:
    known = {function.symbol: function for function in surface.functions}
    assert [each.type.name for each in known["cuMemMap"].parameters] == [
        "CUdeviceptr",
        "size_t",
        "size_t",
        "CUmemGenericAllocationHandle",
        "unsigned long long",
    ]
    assert known["cuMemAlloc_v2"].simulated
    assert not known["cuGraphLaunch"].simulated
    assert len(known["cuCtxCreate_v4"].parameters) == 4
    assert len(known) > 600


def test_a_crash_is_told_with_its_calls(surface: Surface, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(_: Surface, seed: str, calls: int, records: Sequence[Record]) -> None:
        records[1].begin(0, f"wild({calls > 0}, {seed})")
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setitem(fuzz.TARGETS, "embedded", crash)
    found = fuzz.Fuzz(surface).play("embedded", "9.1")
    assert found is not None
    assert found["what"] == f"ended with {-signal.SIGKILL}"
    assert found["last"] == [[], ["0: wild(True, 9.1)"]]
    assert found["replay"] == "python -m tests.sim.fuzz --target embedded --replay 9.1"


def test_a_call_that_never_ends_is_told(surface: Surface, monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(_: Surface, seed: str, calls: int, records: Sequence[Record]) -> None:
        records[0].begin(0, f"wild({calls > 0}, {seed})")
        signal.pause()

    monkeypatch.setattr(fuzz, "STILL_S", 0.1)
    monkeypatch.setitem(fuzz.TARGETS, "embedded", hang)
    found = fuzz.Fuzz(surface).play("embedded", "9.2")
    assert found is not None
    assert found["what"] == "stands still"


def test_what_is_not_given_back_is_told(surface: Surface, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fuzz.TARGETS, "client", lambda *_: "not given back")
    found = fuzz.Fuzz(surface).play("client", "9.3")
    assert found is not None
    assert (found["what"], found["said"]) == ("wrong", "not given back")
