"""torch.distributed under test: NCCL, on real GPUs.

The communicator is the default process group, made for each life of it over a TCP store of rank 0's on loopback, and
bound to the rank's device, so that NCCL's own communicator is there when `open` returns. Tensors are views of the
user's memory, which NCCL is handed as it is. ``all_reduce`` works in place only: out of place, the operand is copied
to the output first, on the device. A call returns when its stream has done it.

torch's own watch over NCCL is turned off: a rank that hangs stays where it is, and the world's deadline judges it.

There are no channels. NCCL has send and receive, and no one-sided access: a put would be a send that the peer receives
when it waits. Both are work on the stream of the group, in the order of the calls, and a send of more than NCCL has
buffers for ends with its receive only. So ranks that signal all their peers first and then wait for them one by one,
as they may, would wait for ever from three ranks on, by the fault of this file and not of NCCL.
"""

from __future__ import annotations

import datetime
import functools
import importlib.util
import os
import runpy
import warnings
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from allranks.conformance.backend import MemorySpace, RankContext
from allranks.conformance.data import ITEM_BYTES
from allranks.conformance.narrowing import Narrowing
from allranks.conformance.worlds.hardware import gpus, guarded, in_child, kernel_module
from allranks.errors import UsageError

_LOOPBACK: Final = "127.0.0.1"
_OPERATIONS: Final = {"sum": "SUM", "prod": "PRODUCT", "min": "MIN", "max": "MAX"}
_DECLINED: Final = ("uint32", "uint64")
# Longer than any run: the world's deadline comes first.
_NEVER: Final = datetime.timedelta(days=7)
_ASK_S: Final = 120.0
_ASK_NCCL: Final = "import torch; print('.'.join(map(str, torch.cuda.nccl.version())))"
# What torch and NCCL are told unless the user has told them: all ranks are on this machine; no thread of torch's ends
# a process, or a communicator, because something takes long.
_SETTINGS: Final = {
    "NCCL_SOCKET_IFNAME": "lo",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    "TORCH_NCCL_ENABLE_MONITORING": "0",
}


class NcclBackend:
    """torch.distributed with the NCCL backend."""

    name = "torch-nccl"
    world = "processes"
    driver = "cuda"
    memory_spaces: tuple[MemorySpace, ...] = ("device",)
    narrowings = (
        Narrowing(
            requirement="COLL-1",
            reason="torch hands NCCL no unsigned types of 32 and 64 bits: it raises 'Input tensor data type is not "
            "supported for NCCL process group'",
            source="pytorch/pytorch, torch/csrc/distributed/c10d/NCCLUtils.hpp, ncclDataType",
            dtypes=_DECLINED,
        ),
        Narrowing(
            requirement="RDV-5",
            reason="the count has to be the same on all ranks, and what happens else is undefined",
            source="NCCL user guide 2.28, Collective Operations",
            unequal_counts=True,
        ),
    )

    def __init__(self) -> None:
        if importlib.util.find_spec("torch") is None:
            raise UsageError("backend='torch-nccl': torch is not installed (pip install torch)")
        built = built_with()
        if built.get("cuda") is None:
            version = built.get("__version__", "of an unknown version")
            raise UsageError(f"backend='torch-nccl': this torch ({version}) was built without CUDA")
        self.store: Any = None  # of the last group: other ranks may still be at its end

    def prepare(self) -> None:
        """Import torch, which takes seconds, before ranks are made; CUDA is left alone, for a fork would lose it."""
        _torch()

    def versions(self) -> dict[str, str]:
        """Say which torch, NCCL, driver and GPUs these are; none of them is asked in this process."""
        found = gpus()
        return {
            "library": f"PyTorch {metadata.version('torch')}",
            "transport": f"NCCL {_nccl_version()}",
            "runtime": f"CUDA {built_with().get('cuda')}",
            "driver": f"{kernel_module() or 'unknown'} (CUDA {found.cuda})",
            "GPUs": found.described,
        }

    def capabilities(self, context: RankContext) -> frozenset[str]:
        """Collectives; torch says nothing of what it does inside."""
        return frozenset({"all_reduce", "all_gather"})

    def open(self, context: RankContext) -> NcclCommunicator:
        """Make the default process group, of the ranks of this run."""
        if guarded(os.environ) != dict(os.environ):
            raise UsageError("backend='torch-nccl': multicast is not disabled in the environment of this process")
        for name, value in _SETTINGS.items():
            os.environ.setdefault(name, value)
        torch, distributed = _torch()
        torch.cuda.set_device(context.device)
        self.store = self._store(context, distributed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what is still to come in torch; nothing that a user could act on
            distributed.init_process_group(
                "nccl",
                store=self.store,
                rank=context.rank,
                world_size=context.rank_count,
                timeout=_NEVER,
                device_id=torch.device("cuda", context.device),
            )
        return NcclCommunicator(torch, distributed, context.device)

    @staticmethod
    def _store(context: RankContext, distributed: Any) -> Any:
        timeout = datetime.timedelta(seconds=context.timeout_s)
        store: Any = None
        if context.rank == 0:
            store = distributed.TCPStore(_LOOPBACK, 0, is_master=True, wait_for_workers=False, timeout=timeout)
        port = context.exchange(store.port if store is not None else 0, "torch: port of the store")[0]
        if store is None:
            store = distributed.TCPStore(_LOOPBACK, port, is_master=False, timeout=timeout)
        return store


@functools.cache
def built_with() -> dict[str, Any]:
    """Give what the installed torch says of its making, without importing it; empty: it does not say."""
    spec = importlib.util.find_spec("torch")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        file = Path(folder) / "version.py"
        if file.is_file():
            return runpy.run_path(str(file))
    return {}


def _nccl_version() -> str:
    """Ask a child process which NCCL torch has loaded."""
    asked = in_child(_ASK_NCCL, timeout_s=_ASK_S)
    lines = asked.stdout.split() if asked is not None and asked.returncode == 0 else []
    return lines[-1] if lines else "of an unknown version"


def _torch() -> tuple[Any, Any]:
    import torch
    from torch import distributed

    if not distributed.is_available() or not distributed.is_nccl_available():
        raise UsageError("backend='torch-nccl': this torch was built without NCCL")
    return torch, distributed


class DeviceBytes:
    """Device memory as others can look at it: ``__cuda_array_interface__``, version 3, of bytes.

    Source: Numba documentation, CUDA Array Interface (Version 3).
    """

    def __init__(self, address: int, size_bytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size_bytes,),
            "typestr": "|u1",
            "data": (address, False),
            "strides": None,
            "version": 3,
        }


