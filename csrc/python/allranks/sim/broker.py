"""Brokers: one simulated host for the programs of several real processes.

A broker is part of the process that starts it. Programs come to it by the client library, `client_folder()`, which is
named as the real driver is, and by two variables of their environment, `Broker.environment`.
"""

from __future__ import annotations

import ctypes
import functools
import json
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal

from allranks.errors import UsageError
from allranks.sim.machines import Machine
from allranks.sim.node import library_path

NODE_VARIABLE: Final = "SIMCU_NODE"
RANK_VARIABLE: Final = "SIMCU_RANK"
# Read by `allranks sim run`, and by a driver that is part of the program itself.
FAULTS_VARIABLE: Final = "SIMCU_FAULTS"

HostMemory = Literal["kernel", "socket"]
_HOST_MEMORY: Final[tuple[HostMemory, ...]] = ("kernel", "socket")


class _Machine(ctypes.Structure):
    _fields_ = (
        ("struct_bytes", ctypes.c_size_t),
        ("name", ctypes.c_char * 64),
        ("device_count", ctypes.c_int),
        ("compute_capability_major", ctypes.c_int),
        ("compute_capability_minor", ctypes.c_int),
        ("multiprocessor_count", ctypes.c_int),
        ("blocks_per_multiprocessor", ctypes.c_int),
        ("lanes", ctypes.c_int),
        ("multicast_supported", ctypes.c_int),
        ("fabric_handle_supported", ctypes.c_int),
        ("fabric_handle_permitted", ctypes.c_int),
        ("peer_access", ctypes.c_int),
        ("memory_bytes", ctypes.c_uint64),
        ("allocation_granularity_bytes", ctypes.c_uint64),
        ("multicast_granularity_minimum_bytes", ctypes.c_uint64),
        ("multicast_granularity_recommended_bytes", ctypes.c_uint64),
        ("multicast_capacity_bytes", ctypes.c_uint64),
        ("multicast_charge", ctypes.c_int),
        ("multicast_charge_rounding_bytes", ctypes.c_uint64),
        ("binding_on_free", ctypes.c_int),
        ("driver_version", ctypes.c_int),
    )


class _Options(ctypes.Structure):
    _fields_ = (
        ("struct_bytes", ctypes.c_size_t),
        ("host_memory", ctypes.c_int),
        ("faults", ctypes.c_char_p),
    )


def client_folder() -> Path:
    """Give the folder that holds the client library, and what sits on it, under the real libraries' names only."""
    return Path(__file__).parent / "run"


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(library_path()))
    handle, text = ctypes.c_void_p, ctypes.c_char_p
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "simcuBrokerStart": (handle, [ctypes.POINTER(_Machine), ctypes.POINTER(_Options)]),
        "simcuBrokerAddress": (text, [handle]),
        "simcuBrokerProgress": (ctypes.c_uint64, [handle]),
        "simcuBrokerAtRest": (ctypes.c_int, [handle]),
        "simcuBrokerReport": (text, [handle]),
        "simcuBrokerStop": (None, [handle]),
        "simcuBrokerDestroy": (None, [handle]),
        "simcuLastError": (text, []),
        "cuGetErrorName": (ctypes.c_int, [ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


@functools.cache
def error_name(code: int) -> str:
    """Give the name of a ``CUresult``."""
    name = ctypes.c_char_p()
    _library().cuGetErrorName(code, ctypes.byref(name))
    return name.value.decode() if name.value else f"CUresult {code}"


def _machine(machine: Machine) -> _Machine:
    fields = machine.as_fields()
    name = fields.pop("name").encode()
    if len(name) >= 64:
        raise UsageError(f"name={machine.name!r}: at most 63 bytes")
    for field, value in fields.items():
        limit = 1 << (31 if dict(_Machine._fields_)[field] is ctypes.c_int else 64)
        if not 0 <= value < limit:
            raise UsageError(f"{field}={value}: from 0 to {limit - 1}")
    return _Machine(struct_bytes=ctypes.sizeof(_Machine), name=name, **fields)


class Broker:
    """A simulated host that clients in other processes call.

    Parameters
    ----------
    machine : Machine
        What it is made from.
    host_memory : {"kernel", "socket"}
        How copies reach the memory of clients: by the kernel, and over their connections where it forbids that; or
        always over their connections.
    faults : sequence of str
        What goes wrong, each ``RANK:CALL:K=ACTION``: the K-th CALL (from 0; ``*`` for any) of each process of RANK
        (``*`` for all) fails with an error of cuda.h by name or number, is delayed (``delay:MILLISECONDS``), or is
        where the process is killed by SIGKILL: ``kill``, before the call is carried out, or ``kill-after``, once it
        was.

    Raises
    ------
    allranks.errors.UsageError
        If the machine is not one that can be simulated, or a fault cannot be understood.
    """

    def __init__(
        self,
        machine: Machine,
        *,
        host_memory: HostMemory = "kernel",
        faults: Sequence[str] = (),
    ) -> None:
        options = _Options(
            struct_bytes=ctypes.sizeof(_Options),
            host_memory=_HOST_MEMORY.index(host_memory),
            faults=";".join(faults).encode(),
        )
        described = _machine(machine)
        self._handle: int | None = _library().simcuBrokerStart(ctypes.byref(described), ctypes.byref(options))
        if self._handle is None:
            raise UsageError(_library().simcuLastError().decode())

    def __enter__(self) -> Broker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def environment(self, rank: int) -> dict[str, str]:
        """Give the variables by which a process with this rank comes to the node."""
        address: bytes = _library().simcuBrokerAddress(self._handle)
        return {NODE_VARIABLE: address.decode(), RANK_VARIABLE: str(rank)}

    @property
    def progress(self) -> int:
        """A number that changes whenever a client comes, goes, calls or is answered."""
        return int(_library().simcuBrokerProgress(self._handle))

    @property
    def at_rest(self) -> bool:
        """Whether every call that a client is in waits, and has no time-out."""
        return bool(_library().simcuBrokerAtRest(self._handle))

    def report(self) -> dict[str, Any]:
        """Give all that is known of the clients so far, as ``simcu_broker.h`` describes it."""
        text: bytes = _library().simcuBrokerReport(self._handle)
        report: dict[str, Any] = json.loads(text.decode(errors="replace"))
        return report

    def stop(self) -> None:
        """Hang up on every client, and wait until all that they had is given back."""
        _library().simcuBrokerStop(self._handle)

    def close(self) -> None:
        """End the node; nothing can be asked of it any more."""
        if self._handle is not None:
            _library().simcuBrokerDestroy(self._handle)
            self._handle = None
