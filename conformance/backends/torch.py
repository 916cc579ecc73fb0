"""torch.distributed under test: gloo, on host memory.

The communicator is the default process group, made for each life of it over a TCP store of rank 0's on loopback.
``all_reduce`` works in place only: out of place, the operand is copied to
the output first. There is no one-sided access: a put is a header and the bytes, sent by ``isend``; the peer receives
them into its region when it waits for the signal, which is a header alone.

``new_group`` has to be called by all ranks, so there are no groups that only their members know of; with
``use_local_synchronization`` there are, and `LocalGroupsBackend` offers them.
"""

from __future__ import annotations

import ctypes
import datetime
import importlib.util
import os
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
_SIGNAL: Final = -1  # in a header, where a size would be


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
        store: Any = None
        if context.rank == 0:
            store = distributed.TCPStore(_LOOPBACK, 0, is_master=True, wait_for_workers=False, timeout=timeout)
        port = context.exchange(store.port if store is not None else 0, "torch: port of the store")[0]
        if store is None:
            store = distributed.TCPStore(_LOOPBACK, port, is_master=False, timeout=timeout)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what is still to come in torch; nothing that a user could act on
            distributed.init_process_group(
                "gloo", store=store, rank=context.rank, world_size=context.rank_count, timeout=timeout
            )
        return TorchCommunicator(torch, distributed, context.rank, context.rank_count, store)


class LocalGroupsBackend(TorchBackend):
    """The same, with groups that are made by their members alone."""

    name = "torch-local-groups"

    def capabilities(self, context: RankContext) -> frozenset[str]:
        """Groups of some ranks, too."""
        return super().capabilities(context) | {"subsets"}


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
        self.sent: list[tuple[Any, Any]] = []  # what is on its way, with its tensor

    def put(self, peer: int, destination_offset_bytes: int, source_address: int, size_bytes: int) -> None:
        """Send bytes of this rank, and where they belong in the peer's region."""
        self._send(peer, self.owner.torch.tensor([destination_offset_bytes, size_bytes]))
        self._send(peer, self.owner.tensor(source_address, size_bytes, "uint8").clone())

    def signal(self, peer: int) -> None:
        """Send a header that says no more than that."""
        self._send(peer, self.owner.torch.tensor([0, _SIGNAL]))

    def wait(self, peer: int) -> None:
        """Take in what the peer has put, up to its next signal."""
        header = self.owner.torch.zeros(2, dtype=self.owner.torch.int64)
        while True:
            self.owner.distributed.recv(header, src=peer, group=self.group, tag=self.tag)
            offset, size = header.tolist()
            if size == _SIGNAL:
                break
            region = self.owner.tensor(self.address + offset, size, "uint8")
            self.owner.distributed.recv(region, src=peer, group=self.group, tag=self.tag)
        self.sent = [(work, tensor) for work, tensor in self.sent if not work.is_completed()]

    def _send(self, peer: int, tensor: Any) -> None:
        work = self.owner.distributed.isend(tensor, dst=peer, group=self.group, tag=self.tag)
        self.sent.append((work, tensor))

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

    def __init__(self, torch: Any, distributed: Any, rank: int, rank_count: int, store: Any) -> None:
        self.torch = torch
        self.distributed = distributed
        self.rank = rank
        self.rank_count = rank_count
        self.store = store
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
        self._open()
        self.distributed.barrier()
        self.connected += 1
        return TorchChannels(self, None, self.connected, address)

    def connect_among(self, members: tuple[int, ...], address: int, size_bytes: int) -> TorchChannels:
        """Make a group of the members, which are the only ones to call this."""
        self._open()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            group = self.distributed.new_group(list(members), use_local_synchronization=True)
        return _Subset(self, group, 0, address)

    def all_reduce(self, send: int, receive: int, count: int, dtype: str, operation: str) -> None:
        """Reduce by torch.distributed.all_reduce."""
        self._open()
        self._known(dtype)
        result = self.tensor(receive, count, dtype)
        if send != receive:
            result.copy_(self.tensor(send, count, dtype))
        self.distributed.all_reduce(result, getattr(self.distributed.ReduceOp, _OPERATIONS[operation]))

    def all_gather(self, send: int, receive: int, count: int, dtype: str) -> None:
        """Gather by torch.distributed.all_gather, into views of the output."""
        self._open()
        self._known(dtype)
        size = count * ITEM_BYTES[dtype]
        parts = [self.tensor(receive + rank * size, count, dtype) for rank in range(self.rank_count)]
        self.distributed.all_gather(parts, self.tensor(send, count, dtype))

    def _open(self) -> None:
        if self.store is None:
            raise UsageError("the communicator is closed")

    @staticmethod
    def _known(dtype: str) -> None:
        if dtype in _DECLINED:
            raise UsageError(f"dtype={dtype!r}: gloo has no such type")

    def close(self) -> None:
        """Destroy the process group."""
        if self.store is not None:
            self.store = None
            self.distributed.destroy_process_group()
