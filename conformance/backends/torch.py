"""torch.distributed under test: gloo, on host memory.

The communicator is the default process group, made anew for each life of it over a TCP store of rank 0's on loopback.
The store serves group after group, each under a prefix of its own, as it serves torch's own groups. What a group had,
its connections and threads, gloo ends when nobody holds the group any more, and whoever lets go of it waits for two
ticks of gloo's event loop, 10 ms each. A thread does that here; when too many groups are on their way, the rank waits,
so one that never ends is seen.

``all_reduce`` works in place only: out of place, the operand is copied to the output first. There is no one-sided
access: a put goes out with the next signal, by ``isend``, and the peer writes it into its region when it waits for
that. What is small goes in one message of a fixed size.

``new_group`` has to be called by all ranks, so there are no groups that only their members know of; with
``use_local_synchronization`` there are, and `LocalGroupsBackend` offers them.
"""

from __future__ import annotations

import ctypes
import datetime
import importlib.util
import os
import secrets
import struct
import threading
import warnings
from importlib import metadata
from typing import Any, Final

from allranks.conformance.backend import MemorySpace, RankContext
from allranks.conformance.data import ITEM_BYTES
from allranks.conformance.narrowing import Narrowing
from allranks.errors import UsageError

_LOOPBACK: Final = "127.0.0.1"
_DOCUMENTATION: Final = "PyTorch 2.13, torch.distributed"
_OPERATIONS: Final = {"sum": "SUM", "prod": "PRODUCT", "min": "MIN", "max": "MAX"}
_DECLINED: Final = ("uint32", "uint64")
_LENGTH: Final = struct.Struct("<q")  # of all the pieces that come with a signal
_PIECE: Final = struct.Struct("<qq")  # where it belongs, and its size
_FRAME_BYTES: Final = 4096
_GROUPS_A_STORE: Final = 1000  # what groups have put into a store stays there
_MOST_ENDING: Final = 8


