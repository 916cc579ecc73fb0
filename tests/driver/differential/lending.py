"""Memory of another process, for sequences to open by CUDA IPC: one allocation a device, with a known content.

On a real driver a process of its own lends to all children of a run, until it is killed or its parent ends. A simulated
driver inside of a process has a host of its own, so that each child lends to itself: by a second virtual process.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any, Final

from tests.driver.differential.abi import Handle, Library, Opaque64
from tests.driver.differential.execution import DEVICES, Seat
from tests.driver.differential.world import LENT_BYTES

LENT_VALUE: Final = 0x5A
START_S: Final = 120.0
BY_ITSELF: Final = "itself"  # what a child of a simulated driver is told instead of handles

ROOT: Final = Path(__file__).resolve().parents[3]


def lend(library: Library) -> tuple[Seat, list[bytes]]:
    """Make the memory of each device, and give the handles of it; the seat keeps the contexts."""
    seat, handles = Seat(library), list[bytes]()
    for device in range(DEVICES):
        seat.enter(device)
        address, handle = Handle(), Opaque64()
        library.ok("cuMemAlloc", ctypes.byref(address), ctypes.c_size_t(LENT_BYTES))
        library.ok("cuMemsetD8", address, ctypes.c_ubyte(LENT_VALUE), ctypes.c_size_t(LENT_BYTES))
        library.ok("cuCtxSynchronize")
        library.ok("cuIpcGetMemHandle", ctypes.byref(handle), address)
        handles.append(bytes(handle.bytes))
    return seat, handles


def lend_to_itself(library: Library) -> tuple[Any, list[bytes]]:
    """Give a host that has to stay, and handles of memory of another process on it; the caller speaks for a new one."""
    from allranks import sim

    host = sim.Node(sim.machine("h200", devices=DEVICES))
    host.create_process(1).bind()
    _, handles = lend(library)
    host.create_process(0).bind()
    return host, handles


def is_ours(path: str) -> bool:
    """Whether that is the simulated driver of the package, if there is one: no other can be given a host."""
    if importlib.util.find_spec("allranks") is None:
        return False
    from allranks import sim

    return sim.library_path().resolve() == Path(path).resolve()


def serve_lender(path: str) -> int:
    """Be the process that lends: say the handles in one line, and stay until the standard input ends."""
    library = Library(path)
    if library.simulated:
        sys.stdout.write(json.dumps(BY_ITSELF if is_ours(path) else None) + "\n")
        return 0
    seat, handles = lend(library)
    sys.stdout.write(json.dumps(",".join(handle.hex() for handle in handles)) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    seat.close()
    return 0


class Lender:
    """The process that lends. `handles` is what children are to be told; None if there is nothing to lend."""

    def __init__(self, library: str, parent: int, errors: IO[bytes]) -> None:
        command = [sys.executable, "-m", "tests.driver.differential", "lend", "--library", library]
        self._process = subprocess.Popen(
            [*command, "--parent", str(parent)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        assert self._process.stdout is not None
        begun, _, _ = select.select([self._process.stdout], [], [], START_S)
        line = self._process.stdout.readline() if begun else b""
        self.handles: str | None = json.loads(line) if line.endswith(b"\n") else None

    def close(self) -> None:
        """End the process."""
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate()
