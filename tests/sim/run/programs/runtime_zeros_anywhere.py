"""What the runtime library answers on a driver that can be initialised and has no other function."""

from __future__ import annotations

import ctypes
import sys

from tests.sim.run.programs.symbols import exported

RETURNS_A_STRUCT = "cudaCreateChannelDesc"  # where its first argument points

_runtime = ctypes.CDLL(sys.argv[1])
for name in exported(sys.argv[1], "cuda"):
    if name != RETURNS_A_STRUCT:
        getattr(_runtime, name)(*[ctypes.c_uint64(0)] * 8)
_number, _pointer = ctypes.c_int(), ctypes.c_void_p()
count = _runtime.cudaGetDeviceCount(ctypes.byref(_number))
memory = _runtime.cudaMalloc(ctypes.byref(_pointer), 100)
sys.stdout.write(f"{count} {memory} {_runtime.cudaPeekAtLastError()}\n")