def typed(torch: Any, raw: Any, dtype: str) -> Any:
    """Give a tensor of bytes as one of elements, which is the same memory."""
    return raw.view(getattr(torch, dtype))


class NcclCommunicator:
    """One rank of the default process group."""

    def __init__(self, torch: Any, distributed: Any, device: int) -> None:
        self.torch = torch
        self.distributed = distributed
        self.device = torch.device("cuda", device)
        self.there = True

    def tensor(self, address: int, count: int, dtype: str) -> Any:
        """Give device memory as a tensor, which owns nothing of it."""
        if count == 0:
            return self.torch.empty(0, dtype=getattr(self.torch, dtype), device=self.device)
        raw = self.torch.as_tensor(DeviceBytes(address, count * ITEM_BYTES[dtype]), device=self.device)
        if raw.data_ptr() != address:
            raise RuntimeError(f"torch has copied what lies at {address:#x} instead of looking at it")
        return typed(self.torch, raw, dtype)

    def all_reduce(self, send: int, receive: int, count: int, dtype: str, operation: str) -> None:
        """Reduce by torch.distributed.all_reduce."""
        self._check(dtype)
        result = self.tensor(receive, count, dtype)
        if send != receive:
            result.copy_(self.tensor(send, count, dtype))
        self.distributed.all_reduce(result, getattr(self.distributed.ReduceOp, _OPERATIONS[operation]))
        self._done()

    def all_gather(self, send: int, receive: int, count: int, dtype: str) -> None:
        """Gather by torch.distributed.all_gather_into_tensor; in place where the operand is the rank's part of it."""
        self._check(dtype)
        ranks = self.distributed.get_world_size()
        result = self.tensor(receive, count * ranks, dtype)
        self.distributed.all_gather_into_tensor(result, self.tensor(send, count, dtype))
        self._done()

    def _done(self) -> None:
        """Wait until the calling thread's stream has come to its end, which waits for NCCL's."""
        self.torch.cuda.current_stream(self.device).synchronize()

    def _check(self, dtype: str) -> None:
        if not self.there:
            raise UsageError("the communicator is closed")
        if dtype in _DECLINED:
            raise UsageError(f"dtype={dtype!r}: torch hands NCCL no such type")

    def close(self) -> None:
        """Destroy the process group."""
        if self.there:
            self.there = False
            self.distributed.destroy_process_group()
