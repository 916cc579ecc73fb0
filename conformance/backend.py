"""The Backend protocol: what a communicator has to offer to be put under test.

A backend is a small class. It says what it can (`capabilities`), and opens a communicator for one rank. Of the
communicator's operations it needs only those that its capabilities name; what is missing is reported as *not
supported*, never as passed. Addresses are integers, sizes and offsets are in bytes. Memory is the device's by default;
a backend that works on host memory says so by an attribute: ``memory_spaces = ("host",)``.

This is version 1 of the protocol, and frozen: docs/protocol.md says what that means.
"""

from __future__ import annotations

import importlib
import os
import sys
import typing
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final, Literal, Protocol, TypeVar

from allranks.driver import Driver
from allranks.errors import UsageError

T = TypeVar("T")

MemorySpace = Literal["device", "host"]

# The version that a backend follows if it does not say so; and all that this suite can run.
PROTOCOL_VERSION: Final = 1
PROTOCOL_VERSIONS: Final = (1,)

CAPABILITIES: Final = {
    "channels": "connect, and channels that are written through",
    "multicast": "multicast groups that buffers are bound to",
    "all_reduce": "the collective",
    "all_gather": "the collective",
    "rendezvous_count": "the communicator counts the internal rendezvous that it enters",
    "subsets": "channels among some of the ranks",
    "channel_cache": "connecting the same regions again, while they are connected, sets nothing up",
}

# What a backend may have beside what it has to.
DECLARATIONS: Final = {
    "protocol_version": "the version of the protocol that it follows; 1",
    "memory_spaces": 'the memory that it works on, what it prefers first; ("device",)',
    "versions": "a method: which library it is, as a mapping of str to str",
    "narrowings": "where the library's contract asks for less, see `allranks.conformance.narrowing`; ()",
    "prepare": "a method that imports what takes long, called once in the process that ranks are forked from",
    "world": 'the world that it usually runs in; "threads" on device memory, else "processes"',
    "launcher": 'what it is usually started by in world mpi; "mpiexec"',
    "driver": 'the CUDA driver that its device memory is of: "cuda" is the real one; "sim"',
}


class Channels(Protocol):
    """One rank's channels to the registered regions of all ranks."""

    def put(self, peer: int, destination_offset_bytes: int, source_address: int, size_bytes: int) -> None:
        """Write device memory of this rank into the peer's region."""

    def signal(self, peer: int) -> None:
        """Tell the peer that all earlier puts to it are there."""

    def wait(self, peer: int) -> None:
        """Wait for the next signal of the peer."""

    def close(self) -> None:
        """Drop this rank's reference."""


class Binding(Protocol):
    """One rank's side of a buffer of every rank, bound at one offset of a multicast object."""

    @property
    def address(self) -> int:
        """Address through which stores reach the buffers of all ranks."""

    @property
    def offset_bytes(self) -> int:
        """Offset in the multicast object."""

    def store(self, offset_bytes: int, data: bytes) -> None:
        """Store bytes (a multiple of 4, aligned) at an offset of the buffers of all ranks."""

    def load_reduce(self, offset_bytes: int, count: int, dtype: str, operation: str) -> bytes:
        """Give the reduction over all ranks of `count` elements at an offset of the buffers."""

    def unbind(self) -> None:
        """Take the buffer out again; every rank does."""


class Group(Protocol):
    """One rank's side of a multicast object."""

    @property
    def capacity_bytes(self) -> int:
        """Bytes that can be bound."""

    def bind(self, address: int, size_bytes: int) -> Binding:
        """Bind a buffer; every rank brings its own."""

    def close(self) -> None:
        """Give the object back; every rank does."""


class Communicator(Protocol):
    """One rank's communicator. Only `close` is always needed."""

    def close(self) -> None:
        """Give everything back; a second call does nothing."""

    def connect(self, address: int, size_bytes: int) -> Channels:
        """Register a region, and get channels to those of all ranks. Capability: channels."""

    def connect_among(self, members: tuple[int, ...], address: int, size_bytes: int) -> Channels:
        """Get channels to the regions of some ranks, this one among them. Capability: subsets."""

    def open_group(self, capacity_bytes: int) -> Group:
        """Open a multicast group of all ranks. Capability: multicast."""

    def all_reduce(self, send: int, receive: int, count: int, dtype: str, operation: str) -> None:
        """Reduce `count` elements at the address `send` over all ranks into `receive`; done on return."""

    def all_gather(self, send: int, receive: int, count: int, dtype: str) -> None:
        """Gather `count` elements of each rank, in the order of ranks, into `receive`; done on return."""

    @property
    def rendezvous_count(self) -> int:
        """Internal rendezvous entered so far. Capability: rendezvous_count."""


class RankContext(Protocol):
    """What a world gives to a backend for one rank."""

    @property
    def rank(self) -> int:
        """This rank."""

    @property
    def rank_count(self) -> int:
        """Number of ranks."""

    @property
    def device(self) -> int:
        """Index of the rank's device; it is current in the calling thread. -1: the world has no devices."""

    @property
    def driver(self) -> Driver:
        """The CUDA driver that the world runs on; where there is none, whatever is asked of it raises `UsageError`."""

    @property
    def memory_space(self) -> MemorySpace:
        """Which memory the user's buffers are in, and so what an address is one of."""

    @property
    def timeout_s(self) -> float:
        """Deadline for every blocking call, in seconds of the world's clock."""

    def exchange(self, value: T, what: str, members: tuple[int, ...] | None = None) -> list[T]:
        """Give the value of every rank, or of every member, in the order of ranks; each of them has to call it."""

    def barrier(self, what: str) -> None:
        """Wait for every rank; every rank has to call it."""

    def shared(self, key: Hashable, make: Callable[[], T]) -> T:
        """Give the one object of that key that the ranks of this process share; the first asker makes it."""


