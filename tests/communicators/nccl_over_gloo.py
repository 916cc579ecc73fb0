"""What backend torch-nccl does with tensors, on host memory and over gloo: for a machine without GPUs."""

from __future__ import annotations

import ctypes
import importlib
import os
from typing import Any

from allranks.conformance.backend import MemorySpace, RankContext
from allranks.conformance.backends.nccl import NcclBackend, NcclCommunicator, typed
from allranks.conformance.data import ITEM_BYTES


class HostTensors(NcclCommunicator):
    """One rank, whose tensors are views of host memory."""

    def __init__(self, torch: Any, distributed: Any) -> None:
        super().__init__(torch, distributed, 0)
        self.device = torch.device("cpu")

    def tensor(self, address: int, count: int, dtype: str) -> Any:
        """Give host memory as a tensor."""
        if count == 0:
            return super().tensor(address, count, dtype)
        memory = (ctypes.c_char * (count * ITEM_BYTES[dtype])).from_address(address)
        return typed(self.torch, self.torch.frombuffer(memory, dtype=self.torch.uint8), dtype)

    def _done(self) -> None:
        """Gloo is done on return."""


class OverGloo(NcclBackend):
    """The backend, with another transport."""

    name = "nccl-over-gloo"
    driver = "sim"
    memory_spaces: tuple[MemorySpace, ...] = ("host",)

    def __init__(self) -> None:
        self.store: Any = None

    def prepare(self) -> None:
        """Import torch."""
        importlib.import_module("torch.distributed")

    def open(self, context: RankContext) -> NcclCommunicator:
        """Make the default process group."""
        import torch
        from torch import distributed

        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        self.store = self._store(context, distributed)
        distributed.init_process_group("gloo", store=self.store, rank=context.rank, world_size=context.rank_count)
        return HostTensors(torch, distributed)
