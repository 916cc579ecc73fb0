"""The rows as they run on hardware, here on the simulated driver: each in a child, never multicast.

Not verified here: what hardware answers; its answers are in ``docs/results``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import types
from pathlib import Path

import pytest

from allranks import sim
from allranks.conformance.worlds.hardware import DISABLING
from tests.sim.rows import on_hardware

ROOT = Path(__file__).resolve().parents[2]


def rows(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run rows in the mode for hardware."""
    (folder / "libcuda.so.1").symlink_to(sim.library_path().resolve())
    mode = {"ALLRANKS_DRIVER_ROWS": "hardware", "LD_LIBRARY_PATH": str(folder), "SIMCU_MACHINE": "h200"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-rs", *arguments]
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **mode, "SIMCU_DEVICES": "2", **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_rows_run_without_a_simulated_host(tmp_path: Path) -> None:
    done = rows(tmp_path, "tests/sim/rows/test_contexts.py", **DISABLING)
    assert done.returncode == 0, done.stdout
    assert "cuDevicePrimaryCtxReset: not on hardware" in done.stdout


def test_no_row_of_multicast_is_even_imported(tmp_path: Path) -> None:
    done = rows(tmp_path, "tests/sim/rows", "--collect-only", **DISABLING)
    assert "test_virtual_memory.py::" in done.stdout
    assert "multicast" not in done.stdout


@pytest.mark.parametrize("variable", DISABLING)
def test_it_is_refused_where_a_library_may_use_multicast(tmp_path: Path, variable: str) -> None:
    done = rows(tmp_path, "tests/sim/rows/test_contexts.py", **{**DISABLING, variable: "2"})
    assert done.returncode != 0
    assert f"rows on hardware: set {variable}={DISABLING[variable]}" in done.stdout + done.stderr


@pytest.mark.parametrize(
    "name", ["cuMulticastCreate", "cuMemAllocManaged", "cuDevicePrimaryCtxReset", "cuLaunchKernel"]
)
def test_the_client_does_not_have_what_is_forbidden(name: str) -> None:
    module = types.SimpleNamespace(**{name: lambda: None}, cuMemCreate=1)
    guarded = on_hardware.Guarded(module)
    assert guarded.cuMemCreate == 1
    with pytest.raises(on_hardware.RefusedError, match=name):
        getattr(guarded, name)


def test_what_a_row_says_comes_from_its_child() -> None:
    def wrong() -> None:
        raise ValueError("seven")

    on_hardware.run_in_child(lambda: None, lambda: None)
    with pytest.raises(AssertionError, match="ValueError: seven"):
        on_hardware.run_in_child(lambda: None, wrong)
    with pytest.raises(pytest.skip.Exception, match="why"):
        on_hardware.run_in_child(lambda: None, lambda: pytest.skip("why"))


def test_a_row_that_dies_or_hangs_is_told() -> None:
    def hang() -> None:
        signal.pause()

    with pytest.raises(AssertionError, match="exit status 9"):
        on_hardware.run_in_child(lambda: None, lambda: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(AssertionError, match=r"said nothing within 0\.05 s"):
        on_hardware.run_in_child(lambda: None, hang, 0.05)
