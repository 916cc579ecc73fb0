"""How fast a node across processes is, and how large: run as ``python -m tests.sim.run.figures``; prints JSON.

A cycle is create, reserve, map, set access, unmap, release and free of 8 MiB through `cuda-bindings`, with the driver
embedded in the program and with the same program under a broker. A multicast cycle is the life of one object of 8 MiB
on 8 devices: create, add, bind and unbind on each, reserve, map, set access, unmap, free and release.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from allranks import sim
from allranks.sim.broker import Broker, client_folder
from tests.sim.run.conftest import environment, program, python

CYCLES: Final = 2000
BEST_OF: Final = 5  # others may use the machine too
BINDINGS: Final = [sys.executable, "-m", "tests.sim.run.programs.bindings", str(CYCLES)]
MULTICAST: Final = [sys.executable, "-m", "tests.sim.run.programs.multicast_cycle", "200"]
ROUND_TRIPS: Final = """
import time
start(0)
value = ctypes.c_int()
get = cuda.cuDeviceGetCount
for name, count in (("call", 10000), ("launch", 10000)):
    if name == "launch":
        function = answer("cuModuleGetFunction", answer("cuModuleLoadData", b"\\x7fELF" + bytes(60)), b"kernel")
        arguments = [ctypes.c_uint64(n) for n in (function, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0)]
    began = time.perf_counter()
    if name == "launch":
        for _ in range(count): cuda.cuLaunchKernel(*arguments)
    else:
        for _ in range(count): get(ctypes.byref(value))
    print((time.perf_counter() - began) / count * 1e6)
"""


def output(command: list[str], variables: dict[str, str]) -> str:
    """Run a program to its end; what it printed."""
    ran = subprocess.run(command, env=environment() | variables, capture_output=True, text=True, check=True)
    return ran.stdout


def resident_kib() -> int:
    """Give the memory of this process."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def under_a_broker(command: list[str], **machine: Any) -> str:
    """Run a program as the only client of a node."""
    with Broker(sim.machine("h100", **machine)) as broker:
        return output(command, broker.environment(0) | {"LD_LIBRARY_PATH": str(client_folder()), "LOCAL_RANK": "0"})


def embedded_us(command: list[str], devices: int) -> float:
    """Give what a cycle takes where the driver is in the program itself."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "libcuda.so.1").symlink_to(sim.library_path().resolve())
        variables = {"LD_LIBRARY_PATH": folder, "LOCAL_RANK": "0", "SIMCU_DEVICES": str(devices)}
        return float(output(command, variables).split()[0])


def many(size: int) -> dict[str, Any]:
    """Give what a node of so many processes takes to share and bind twice, one device each."""
    command = [sys.executable, "-P", "-c", "import sys; from allranks.cli import main; sys.exit(main())"]
    began = time.monotonic()
    ran = subprocess.run(
        [*command, "sim", "run", "-n", str(size), "--", *program("churn")],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    calls = sum(map(int, re.findall(r"(\d+) driver calls", ran.stderr)))
    return {"exit_code": ran.returncode, "seconds": round(time.monotonic() - began, 2), "driver_calls": calls}


def main() -> dict[str, Any]:
    """Measure."""
    before = resident_kib()
    with Broker(sim.machine("h100", devices=8)) as eight:
        eight.report()
        idle = resident_kib() - before
    with Broker(sim.machine("h100", devices=72)) as all_72:
        all_72.report()
        idle_72 = resident_kib() - before
    trips = [under_a_broker(python(ROUND_TRIPS)).split() for _ in range(BEST_OF)]
    call, launch = (min(float(trip[place]) for trip in trips) for place in (0, 1))
    return {
        "command": "python -m tests.sim.run.figures",
        "processors": len(os.sched_getaffinity(0)),
        "machine": platform.machine(),
        "best_of": BEST_OF,
        "load_average": round(os.getloadavg()[0], 1),
        "call_us": round(call, 1),
        "launches_per_second": round(1e6 / launch),
        "cycle_us": {
            "embedded": min(embedded_us(BINDINGS, 2) for _ in range(BEST_OF)),
            "under_a_broker": min(float(under_a_broker(BINDINGS).split()[0]) for _ in range(BEST_OF)),
            "hardware": 75,
        },
        "multicast_cycle_of_8_devices_us": {
            "embedded": min(embedded_us(MULTICAST, 8) for _ in range(BEST_OF)),
            "under_a_broker": min(float(under_a_broker(MULTICAST, devices=8).split()[0]) for _ in range(BEST_OF)),
        },
        "idle_node_kib": {"8 devices": idle, "72 devices": idle_72},
        "processes_on_one_node": {str(size): many(size) for size in (4, 64, 72)},
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(), indent=1) + "\n")
