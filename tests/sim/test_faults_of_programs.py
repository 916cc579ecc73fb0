"""Faults that a program knows nothing of, in a driver that is part of its own process: ``SIMCU_FAULTS``."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from allranks.sim.node import library_path

CODE = f"""
import ctypes
cuda = ctypes.CDLL({str(library_path())!r})
count = ctypes.c_int()
print(cuda.cuInit(0), flush=True)
print(*(cuda.cuDeviceGetCount(ctypes.byref(count)) for _ in range(3)), flush=True)
"""


def _run(faults: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SIMCU_FAULTS": faults}
    command = [sys.executable, "-S", "-c", CODE]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("faults", "says"),
    [
        ("", "0\n0 0 0\n"),
        ("0:cuDeviceGetCount:1=CUDA_ERROR_UNKNOWN", "0\n0 999 0\n"),
        ("*:cuDeviceGetCount:0=999;*:*:3=3", "0\n999 0 3\n"),
        ("1:cuDeviceGetCount:0=999", "0\n0 0 0\n"),  # it is rank 0
    ],
)
def test_a_call_fails_with_the_code_that_is_wanted(faults: str, says: str) -> None:
    assert _run(faults).stdout == says


def test_the_process_is_killed_in_the_call_that_is_wanted() -> None:
    ran = _run("*:cuDeviceGetCount:0=kill")
    assert (ran.returncode, ran.stdout) == (-9, "0\n")


def test_what_cannot_be_understood_is_told_and_nothing_is_driven() -> None:
    ran = _run("0:cuInit=kill")
    assert "SIMCU_FAULTS: fault=0:cuInit=kill: RANK:CALL:K=ACTION" in ran.stderr
    assert ran.stdout.splitlines()[0] == "100"
