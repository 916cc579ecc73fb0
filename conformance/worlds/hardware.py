"""Real GPUs: which there are, and the environment of processes that use them.

A child of a process that has initialised CUDA cannot use it any more, so nothing is asked here: a child process asks,
and ends.

Multicast objects can put GPUs that others share out of service. `allranks.driver` does not even resolve the calls; but
a communicator under test has a way of its own to the driver. So whatever works on real GPUs gets an environment in
which multicast is disabled by the words of each library that is known to use it, unless the guard allows it.

Sources: NCCL user guide, NCCL_NVLS_ENABLE; PyTorch, SymmetricMemory, TORCH_SYMM_MEM_DISABLE_MULTICAST; NVSHMEM,
NVSHMEM_DISABLE_NVLS; MSCCL++, MSCCLPP_FORCE_DISABLE_NVLS. NCCL takes a value that is no number as if there were none,
and PyTorch one that is neither 0 nor 1: so what the guard reads as disabling is written in the words that they know.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

from allranks._native import driver as native
from allranks.conformance.backend import Backend, spaces_of
from allranks.errors import UsageError

DriverName = Literal["sim", "cuda"]

LIBRARY: Final = "libcuda.so.1"
DISABLING: Final = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
    "MSCCLPP_FORCE_DISABLE_NVLS": "1",
}

_ASK_S: Final = 60.0  # a host of many GPUs takes seconds
_KERNEL_MODULE: Final = Path("/proc/driver/nvidia/version")
# Needs no more than the interpreter; what it prints last is the answer.
_ASK: Final = """
import ctypes, json, sys
def answer(**what):
    print(json.dumps(what)); sys.exit()
try:
    cuda = ctypes.CDLL(sys.argv[1])
except OSError as error:
    answer(missing=f"{sys.argv[1]} cannot be loaded ({error}); it comes with NVIDIA's driver")
def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code:
        said = ctypes.c_char_p()
        cuda.cuGetErrorName(code, ctypes.byref(said))
        answer(missing=f"no GPU can be used: {name} returned {(said.value or b'unknown code').decode()} ({code})")
number, name, names = ctypes.c_int(), ctypes.create_string_buffer(256), []
call("cuInit", 0)
call("cuDriverGetVersion", ctypes.byref(number))
version = number.value
call("cuDeviceGetCount", ctypes.byref(number))
for index in range(number.value):
    device = ctypes.c_int()
    call("cuDeviceGet", ctypes.byref(device), index)
    call("cuDeviceGetName", name, 256, device)
    names.append(name.value.decode())
answer(version=version, names=names)
"""


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs that processes of this user see: their names by index, and the driver's version."""

    names: tuple[str, ...]
    driver_version: int  # 1000 * major + 10 * minor, of the CUDA that it offers

    @property
    def cuda(self) -> str:
        """The driver's version, as people write it."""
        return f"{self.driver_version // 1000}.{self.driver_version % 1000 // 10}"

    @property
    def described(self) -> str:
        """What there is, in a few words."""
        counts = dict.fromkeys(self.names, 0)
        for name in self.names:
            counts[name] += 1
        return ", ".join(f"{count} x {name}" for name, count in counts.items()) or "none"


def guarded(environment: Mapping[str, str]) -> dict[str, str]:
    """Give the environment for a process that works on real GPUs: as it is where the guard allows multicast.

    Else all of `DISABLING` is set; what the user has set to disable multicast does so still.
    """
    if native.decide_multicast(False, dict(environment)).allowed:
        return dict(environment)
    return {**environment, **DISABLING}


@functools.cache
def gpus(library: str = LIBRARY) -> Gpus:
    """Ask a short child process which GPUs there are.

    Raises
    ------
    allranks.errors.UsageError
        If there is no driver, or none of its GPUs can be used; the message says what is missing.
    """
    told = _asked(library)
    if "missing" in told:
        raise UsageError(f"driver='cuda': {told['missing']}")
    if not told["names"]:
        raise UsageError(f"driver='cuda': {library} is there, and sees no GPU")
    return Gpus(tuple(told["names"]), told["version"])


def in_child(script: str, *arguments: str, timeout_s: float) -> subprocess.CompletedProcess[str] | None:
    """Run a script in an interpreter of its own, guarded; None: it did not end in time."""
    try:
        return subprocess.run(
            [sys.executable, "-P", "-c", script, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
            stdin=subprocess.DEVNULL,
            env=guarded(os.environ),
        )
    except subprocess.TimeoutExpired:
        return None


def _asked(library: str) -> dict[str, Any]:
    asked = in_child(_ASK, library, timeout_s=_ASK_S)
    if asked is None:
        return {"missing": f"{library} does not say within {_ASK_S:g} s which GPUs there are"}
    lines = asked.stdout.splitlines()
    if asked.returncode or not lines:
        said = asked.stderr.strip().splitlines()[-1:] or ["nothing"]
        return {"missing": f"asking {library} for GPUs ends with exit code {asked.returncode}, and says {said[0]}"}
    told: dict[str, Any] = json.loads(lines[-1])
    return told


def check_driver(backend: Backend, driver: DriverName, world: str = "processes") -> None:
    """Check that a backend, a driver and a world go together.

    Raises
    ------
    allranks.errors.UsageError
        If they do not.
    """
    names = get_args(DriverName)
    needed = getattr(backend, "driver", "sim")
    for where, name in ((f"backend={backend.name!r}: ", needed), ("", driver)):
        if name not in names:
            raise UsageError(f"{where}driver={name!r}: one of {', '.join(names)}")
    if driver == "sim":
        if needed == "cuda":
            raise UsageError(f"driver='sim': backend {backend.name} works on real GPUs only, which is --driver cuda")
        return
    if world != "processes":
        raise UsageError(f"driver='cuda': only for world processes, and this is world {world}")
    if "device" not in spaces_of(backend):
        raise UsageError(f"driver='cuda': backend {backend.name} works on host memory")


def check_gpus(ranks: int) -> Gpus:
    """Check that there is a GPU for each rank.

    Raises
    ------
    allranks.errors.UsageError
        If there is not.
    """
    found = gpus()
    if len(found.names) < ranks:
        have = f"there is {found.described}" if len(found.names) == 1 else f"there are {found.described}"
        raise UsageError(f"driver='cuda': ranks={ranks}: one GPU for each rank, and {have}")
    return found


def kernel_module(path: Path = _KERNEL_MODULE) -> str:
    """Give the version of NVIDIA's kernel module; empty: it does not say."""
    try:
        words = path.read_text(encoding="ascii", errors="replace").split()
    except OSError:
        return ""
    return next((word for word in words if word[0].isdigit() and "." in word), "")
