"""Every two ranks have a socket between them, and a thread takes in what comes out of it.

So sending never waits for what the peer is doing, and a put is done when it arrives. Whatever waits has a deadline; a
mesh that misses one closes itself, and its peers fail at once, too. Addresses are integers, sizes are in bytes.
"""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct
import threading
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Final

import numpy as np

_HEADER: Final = struct.Struct("<BIQQ")  # kind, number of the channels, offset, size of what follows
_PART, _PUT, _SIGNAL = range(3)
_NUMBER: Final = struct.Struct("<Q")
_TIME: Final = struct.Struct("@ll")  # seconds and microseconds
_INTEGERS: Final = ("int8", "uint8", "int32", "uint32", "int64", "uint64")
_DTYPES: Final = {name: np.dtype(name) for name in (*_INTEGERS, "float16", "float32", "float64")}
_OPERATIONS: Final[dict[str, Callable[..., Any]]] = {
    "sum": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}


def listen() -> socket.socket:
    """Make a rank's socket for its peers to connect to; they have to be told its name, ``getsockname()``."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("")  # the kernel chooses a name that no file stands for
    listener.listen()
    return listener


def _receive(link: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    rest = memoryview(data)
    while rest:
        count = link.recv_into(rest)
        if count == 0:
            raise ConnectionError("closed by the peer")
        rest = rest[count:]
    return bytes(data)


class Mesh:
    """One rank's communicator.

    Parameters
    ----------
    rank : int
        This rank.
    listener : socket
        This rank's, made by `listen`. It may be closed when the mesh is there.
    names : list of bytes
        The names of all ranks' listeners.
    timeout_s : float
        Deadline for whatever waits.
    """

    def __init__(self, rank: int, listener: socket.socket, names: list[bytes], timeout_s: float) -> None:
        self.rank = rank
        self.size = len(names)
        self._timeout_s = timeout_s
        self._news = threading.Condition()
        self._parts: list[deque[bytes]] = [deque() for _ in names]
        self._signals: Counter[tuple[int, int]] = Counter()  # (number of the channels, peer)
        self._regions: dict[int, tuple[int, int]] = {}  # number of the channels: address and size
        self._gone: set[int] = set()
        self._connected = 0
        self._closed = False
        self._links = self._connect_all(listener, names)
        self._readers = [threading.Thread(target=self._read, args=pair, daemon=True) for pair in self._links.items()]
        for reader in self._readers:
            reader.start()

    def _connect_all(self, listener: socket.socket, names: list[bytes]) -> dict[int, socket.socket]:
        """Connect to the ranks before this one, and be connected to by those after it."""
        links: dict[int, socket.socket] = {}
        listener.settimeout(self._timeout_s)
        with contextlib.ExitStack() as undo:
            for peer in range(self.rank):
                links[peer] = undo.enter_context(socket.socket(socket.AF_UNIX))
                links[peer].connect(names[peer])
                links[peer].sendall(_NUMBER.pack(self.rank))
            for _ in range(self.rank + 1, self.size):
                link = undo.enter_context(listener.accept()[0])
                links[_NUMBER.unpack(_receive(link, _NUMBER.size))[0]] = link
            whole = int(self._timeout_s)
            for link in links.values():
                time = _TIME.pack(whole, int((self._timeout_s - whole) * 1_000_000))
                link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, time)  # threads read without any
            undo.pop_all()
        return links

    def _read(self, peer: int, link: socket.socket) -> None:
        """Take in what a peer sends, until one of the two closes."""
        try:
            while True:
                kind, number, offset, size = _HEADER.unpack(_receive(link, _HEADER.size))
                data = _receive(link, size)
                with self._news:
                    if kind == _PART:
                        self._parts[peer].append(data)
                    elif kind == _SIGNAL:
                        self._signals[number, peer] += 1
                    elif number in self._regions:
                        ctypes.memmove(self._regions[number][0] + offset, data, size)
                    self._news.notify_all()
        except OSError:
            with self._news:
                self._gone.add(peer)
                self._news.notify_all()

    def send(self, peer: int, kind: int, data: bytes = b"", *, number: int = 0, offset: int = 0) -> None:
        """Send a message to a peer."""
        self.check_open()
        try:
            self._links[peer].sendall(_HEADER.pack(kind, number, offset, len(data)) + data)
        except OSError as error:
            self.close()
            raise ConnectionError(f"rank {self.rank}: rank {peer} takes nothing in: {error}") from error

    def wait(self, peer: int, come: Callable[[], bool]) -> None:
        """Wait until something has come from a peer, or nothing can come."""
        with self._news:
            in_time = self._news.wait_for(lambda: come() or peer in self._gone, self._timeout_s)
            if come():
                return
        self.close()
        if in_time:
            raise ConnectionError(f"rank {self.rank}: rank {peer} has closed")
        raise TimeoutError(f"rank {self.rank}: nothing from rank {peer} in {self._timeout_s:g} s")

    def check_open(self) -> None:
        """Raise if the mesh is closed."""
        if self._closed:
            raise ValueError(f"rank {self.rank}: the mesh is closed")

    def exchange(self, data: bytes) -> list[bytes]:
        """Give what each rank brings, in the order of ranks. This is where ranks meet, and nowhere else."""
        self.check_open()
        for peer in self._links:
            self.send(peer, _PART, data)
        return [data if peer == self.rank else self._next_part(peer) for peer in range(self.size)]

    def _next_part(self, peer: int) -> bytes:
        parts = self._parts[peer]
        self.wait(peer, lambda: len(parts) > 0)
        return parts.popleft()

    def _operands(self, address: int, count: int, dtype: str) -> list[bytes]:
        """Give the operands of all ranks. Each rank sees all sizes, so an error is everybody's."""
        if dtype not in _DTYPES:
            raise ValueError(f"dtype={dtype!r}: known are {', '.join(_DTYPES)}")
        parts = self.exchange(ctypes.string_at(address, count * _DTYPES[dtype].itemsize))
        sizes = [len(part) for part in parts]
        if len(set(sizes)) > 1:
            raise ValueError(f"count={count}: ranks bring different counts; bytes by rank: {sizes}")
        return parts

    def all_gather(self, send: int, receive: int, count: int, dtype: str) -> None:
        """Write `count` elements of each rank to `receive`, in the order of ranks."""
        result = b"".join(self._operands(send, count, dtype))
        ctypes.memmove(receive, result, len(result))

    def all_reduce(self, send: int, receive: int, count: int, dtype: str, operation: str) -> None:
        """Write the sum, prod, min or max over all ranks to `receive`; each rank reduces in the order of ranks."""
        result, *others = (np.frombuffer(part, _DTYPES[dtype]) for part in self._operands(send, count, dtype))
        with np.errstate(over="ignore"):
            for other in others:
                result = _OPERATIONS[operation](result, other)
        ctypes.memmove(receive, result.tobytes(), result.nbytes)

    def connect(self, address: int, size_bytes: int) -> Channels:
        """Let all ranks write into a region of this one; each rank brings its own."""
        self.check_open()
        self._connected += 1  # the same on all ranks: each of them makes each of these calls
        number = self._connected
        with self._news:
            self._regions[number] = (address, size_bytes)  # before any peer knows that it may put
        sizes = [_NUMBER.unpack(part)[0] for part in self.exchange(_NUMBER.pack(size_bytes))]
        return Channels(self, number, sizes)

    def signals(self, number: int, peer: int) -> int:
        """Count the signals that a peer has given on channels of that number."""
        return self._signals[number, peer]

    def disconnect(self, number: int) -> None:
        """Let nobody write into the region any more; no peer takes part."""
        with self._news:
            self._regions.pop(number, None)

    def close(self) -> None:
        """Close all sockets and end all threads; a second call does nothing. No peer takes part."""
        if self._closed:
            return
        self._closed = True
        with self._news:
            self._regions.clear()
        for link in self._links.values():
            link.shutdown(socket.SHUT_RDWR)
        for reader in self._readers:
            reader.join()
        for link in self._links.values():
            link.close()


