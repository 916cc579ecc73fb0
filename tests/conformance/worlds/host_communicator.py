"""A communicator in host memory, over sockets between its ranks; and some that are wrong, stop, or die.

Right, short and slow: there is one stream for each pair of ranks; what is put travels along it and is written where it
belongs when the other side waits for the signal.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import secrets
import socket
import struct
from collections.abc import Iterable

import numpy as np

from allranks.conformance import data
from allranks.conformance.backend import RankContext
from allranks.errors import UsageError

_HEAD = struct.Struct("<qQ")  # offset (-1: a signal), bytes


class Peers:
    """Streams to all other ranks."""

    def __init__(self, context: RankContext) -> None:
        self.context = context
        rank, count = context.rank, context.rank_count
        token = context.exchange(secrets.token_hex(8) if rank == 0 else "", "host: token")[0]
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(f"\0allranks-host-{token}-{rank}")
            listening.listen(count)
            context.barrier("host: listening")
            self.streams: dict[int, socket.socket] = {}
            for peer in range(rank):
                stream = self.streams[peer] = socket.socket(socket.AF_UNIX)
                stream.connect(f"\0allranks-host-{token}-{peer}")
                stream.sendall(struct.pack("<I", rank))
            for _ in range(rank + 1, count):
                stream, _ = listening.accept()
                self.streams[struct.unpack("<I", self.read(stream, 4))[0]] = stream

    @staticmethod
    def read(stream: socket.socket, size: int) -> bytes:
        """Read exactly so many bytes."""
        parts = bytearray()
        while len(parts) < size:
            part = stream.recv(min(size - len(parts), 1 << 20))
            if not part:
                raise ConnectionError("a peer has gone")
            parts += part
        return bytes(parts)

    def swap(self, mine: bytes) -> list[bytes]:
        """Give the bytes of every rank: with each peer the lower rank sends first."""
        rank = self.context.rank
        found = {rank: mine}
        for peer, stream in sorted(self.streams.items()):
            for sends in (rank < peer, rank > peer):
                if sends:
                    stream.sendall(struct.pack("<Q", len(mine)) + mine)
                else:
                    found[peer] = self.read(stream, struct.unpack("<Q", self.read(stream, 8))[0])
        return [found[peer] for peer in range(self.context.rank_count)]

    def close(self) -> None:
        """Close all streams."""
        for stream in self.streams.values():
            stream.close()
        self.streams = {}


class HostChannels:
    """Channels to the regions of all ranks."""

    def __init__(self, peers: Peers, address: int) -> None:
        self.peers = peers
        self.address = address

    def put(self, peer: int, destination_offset_bytes: int, source_address: int, size_bytes: int) -> None:
        """Send bytes for a place in the peer's region."""
        held = ctypes.string_at(source_address, size_bytes)
        self.peers.streams[peer].sendall(_HEAD.pack(destination_offset_bytes, size_bytes) + held)

    def signal(self, peer: int) -> None:
        """Send a signal."""
        self.peers.streams[peer].sendall(_HEAD.pack(-1, 0))

    def wait(self, peer: int) -> None:
        """Write what the peer has put, until its signal comes."""
        stream = self.peers.streams[peer]
        while True:
            offset, size = _HEAD.unpack(self.peers.read(stream, _HEAD.size))
            if offset < 0:
                return
            ctypes.memmove(self.address + offset, self.peers.read(stream, size), size)

    def close(self) -> None:
        """Nothing is held."""


class HostCommunicator:
    """One rank's side."""

    def __init__(self, context: RankContext) -> None:
        self.context = context
        self.peers = Peers(context)
        self.closed = False

    def _open(self) -> Peers:
        if self.closed:
            raise UsageError("communicator: it is closed")
        return self.peers

    def close(self) -> None:
        """Close the streams."""
        self.closed = True
        self.peers.close()

    def connect(self, address: int, size_bytes: int) -> HostChannels:
        """Get channels; every rank does."""
        self._open().swap(b"")
        return HostChannels(self.peers, address)

    def _operands(self, send: int, count: int, dtype: str) -> list[bytes]:
        operands = self._open().swap(ctypes.string_at(send, count * data.ITEM_BYTES[dtype]))
        if len(set(map(len, operands))) > 1:
            raise UsageError(f"count={count}: every rank brings as many elements")
        return operands

    def all_reduce(self, send: int, receive: int, count: int, dtype: str, operation: str) -> None:
        """Reduce over all ranks."""
        bits = np.uint16 if dtype == "bfloat16" else np.dtype(dtype)
        operands = [np.frombuffer(raw, bits) for raw in self._operands(send, count, dtype)]
        result = data.reduced(operands, dtype, operation).tobytes()
        ctypes.memmove(receive, result, len(result))

    def all_gather(self, send: int, receive: int, count: int, dtype: str) -> None:
        """Gather from all ranks."""
        result = b"".join(self._operands(send, count, dtype))
        ctypes.memmove(receive, result, len(result))


class HostBackend:
    """The backend of a kind of communicator."""

    name = "host"
    memory_spaces = ("host",)
    communicator: type[HostCommunicator] = HostCommunicator

    def capabilities(self, context: RankContext) -> frozenset[str]:
        """Say what there is."""
        return frozenset({"channels", "all_reduce", "all_gather"})

    def open(self, context: RankContext) -> HostCommunicator:
        """Make a communicator."""
        return self.communicator(context)


def unruly_sockets() -> Iterable[int]:
    """Give the descriptors of this process that are sockets."""
    for descriptor in itertools.chain(map(int, os.listdir("/proc/self/fd"))):
        try:
            if os.readlink(f"/proc/self/fd/{descriptor}").startswith("socket:"):
                yield descriptor
        except OSError:
            continue
