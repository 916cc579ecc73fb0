"""A child process forked after `cuInit` cannot use the driver. Measured on 2 x H200, driver 580 (CUDA 13.0)."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

FORKING = """
import os, sys
from cuda.bindings import driver
from allranks import sim
refused = driver.CUresult.CUDA_ERROR_NOT_INITIALIZED
if sys.argv[1] == "bound":
    node = sim.Node(sim.machine("h200", devices=2))
    node.create_process(0).bind()
assert driver.cuInit(0)[0] == driver.CUresult.CUDA_SUCCESS
error, context = driver.cuDevicePrimaryCtxRetain(0)
driver.cuCtxSetCurrent(context)
if os.fork() == 0:
    calls = (driver.cuInit(0), driver.cuCtxSynchronize(), driver.cuMemAlloc(256), driver.cuDeviceGetCount())
    os._exit(sum(code[0] != refused for code in calls))
status = os.waitstatus_to_exitcode(os.wait()[1])
assert driver.cuMemAlloc(256)[0] == driver.CUresult.CUDA_SUCCESS
sys.exit(status)
"""


@pytest.mark.parametrize("process", ["default", "bound"])
def test_a_forked_child_is_not_initialised(process: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKING, process]
    ran = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{ran.returncode} of 4 calls were not refused\n{ran.stderr}"
