"""A client of the simulated driver in few words: ctypes alone, so that it starts within milliseconds.

Programs here are started by `allranks sim run` or by a broker's environment, never by a test's own process: elsewhere
``libcuda.so.1`` could be a real driver. Importing this module ends the program unless it is the simulated one.
"""

from __future__ import annotations

import array
import ctypes
import os
import socket
import struct
import sys
from typing import Any, Final

GRANULE: Final = 2 << 20
POSIX: Final = 1
RANK: Final = int(os.environ.get("RANK", "0"))
SIZE: Final = int(os.environ.get("WORLD_SIZE", "1"))


def _load() -> ctypes.CDLL:
    library = ctypes.CDLL("libcuda.so.1")
    address = ctypes.cast(library.cuInit, ctypes.c_void_p).value or 0
    path = ""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            begin, end = (int(part, 16) for part in line.split()[0].split("-"))
            if begin <= address < end:
                path = line.split(maxsplit=5)[5].strip()
    if not hasattr(library, "simcuVersion") or os.environ.get("SIMCU_NODE") is None:
        sys.exit(f"{path} is not the simulated driver's client library")
    return library


cuda: Final = _load()


class RefusedError(Exception):
    """A driver call did not answer CUDA_SUCCESS."""


def call(name: str, *arguments: Any) -> int:
    """Call the driver; whole numbers travel with 64 bits, which the calls used here take or ignore."""
    given = [ctypes.c_uint64(value) if isinstance(value, int) else value for value in arguments]
    code: int = getattr(cuda, name)(*given)
    return code


def ok(name: str, *arguments: Any) -> None:
    """Call the driver and raise unless it succeeds."""
    code = call(name, *arguments)
    if code != 0:
        raise RefusedError(f"{name}: {code}")


def answer(name: str, *arguments: Any) -> int:
    """Call the driver for the number that it writes where its first argument points."""
    value = ctypes.c_uint64()
    ok(name, ctypes.byref(value), *arguments)
    return value.value


def start(device: int) -> None:
    """Initialise, and make the device's primary context current."""
    ok("cuInit", 0)
    ok("cuCtxSetCurrent", answer("cuDevicePrimaryCtxRetain", device))


def create(device: int, size: int = GRANULE) -> int:
    """Create physical memory that can be exported."""
    return answer("cuMemCreate", size, struct.pack("iiiiQQ", 1, POSIX, 1, device, 0, 0), 0)


def mapped(handle: int, size: int, *devices: int) -> int:
    """Reserve, map and open."""
    address = answer("cuMemAddressReserve", size, 0, 0, 0)
    ok("cuMemMap", address, size, 0, handle, 0)
    ok("cuMemSetAccess", address, size, b"".join(struct.pack("iii", 1, device, 3) for device in devices), len(devices))
    return address


def unmapped(address: int, size: int) -> None:
    """Undo `mapped`."""
    ok("cuMemUnmap", address, size)
    ok("cuMemAddressFree", address, size)


def create_team(devices: int, size: int = GRANULE) -> int:
    """Create a multicast object."""
    return answer("cuMulticastCreate", struct.pack("IIQQQ", devices, 0, size, POSIX, 0))


def export(handle: int) -> int:
    """Export as a file descriptor."""
    descriptor = ctypes.c_int(-1)
    ok("cuMemExportToShareableHandle", ctypes.byref(descriptor), handle, POSIX, 0)
    return descriptor.value


def import_once(descriptor: int) -> int:
    """Import, and close the descriptor at once, as communicators do."""
    handle = answer("cuMemImportFromShareableHandle", descriptor, POSIX)
    os.close(descriptor)
    return handle


def read(address: int, size: int) -> bytes:
    """Copy device memory to the host."""
    data = ctypes.create_string_buffer(size)
    ok("cuMemcpyDtoH_v2", data, address, size)
    return data.raw


class IpcHandle(ctypes.Structure):
    """A handle of CUDA IPC, which travels by value."""

    _fields_ = (("reserved", ctypes.c_char * 64),)


def ipc_handle(name: str, of: int) -> bytes:
    """Give what `cuIpcGetMemHandle` or `cuIpcGetEventHandle` answers."""
    handle = IpcHandle()
    ok(name, ctypes.byref(handle), of)
    return bytes(handle)


def open_memory(handle: bytes) -> int:
    """Open another process's memory."""
    return answer("cuIpcOpenMemHandle_v2", IpcHandle.from_buffer_copy(handle), 1)


def write(address: int, data: bytes) -> None:
    """Copy host memory to the device."""
    ok("cuMemcpyHtoD_v2", address, data, len(data))


class Star:
    """Connections of rank 0 to the others, by a socket without a file."""

    def __init__(self) -> None:
        name = f"\0allranks-star-{os.environ['MASTER_PORT']}-{os.getppid()}"
        self._links: list[socket.socket] = []
        if RANK == 0:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
                listening.bind(name)
                listening.listen(SIZE)
                self._links = [listening.accept()[0] for _ in range(SIZE - 1)]
            return
        while not self._links:
            link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                link.connect(name)
                self._links.append(link)
            except ConnectionRefusedError:
                link.close()
                os.sched_yield()

    def give(self, data: bytes, descriptor: int | None = None) -> None:
        """Rank 0: send to all others."""
        rights = [] if descriptor is None else [descriptor]
        for link in self._links:
            link.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", rights))] if rights else [])

    def take(self) -> tuple[bytes, int]:
        """Other ranks: receive; raises if rank 0 is gone."""
        data, descriptors, _, _ = socket.recv_fds(self._links[0], 4096, 1)
        if not data:
            raise ConnectionError("rank 0 is gone")
        return data, descriptors[0] if descriptors else -1

    def share(self, descriptor: int) -> int:
        """Rank 0 gives a copy of its descriptor to all; give one's own."""
        if RANK == 0:
            self.give(b"descriptor", descriptor)
            return descriptor
        return self.take()[1]

    def barrier(self) -> None:
        """Wait for all; raises if somebody is gone."""
        for link in self._links:
            if RANK != 0:
                link.send(b"here")
            if not link.recv(4096):
                raise ConnectionError("a rank is gone")
        if RANK == 0:
            self.give(b"all")

    def wait_for_the_end(self) -> None:
        """Other ranks: wait until rank 0 has ended."""
        while self._links[0].recv(4096):
            pass
