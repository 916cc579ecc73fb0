"""Communicators in device memory, one rank a process: by the driver's copies, and what ranks exchange in between.

For world `processes` with ``--driver cuda``. Right and slow; and some that are wrong.
"""

from __future__ import annotations

import os

import numpy as np

from allranks.conformance import data
from allranks.conformance.backend import RankContext
from allranks.conformance.worlds.hardware import DISABLING

_BITS = {"bfloat16": "uint16"}


class DeviceCommunicator:
    """One rank; it reads and writes its own device's memory."""

    def __init__(self, context: RankContext) -> None:
        self.context = context
        self.there = True

    def _everybody(self, send: int, count: int, dtype: str) -> list[bytes]:
        if not self.there:
            raise RuntimeError("closed")
        mine = self.context.driver.copy_from_device(send, count * data.ITEM_BYTES[dtype])
        parts = self.context.exchange(mine, "device: parts")
        if len({len(part) for part in parts}) > 1:
            raise ValueError("ranks bring different counts")
        return parts

    def write(self, receive: int, result: bytes) -> None:
        """Write a result."""
        self.context.driver.copy_to_device(receive, result)

    def all_reduce(self, send: int, receive: int, count: int, dtype: str, operation: str) -> None:
        """Reduce in the order of ranks."""
        parts = [np.frombuffer(part, _BITS.get(dtype, dtype)) for part in self._everybody(send, count, dtype)]
        self.write(receive, data.reduced(parts, dtype, operation).tobytes())

    def all_gather(self, send: int, receive: int, count: int, dtype: str) -> None:
        """Gather in the order of ranks."""
        self.write(receive, b"".join(self._everybody(send, count, dtype)))

    def close(self) -> None:
        """Do no more."""
        self.there = False


class DeviceBackend:
    """The right one."""

    name = "device"
    driver = "cuda"
    kind: type[DeviceCommunicator] = DeviceCommunicator

    def capabilities(self, context: RankContext) -> frozenset[str]:
        """Say what there is."""
        return frozenset({"all_reduce", "all_gather"})

    def open(self, context: RankContext) -> DeviceCommunicator:
        """Make one rank's communicator, on the device of its own number."""
        assert (context.memory_space, context.device) == ("device", context.rank)
        return self.kind(context)


class _Beyond(DeviceCommunicator):
    def write(self, receive: int, result: bytes) -> None:
        """Write one byte more."""
        super().write(receive, result + b"\1")


class WritesBeyond(DeviceBackend):
    """Writes beside its output."""

    name = "writes-beyond"
    kind = _Beyond


class _Refuses(DeviceCommunicator):
    def all_reduce(self, send: int, receive: int, count: int, dtype: str, operation: str) -> None:
        """Fail, and say which process does."""
        raise OSError(f"process {os.getpid()}")


class Refuses(DeviceBackend):
    """Fails in every reduction."""

    name = "refuses"
    kind = _Refuses


class _TellsEnvironment(DeviceCommunicator):
    def all_reduce(self, send: int, receive: int, count: int, dtype: str, operation: str) -> None:
        """Say what this process's environment has of the variables that disable multicast."""
        raise OSError(" ".join(f"{name}={os.environ.get(name)}" for name in DISABLING))


class TellsEnvironment(DeviceBackend):
    """Tells what a rank's process has in its environment."""

    name = "tells-environment"
    kind = _TellsEnvironment
