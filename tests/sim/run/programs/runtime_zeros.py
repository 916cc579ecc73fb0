"""Call every function of the runtime library that a program may call with nothing but zeros; its end is the test."""

from __future__ import annotations

import ctypes
import sys

from tests.sim.run.programs.symbols import exported

RETURNS_A_STRUCT = "cudaCreateChannelDesc"  # where its first argument points

_path = sys.argv[1]
_runtime = ctypes.CDLL(_path)
names = [name for name in exported(_path, "cuda") if name != RETURNS_A_STRUCT]
for name in names:
    getattr(_runtime, name)(*[ctypes.c_uint64(0)] * 8)
sys.stdout.write(f"{len(names)}\n")