class Backend(Protocol):
    """A communicator library under test; beside what is below it may have what `DECLARATIONS` lists."""

    name: str

    def capabilities(self, context: RankContext) -> frozenset[str]:
        """Say which of `CAPABILITIES` there are in this world."""

    def open(self, context: RankContext) -> Communicator:
        """Make the communicator of one rank; every rank does."""


def protocol_of(backend: Backend) -> int:
    """Give the version of the protocol that a backend follows.

    Raises
    ------
    allranks.errors.UsageError
        If this suite does not know it.
    """
    found: Any = getattr(backend, "protocol_version", PROTOCOL_VERSION)
    if type(found) is not int or found not in PROTOCOL_VERSIONS:
        known = ", ".join(map(str, PROTOCOL_VERSIONS))
        raise UsageError(f"backend={backend.name!r}: protocol_version={found!r}: this suite knows {known}")
    return found


def spaces_of(backend: Backend) -> tuple[MemorySpace, ...]:
    """Give the memory spaces that a backend works on, those that it prefers first.

    Raises
    ------
    allranks.errors.UsageError
        If it names anything else.
    """
    found: Any = getattr(backend, "memory_spaces", ("device",))
    known = typing.get_args(MemorySpace)
    if not isinstance(found, tuple) or not found or not set(found) <= set(known):
        shown = ", ".join(map(repr, known))
        raise UsageError(f"backend={backend.name!r}: memory_spaces={found!r}: wants a tuple of some of {shown}")
    return found


def versions_of(backend: Backend) -> dict[str, str]:
    """Give the versions of the library that a backend reports; empty: it does not.

    Raises
    ------
    allranks.errors.UsageError
        If it reports anything but a mapping of str to str, or raises.
    """
    where = f"backend={backend.name!r}: versions()"
    try:
        found: Any = getattr(backend, "versions", dict)()
    except (Exception, SystemExit) as error:  # the user's own code
        raise UsageError(f"{where} raises {type(error).__name__}: {error}") from error
    if not isinstance(found, Mapping) or not all(isinstance(text, str) for pair in found.items() for text in pair):
        raise UsageError(f"{where} gives {found!r}: wants a mapping of str to str")
    return dict(found)


_SHIPPED: Final = {
    "refimpl": "allranks.conformance.backends.refimpl:ReferenceBackend",
    "plain": "allranks.conformance.backends.plain:PlainBackend",
    "mpi": "allranks.conformance.backends.mpi:MpiBackend",
    "torch": "allranks.conformance.backends.torch:TorchBackend",
    "torch-local-groups": "allranks.conformance.backends.torch:LocalGroupsBackend",
    "torch-nccl": "allranks.conformance.backends.nccl:NcclBackend",
}


def load_backend(name: str) -> Backend:
    """Find a backend by name, or as ``module:Class``; the module may lie in the current folder.

    After it may come a fault that it is given: ``mpi+corrupt-byte``.

    Raises
    ------
    allranks.errors.UsageError
        If there is none, it cannot be imported, or it does not follow the protocol; the message says what is missing.
    """
    inner, plus, fault = name.rpartition("+")
    if plus:
        from allranks.conformance.corpus.faulty import FAULT_KINDS, FaultyBackend

        if fault not in FAULT_KINDS:
            raise UsageError(f"backend={name!r}: fault {fault!r}: known are {', '.join(FAULT_KINDS)}")
        return FaultyBackend(load_backend(inner), fault)
    target = _SHIPPED.get(name, name)
    module_name, colon, class_name = target.partition(":")
    if not colon:
        from allranks.conformance.corpus import MUTANTS, VARIANTS

        made = {**MUTANTS, **VARIANTS}.get(name)
        if made is not None:
            return made.make()
        known = f"{', '.join(sorted(_SHIPPED))}; unusual: {', '.join(VARIANTS)}; wrong on purpose: {', '.join(MUTANTS)}"
        raise UsageError(f"backend={name!r}: known are {known}; others are given as module:Class")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # last: a module of the current folder hides nothing that is installed
    try:
        found: Any = getattr(importlib.import_module(module_name), class_name)
    except (Exception, SystemExit) as error:
        said = str(error) if isinstance(error, ImportError | AttributeError) else f"{type(error).__name__}: {error}"
        raise UsageError(f"backend={name!r}: {said}") from error
    return make_backend(found, name)


def make_backend(found: Any, name: str = "") -> Backend:
    """Give the backend that a class makes, or that an object is.

    Raises
    ------
    allranks.errors.UsageError
        If it cannot be made, or does not follow the protocol; the message says what is missing.
    """
    kind = found if isinstance(found, type) else type(found)
    where = f"backend={name or kind.__name__!r}"
    for needed in ("capabilities", "open"):
        if not callable(getattr(found, needed, None)):
            raise UsageError(f"{where}: class {kind.__name__} has no method {needed}")
    try:
        backend: Backend = found() if isinstance(found, type) else found
    except UsageError:  # it says itself what it misses
        raise
    except (Exception, SystemExit) as error:  # the user's own code, which may raise anything
        raise UsageError(f"{where}: {kind.__name__}() raises {type(error).__name__}: {error}") from error
    if not isinstance(getattr(backend, "name", None), str):
        raise UsageError(f"{where}: class {kind.__name__} has no attribute name of type str")
    protocol_of(backend)
    spaces_of(backend)
    return backend
