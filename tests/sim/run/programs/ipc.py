"""Rank 0 shares memory and an event with the others through CUDA IPC, as PyTorch and MSCCL++ do.

With `early` rank 0 frees the memory before the others close it; with `gone` it ends instead, and they go on.
"""

from __future__ import annotations

import ctypes
import os
import sys

from tests.sim.run.programs.client import (
    RANK,
    IpcHandle,
    Star,
    answer,
    call,
    ipc_handle,
    ok,
    open_memory,
    read,
    start,
)

SHARED = 6  # interprocess, without timing
star = Star()
start(RANK)
way = sys.argv[1] if len(sys.argv) > 1 else ""


def exporter() -> None:
    memory, event, stream = answer("cuMemAlloc_v2", 1000), answer("cuEventCreate", SHARED), answer("cuStreamCreate", 1)
    handle, shared = ipc_handle("cuIpcGetMemHandle", memory), ipc_handle("cuIpcGetEventHandle", event)
    ok("cuMemsetD8Async", memory, 5, 1000, stream)
    ok("cuEventRecord", event, stream)
    star.give(handle + shared)
    star.barrier()
    assert read(memory, 2) == b"\5\1", read(memory, 2)
    if way == "gone":
        os._exit(0)
    if not way:
        star.barrier()
    ok("cuMemFree_v2", memory)
    if way:
        star.barrier()
    ok("cuEventDestroy_v2", event)
    ok("cuStreamDestroy_v2", stream)


def importer() -> None:
    said, _ = star.take()
    memory, stream = open_memory(said[:64]), answer("cuStreamCreate", 1)
    event = answer("cuIpcOpenEventHandle", IpcHandle.from_buffer_copy(said[64:]))
    assert open_memory(said[:64]) == memory
    ok("cuIpcCloseMemHandle", memory)
    ok("cuStreamWaitEvent", stream, event, 0)
    ok("cuMemsetD8Async", memory + 1, 1, 1, stream)
    ok("cuStreamSynchronize", stream)
    ok("cuEventDestroy_v2", event)
    ok("cuStreamDestroy_v2", stream)
    star.barrier()
    if way == "gone":
        star.wait_for_the_end()
        assert read(memory, 3) == b"\5\1\5"
    elif way == "early":
        star.barrier()
        assert read(memory, 3) == b"\5\1\5"
    ok("cuIpcCloseMemHandle", memory)
    opened = ctypes.c_uint64()
    handle = IpcHandle.from_buffer_copy(said[:64])
    if not way:
        star.barrier()
        return
    while (code := call("cuIpcOpenMemHandle_v2", ctypes.byref(opened), handle, 1)) == 0 and way == "gone":
        ok("cuIpcCloseMemHandle", opened.value)  # the driver may hear later of the end than we do
        os.sched_yield()
    assert code == 1


if RANK == 0:
    exporter()
else:
    importer()
sys.stdout.write("shared\n")
