"""Memory shared in every way, and multicast, for some rounds, or until somebody is gone: exit code 3 then."""

from __future__ import annotations

import ctypes
import os
import sys

from tests.sim.run.programs.client import (
    GRANULE,
    RANK,
    SIZE,
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