class Channels:
    """One rank's way into the regions of the others; made by `Mesh.connect`."""

    def __init__(self, mesh: Mesh, number: int, sizes: list[int]) -> None:
        self.mesh = mesh
        self.number = number
        self.sizes = sizes
        self.waited: Counter[int] = Counter()

    def put(self, peer: int, offset: int, source: int, size_bytes: int) -> None:
        """Write memory of this rank into the peer's region."""
        if not 0 <= offset <= offset + size_bytes <= self.sizes[peer]:
            raise ValueError(f"{size_bytes} bytes at offset {offset}: rank {peer}'s region has {self.sizes[peer]}")
        self.mesh.send(peer, _PUT, ctypes.string_at(source, size_bytes), number=self.number, offset=offset)

    def signal(self, peer: int) -> None:
        """Tell the peer that all earlier puts to it are there."""
        self.mesh.send(peer, _SIGNAL, number=self.number)

    def wait(self, peer: int) -> None:
        """Wait for the next signal of the peer."""
        self.mesh.check_open()
        self.waited[peer] += 1
        self.mesh.wait(peer, lambda: self.mesh.signals(self.number, peer) >= self.waited[peer])

    def close(self) -> None:
        """Let nobody write into this rank's region any more; no peer takes part."""
        self.mesh.disconnect(self.number)
