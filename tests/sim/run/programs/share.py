"""Rank 0 shares memory with rank 1, by a descriptor that is sent, or by `pidfd_getfd`; each sees what both wrote."""

from __future__ import annotations

import ctypes
import os
import sys

from tests.sim.run.programs.client import (
    GRANULE,
    RANK,
    Star,
    create,
    export,
    import_once,
    mapped,
    ok,
    read,
    start,
    unmapped,
)

_PIDFD_GETFD = 438
_libc = ctypes.CDLL(None, use_errno=True)

star = Star()
start(RANK)
if RANK == 0:
    handle = create(0)
    descriptor = export(handle)
    if sys.argv[1] == "socket":
        star.give(b"take it", descriptor)
        os.close(descriptor)
    else:
        star.give(f"{os.getpid()} {descriptor}".encode())
else:
    said, descriptor = star.take()
    if sys.argv[1] == "pidfd":
        pid, number = map(int, said.split())
        descriptor = _libc.syscall(_PIDFD_GETFD, os.pidfd_open(pid), number, 0)
        assert descriptor >= 0, os.strerror(ctypes.get_errno())
    handle = import_once(descriptor)
address = mapped(handle, GRANULE, RANK)
ok("cuMemRelease", handle)
ok("cuMemsetD8_v2", address + RANK, RANK + 1, 1)
star.barrier()
assert read(address, 3) == b"\1\2\0", read(address, 3)
star.barrier()
unmapped(address, GRANULE)
if RANK == 0 and sys.argv[1] == "pidfd":
    os.close(descriptor)
sys.stdout.write("shared\n")
