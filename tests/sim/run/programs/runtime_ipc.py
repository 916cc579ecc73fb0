"""Rank 0 shares memory of `cudaMalloc` and an event with rank 1, by CUDA IPC handles; ctypes on the runtime alone."""

from __future__ import annotations

import ctypes
import sys

from tests.sim.run.programs.client import RANK, Star

_runtime = ctypes.CDLL("libcudart.so.13")
Handle = ctypes.c_char * 64
EVENT_FLAGS = 2 | 4  # no timing, for other processes


def ok(name: str, *arguments: object) -> None:
    code = getattr(_runtime, name)(*arguments)
    assert code == 0, f"{name}: {code}"


class _Passed(ctypes.Structure):
    _fields_ = (("bytes", Handle),)


star = Star()
ok("cudaSetDevice", RANK)
memory, event, stream = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
memory_handle, event_handle = _Passed(), _Passed()
ok("cudaStreamCreate", ctypes.byref(stream))
data = ctypes.create_string_buffer(4)
if RANK == 0:
    ok("cudaMalloc", ctypes.byref(memory), 4096)
    ok("cudaEventCreateWithFlags", ctypes.byref(event), EVENT_FLAGS)
    ok("cudaIpcGetMemHandle", ctypes.byref(memory_handle), memory)
    ok("cudaIpcGetEventHandle", ctypes.byref(event_handle), event)
    ok("cudaMemsetAsync", memory, 7, ctypes.c_size_t(4096), stream)
    ok("cudaEventRecord", event, stream)
    star.give(bytes(memory_handle) + bytes(event_handle))
    star.barrier()
    ok("cudaMemcpy", data, memory, ctypes.c_size_t(4), 2)
    assert data.raw == b"\7\1\1\7", data.raw
    ok("cudaFree", memory)
else:
    said, _ = star.take()
    memory_handle, event_handle = _Passed.from_buffer_copy(said[:64]), _Passed.from_buffer_copy(said[64:])
    ok("cudaIpcOpenMemHandle", ctypes.byref(memory), memory_handle, 1)
    ok("cudaIpcOpenEventHandle", ctypes.byref(event), event_handle)
    ok("cudaStreamWaitEvent", stream, event, 0)
    ok("cudaMemcpyAsync", data, memory, ctypes.c_size_t(4), 2, stream)
    ok("cudaStreamSynchronize", stream)
    assert data.raw == b"\7\7\7\7", data.raw
    ok("cudaMemset", ctypes.c_void_p((memory.value or 0) + 1), 1, ctypes.c_size_t(2))
    ok("cudaDeviceSynchronize")
    ok("cudaIpcCloseMemHandle", memory)
    ok("cudaEventDestroy", event)
    star.barrier()  # whose event it is destroys it last
if RANK == 0:
    ok("cudaEventDestroy", event)
ok("cudaStreamDestroy", stream)
sys.stdout.write("shared\n")