class TorchBackend:
    """torch.distributed with the gloo backend."""

    name = "torch"
    world = "processes"
    launcher = "torchrun"
    memory_spaces: tuple[MemorySpace, ...] = ("host",)
    narrowings = (
        Narrowing(
            requirement="COLL-1",
            reason="gloo has no unsigned types of 32 and 64 bits: it raises 'Invalid scalar type'",
            source="pytorch/pytorch, torch/csrc/distributed/c10d/ProcessGroupGlooDetail.hpp, GENERATE_ALL_TYPES",
            dtypes=_DECLINED,
        ),
        Narrowing(
            requirement="RDV-5",
            reason="tensors have to have the same size on all ranks, and whether that is so is not looked at",
            source=f"{_DOCUMENTATION}, all_gather: 'Currently only equal-sized tensors are supported'",
            unequal_counts=True,
        ),
    )

    def __init__(self) -> None:
        if importlib.util.find_spec("torch") is None:
            raise UsageError("backend='torch': torch is not installed (pip install torch)")
        self.stores = _Stores()
        self.ending = _Ending()

    def prepare(self) -> None:
        """Import torch, which takes seconds, before ranks are made."""
        _torch()

    def versions(self) -> dict[str, str]:
        """Say which torch it is."""
        return {"library": f"PyTorch {metadata.version('torch')}", "transport": "gloo"}

    def capabilities(self, context: RankContext) -> frozenset[str]:
        """No multicast, and no groups of some ranks; torch says nothing of what it does inside."""
        return frozenset({"channels", "all_reduce", "all_gather"})

    def open(self, context: RankContext) -> TorchCommunicator:
        """Make the default process group, of the ranks of this run."""
        torch, distributed = _torch()
        timeout = datetime.timedelta(seconds=context.timeout_s)
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all ranks are on this machine
        store = self.stores.next_of(context, distributed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what is still to come in torch; nothing that a user could act on
            distributed.init_process_group(
                "gloo", store=store, rank=context.rank, world_size=context.rank_count, timeout=timeout
            )
        return TorchCommunicator(torch, distributed, context.rank, context.rank_count, self.ending)


class LocalGroupsBackend(TorchBackend):
    """The same, with groups that are made by their members alone."""

    name = "torch-local-groups"

    def capabilities(self, context: RankContext) -> frozenset[str]:
        """Groups of some ranks, too."""
        return super().capabilities(context) | {"subsets"}


class _Stores:
    """One rank's side of the store that groups are made over; rank 0 serves it."""

    def __init__(self) -> None:
        self.store: Any = None
        self.mark = ""  # whose store this is: a rank may live on when the one that served it is gone
        self.groups = 0

    def next_of(self, context: RankContext, distributed: Any) -> Any:
        """Give the store for the next group of all ranks: a part of it that nobody has used."""
        timeout = datetime.timedelta(seconds=context.timeout_s)
        said: tuple[str, int, int] | None = None
        if context.rank == 0:
            if self.store is None or self.groups == _GROUPS_A_STORE:
                self.store = distributed.TCPStore(_LOOPBACK, 0, is_master=True, wait_for_workers=False)
                self.mark, self.groups = secrets.token_hex(8), 0
            self.groups += 1
            said = (self.mark, self.store.port, self.groups)
        told = context.exchange(said, "torch: the store")[0]
        assert told is not None  # rank 0 says it
        mark, port, number = told
        if mark != self.mark:
            self.store = distributed.TCPStore(_LOOPBACK, port, is_master=False, timeout=timeout)
            self.mark = mark
        self.store.set_timeout(timeout)
        return distributed.PrefixStore(f"group{number}", self.store)


class _Ending:
    """Lets go of process groups, each in a thread of its own."""

    def __init__(self) -> None:
        self._room = threading.Semaphore(_MOST_ENDING)

    def end(self, group: list[Any]) -> None:
        """Let go of what is in the list, which nothing else holds; waits when too many are on their way."""

        def let_go() -> None:
            group.clear()
            self._room.release()

        self._room.acquire()
        threading.Thread(target=let_go, name="allranks-torch-ending", daemon=True).start()


def _torch() -> tuple[Any, Any]:
    import torch
    from torch import distributed

    if not distributed.is_available():
        raise UsageError("backend='torch': this torch was built without torch.distributed")
    return torch, distributed


class TorchChannels:
    """Channels over messages between pairs of a group."""

    def __init__(self, owner: TorchCommunicator, group: Any, tag: int, address: int) -> None:
        self.owner = owner
        self.group = group
        self.tag = tag
        self.address = address
        self.held: dict[int, list[bytes]] = {}  # what was put since the last signal, by peer
        self.sent: list[tuple[Any, Any]] = []  # what is on its way, with its tensor

    def put(self, peer: int, destination_offset_bytes: int, source_address: int, size_bytes: int) -> None:
        """Keep bytes of this rank, and where they belong in the peer's region, for the next signal."""
        where = _PIECE.pack(destination_offset_bytes, size_bytes)
        self.held.setdefault(peer, []).append(where + ctypes.string_at(source_address, size_bytes))

    def signal(self, peer: int) -> None:
        """Send what was put: a frame with how much it is and the first of it, and the rest if there is any."""
        pieces = b"".join(self.held.pop(peer, ()))
        first = pieces[: _FRAME_BYTES - _LENGTH.size]
        self._send(peer, (_LENGTH.pack(len(pieces)) + first).ljust(_FRAME_BYTES, b"\0"))
        if len(pieces) > len(first):
            self._send(peer, pieces[len(first) :])

    def wait(self, peer: int) -> None:
        """Take in what the peer has put, up to its next signal."""
        frame = self._received(peer, _FRAME_BYTES)
        (size,) = _LENGTH.unpack_from(frame)
        pieces = frame[_LENGTH.size :][:size]
        if size > len(pieces):
            pieces += self._received(peer, size - len(pieces))
        while pieces:
            offset, size = _PIECE.unpack_from(pieces)
            ctypes.memmove(self.address + offset, pieces[_PIECE.size :], size)
            pieces = pieces[_PIECE.size + size :]
        self.sent = [(work, tensor) for work, tensor in self.sent if not work.is_completed()]

    def _send(self, peer: int, data: bytes) -> None:
        tensor = self.owner.torch.frombuffer(bytearray(data), dtype=self.owner.torch.uint8)
        work = self.owner.distributed.isend(tensor, dst=peer, group=self.group, tag=self.tag)
        self.sent.append((work, tensor))

    def _received(self, peer: int, size_bytes: int) -> bytes:
        data = bytearray(size_bytes)
        tensor = self.owner.torch.frombuffer(data, dtype=self.owner.torch.uint8)
        self.owner.distributed.recv(tensor, src=peer, group=self.group, tag=self.tag)
        return bytes(data)

    def close(self) -> None:
        """Wait until everything has left."""
        sent, self.sent = self.sent, []
        for work, _ in sent:
            work.wait()


class _Subset(TorchChannels):
    """Channels over a group of their own."""

    def close(self) -> None:
        """Give the group back, too."""
        super().close()
        if self.group is not None:
            group, self.group = self.group, None
            self.owner.distributed.destroy_process_group(group)


class TorchCommunicator:
    """One rank of the default process group."""

    def __init__(self, torch: Any, distributed: Any, rank: int, rank_count: int, ending: _Ending) -> None:
        self.torch = torch
        self.distributed = distributed
        self.rank = rank
        self.rank_count = rank_count
        self.ending = ending
        self.open = True
        self.connected = 0

    def tensor(self, address: int, count: int, dtype: str) -> Any:
        """Give host memory as a tensor, which owns nothing of it."""
        kind = getattr(self.torch, dtype)
        if count == 0:
            return self.torch.empty(0, dtype=kind)
        memory = (ctypes.c_char * (count * ITEM_BYTES[dtype])).from_address(address)
        return self.torch.frombuffer(memory, dtype=kind)

    def connect(self, address: int, size_bytes: int) -> TorchChannels:
        """Number the channels; there is nothing to register, but for ranks to meet."""
        self._check_open()
        self.distributed.barrier()
        self.connected += 1
        return TorchChannels(self, None, self.connected, address)

    def connect_among(self, members: tuple[int, ...], address: int, size_bytes: int) -> TorchChannels:
        """Make a group of the members, which are the only ones to call this."""
        self._check_open()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            group = self.distributed.new_group(list(members), use_local_synchronization=True)
        return _Subset(self, group, 0, address)

    def all_reduce(self, send: int, receive: int, count: int, dtype: str, operation: str) -> None:
        """Reduce by torch.distributed.all_reduce."""
        self._check_open()
        self._known(dtype)
        result = self.tensor(receive, count, dtype)
        if send != receive:
            result.copy_(self.tensor(send, count, dtype))
        self.distributed.all_reduce(result, getattr(self.distributed.ReduceOp, _OPERATIONS[operation]))

    def all_gather(self, send: int, receive: int, count: int, dtype: str) -> None:
        """Gather by torch.distributed.all_gather, into views of the output."""
        self._check_open()
        self._known(dtype)
        size = count * ITEM_BYTES[dtype]
        parts = [self.tensor(receive + rank * size, count, dtype) for rank in range(self.rank_count)]
        self.distributed.all_gather(parts, self.tensor(send, count, dtype))

    def _check_open(self) -> None:
        if not self.open:
            raise UsageError("the communicator is closed")

    @staticmethod
    def _known(dtype: str) -> None:
        if dtype in _DECLINED:
            raise UsageError(f"dtype={dtype!r}: gloo has no such type")

    def close(self) -> None:
        """Destroy the process group."""
        if self.open:
            self.open = False
            group = [self.distributed.group.WORLD]
            self.distributed.destroy_process_group()
            self.ending.end(group)
