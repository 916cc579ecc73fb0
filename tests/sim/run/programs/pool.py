"""Rank 0 shares a memory pool with the others by a descriptor, and a pointer into it by its data."""

from __future__ import annotations

import ctypes
import os
import struct
import sys

from tests.sim.run.programs.client import POSIX, RANK, Star, answer, ok, read, start

star = Star()
start(RANK)
stream = answer("cuStreamCreate", 1)
access = struct.pack("iii", 1, RANK, 3)
if RANK == 0:
    properties = struct.pack("iiiiQQHxx", 1, POSIX, 1, 0, 0, 0, 0) + bytes(56)
    pool = answer("cuMemPoolCreate", properties)
    threshold = ctypes.c_uint64(1 << 30)
    ok("cuMemPoolSetAttribute", pool, 4, ctypes.byref(threshold))
    threshold.value = 0
    ok("cuMemPoolGetAttribute", pool, 4, ctypes.byref(threshold))
    assert threshold.value == 1 << 30
    memory = answer("cuMemAllocFromPoolAsync", 1000, pool, stream)
    ok("cuMemsetD8Async", memory, 5, 1000, stream)
    ok("cuStreamSynchronize", stream)
    exported = ctypes.c_int(-1)
    ok("cuMemPoolExportToShareableHandle", ctypes.byref(exported), pool, POSIX, 0)
    data = ctypes.create_string_buffer(64)
    ok("cuMemPoolExportPointer", data, memory)
    star.give(data.raw, exported.value)
    os.close(exported.value)
    star.barrier()
    assert read(memory, 2) == b"\5\1", read(memory, 2)
    star.barrier()
else:
    said, descriptor = star.take()
    pool = answer("cuMemPoolImportFromShareableHandle", descriptor, POSIX, 0)
    os.close(descriptor)
    ok("cuMemPoolSetAccess", pool, access, 1)
    memory = answer("cuMemPoolImportPointer", pool, ctypes.create_string_buffer(said, 64))
    ok("cuMemsetD8Async", memory + 1, 1, 1, stream)
    ok("cuStreamSynchronize", stream)
    star.barrier()
    ok("cuMemFreeAsync", memory, stream)
    ok("cuStreamSynchronize", stream)
    star.barrier()
if RANK == 0:
    ok("cuMemFreeAsync", memory, stream)
ok("cuStreamDestroy_v2", stream)
ok("cuMemPoolDestroy", pool)
sys.stdout.write("shared\n")
