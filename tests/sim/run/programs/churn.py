"""All kinds of things that a process can have of the driver, for some rounds, or until somebody is gone.

Memory shared in every way, multicast, pools, events, contexts, modules, page-locked memory. Exit code 3: somebody is
gone.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

from tests.sim.run.programs.client import (
    GRANULE,
    POSIX,
    RANK,
    SIZE,
    IpcHandle,
    RefusedError,
    Star,
    answer,
    create,
    create_team,
    export,
    import_once,
    ipc_handle,
    mapped,
    ok,
    open_memory,
    start,
    unmapped,
)

INTERPROCESS = 6  # and without timing
NOTHING = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)


def share_otherwise(star: Star) -> None:
    """CUDA IPC, stream-ordered and page-locked memory, and a function that a stream calls."""
    memory = answer("cuMemAlloc_v2", 100) if RANK == 0 else 0
    if RANK == 0:
        star.give(ipc_handle("cuIpcGetMemHandle", memory))
    else:
        memory = open_memory(star.take()[0])
    host, pooled = answer("cuMemHostAlloc", 100, 0), answer("cuMemAllocAsync", 100, None)
    ok("cuMemcpyAsync", pooled, host, 100, None)
    ok("cuMemcpyAsync", memory, pooled, 100, None)
    ok("cuLaunchHostFunc", None, NOTHING, None)
    ok("cuMemFreeAsync", pooled, None)
    ok("cuStreamSynchronize", None)
    ok("cuMemFreeHost", host)
    if RANK != 0:
        ok("cuIpcCloseMemHandle", memory)
    star.barrier()
    if RANK == 0:
        ok("cuMemFree_v2", memory)


def share_event(star: Star) -> None:
    """An event of rank 0 that the others wait for."""
    stream = answer("cuStreamCreate", 1)
    event = answer("cuEventCreate", INTERPROCESS) if RANK == 0 else 0
    if RANK == 0:
        ok("cuEventRecord", event, stream)
        star.give(ipc_handle("cuIpcGetEventHandle", event))
    else:
        event = answer("cuIpcOpenEventHandle", IpcHandle.from_buffer_copy(star.take()[0]))
    ok("cuStreamWaitEvent", stream, event, 0)
    ok("cuStreamSynchronize", stream)
    star.barrier()
    ok("cuEventDestroy_v2", event)
    ok("cuStreamDestroy_v2", stream)


def share_pool(star: Star) -> None:
    """A pool of rank 0, and memory in it."""
    data = ctypes.create_string_buffer(64)
    if RANK == 0:
        pool = answer("cuMemPoolCreate", struct.pack("iiiiQQHxx", 1, POSIX, 1, 0, 0, 0, 0) + bytes(56))
        memory = answer("cuMemAllocFromPoolAsync", 1000, pool, None)
        ok("cuStreamSynchronize", None)
        exported = ctypes.c_int(-1)
        ok("cuMemPoolExportToShareableHandle", ctypes.byref(exported), pool, POSIX, 0)
        ok("cuMemPoolExportPointer", data, memory)
        star.give(data.raw, exported.value)
        os.close(exported.value)
    else:
        said, descriptor = star.take()
        pool = answer("cuMemPoolImportFromShareableHandle", descriptor, POSIX, 0)
        os.close(descriptor)
        memory = answer("cuMemPoolImportPointer", pool, ctypes.create_string_buffer(said, 64))
        ok("cuMemFreeAsync", memory, None)
        ok("cuStreamSynchronize", None)
    star.barrier()
    if RANK == 0:
        ok("cuMemFreeAsync", memory, None)
    ok("cuMemPoolDestroy", pool)


def have_alone() -> None:
    """A context of one's own with a kernel in a stream of it, and registered memory."""
    context = answer("cuCtxCreate_v4", None, 0, RANK)
    function = answer("cuModuleGetFunction", answer("cuModuleLoadData", b"\x7fELF" + bytes(60)), b"kernel")
    host = ctypes.create_string_buffer(10000)
    ok("cuMemHostRegister_v2", host, 10000, 0)
    ok("cuLaunchKernel", function, 1, 1, 1, 32, 1, 1, 0, answer("cuStreamCreate", 1), None, None)
    ok("cuMemcpyHtoDAsync_v2", answer("cuMemAlloc_v2", 10000), host, 10000, None)
    ok("cuCtxSynchronize")
    ok("cuMemHostUnregister", host)
    ok("cuCtxDestroy_v2", context)


def turn(star: Star) -> None:
    team = create_team(SIZE) if RANK == 0 else 0
    descriptor = star.share(export(team) if RANK == 0 else -1)
    if RANK == 0:
        os.close(descriptor)
    else:
        team = import_once(descriptor)
    memory = create(RANK)
    address = mapped(memory, GRANULE, RANK)
    ok("cuMulticastAddDevice", team, RANK)
    star.barrier()
    ok("cuMulticastBindAddr", team, 0, address, GRANULE, 0)
    through = mapped(team, GRANULE, RANK)
    star.barrier()
    ok("cuMemsetD8_v2", through, RANK, GRANULE)
    stream = answer("cuStreamCreate", 1)
    ok("cuMemsetD8Async", address, RANK, 4096, stream)
    ok("cuStreamSynchronize", stream)
    ok("cuStreamDestroy_v2", stream)
    descriptor = star.share(export(memory) if RANK == 0 else -1)
    shared = import_once(descriptor)
    other = mapped(shared, GRANULE, RANK)
    ok("cuMemsetD8_v2", other, 1, 100)
    unmapped(other, GRANULE)
    ok("cuMemRelease", shared)
    share_otherwise(star)
    share_event(star)
    share_pool(star)
    have_alone()
    star.barrier()
    unmapped(through, GRANULE)
    ok("cuMulticastUnbind", team, RANK, 0, GRANULE)
    ok("cuMemRelease", team)
    unmapped(address, GRANULE)
    ok("cuMemRelease", memory)


def main() -> int:
    try:
        star = Star()
        start(RANK)
        plain = answer("cuMemAlloc_v2", 3 << 20)
        for _ in range(2):
            turn(star)
        ok("cuMemFree_v2", plain)
    except (RefusedError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 3
    return 0


sys.exit(main())
