"""Faults around any communicator on host memory: what nobody wrote wrong is made wrong here, to see that it is found.

``mpi+corrupt-byte`` is backend `mpi` with one byte of a result changed. A fault strikes on the last rank, in groups of
two ranks and more, once in the life of a communicator; `slow` is none, and has to pass.
"""

from __future__ import annotations

import ctypes
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from allranks.conformance.backend import Backend, MemorySpace, RankContext
from allranks.conformance.data import ITEM_BYTES

# How much longer than a communicator's own deadline a delayed rank is away; the world's comes before that.
_AWAY: Final = 6.0
_SLOW_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultKind:
    """A fault.

    Parameters
    ----------
    what : str
        What goes wrong.
    requirements : tuple of str
        Which are broken by it; at least one of them has to be found so. Empty: it is none.
    """

    what: str
    requirements: tuple[str, ...]


FAULT_KINDS: Final = {
    "drop-call": FaultKind(
        what="one rank returns from a collective without having entered it", requirements=("RDV-1",)
    ),
    "delay": FaultKind(what="one rank enters a collective long after every deadline", requirements=("RDV-1",)),
    "slow": FaultKind(what="one rank enters every collective a little late", requirements=()),
    "corrupt-byte": FaultKind(what="one byte of one rank's result is another", requirements=("COLL-1",)),
    "swap-results": FaultKind(what="two ranks' parts of a result are swapped on every rank", requirements=("COLL-1",)),
    "stale-registration": FaultKind(
        what="memory that replaced other memory at the same address is not registered again",
        requirements=("CACHE-2", "CACHE-3"),
    ),
    "die": FaultKind(what="one rank's process is killed in a collective", requirements=("RDV-1",)),
    "stop": FaultKind(what="one rank's process is stopped in a collective", requirements=("RDV-1",)),
}


class FaultyBackend:
    """A backend with a fault.

    Parameters
    ----------
    inner : Backend
        The communicator as it is.
    fault : str
        One of `FAULT_KINDS`.
    """

    memory_spaces: tuple[MemorySpace, ...] = ("host",)

    def __init__(self, inner: Backend, fault: str) -> None:
        self.inner = inner
        self.fault = fault
        self.name = f"{inner.name}+{fault}"
        self.world: str = getattr(inner, "world", "processes")
        self.launcher: str = getattr(inner, "launcher", "mpiexec")
        self.driver: str = getattr(inner, "driver", "sim")
        self.narrowings: tuple[Any, ...] = getattr(inner, "narrowings", ())
        self.prepare: Callable[[], None] = getattr(inner, "prepare", lambda: None)
        self.versions: Callable[[], dict[str, str]] = getattr(inner, "versions", dict)

    def capabilities(self, context: RankContext) -> frozenset[str]:
        """As the communicator says."""
        return self.inner.capabilities(context)

    def open(self, context: RankContext) -> FaultyCommunicator:
        """Open the communicator."""
        return FaultyCommunicator(self.inner.open(context), context, self.fault)


class FaultyCommunicator:
    """A communicator with a fault; what it does not change goes through."""

    def __init__(self, inner: Any, context: RankContext, fault: str) -> None:
        self.inner = inner
        self.context = context
        self.fault = fault
        self.struck = context.rank_count == 1
        self.last = context.rank == context.rank_count - 1
        self.seen: dict[int, tuple[int, int]] = {}  # base address -> where bytes were that were not zero
        self.pinned: list[Any] = []  # memory that stands for what was there before

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def _strikes(self, *faults: str) -> bool:
        """Whether the fault is one of these, and its turn is now; it is not a second time."""
        if self.struck or self.fault not in faults:
            return False
        self.struck = True
        return True

    def _enter(self) -> None:
        """What comes before a collective."""
        if self.fault == "slow" and self.last:
            time.sleep(_SLOW_S)
        if not self.last:
            return
        if self._strikes("delay"):
            time.sleep(_AWAY * self.context.timeout_s)
        # A signal to this thread is delivered before it goes on; one to the process may wait for another thread to run.
        elif self._strikes("die"):
            signal.pthread_kill(threading.get_ident(), signal.SIGKILL)
        elif self._strikes("stop"):
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

    def all_reduce(self, send: int, receive: int, count: int, dtype: str, operation: str) -> None:
        """Reduce, or not."""
        self._enter()
        if self.last and self._strikes("drop-call"):
            return
        self.inner.all_reduce(send, receive, count, dtype, operation)
        self._corrupt(receive, count * ITEM_BYTES[dtype])

    def all_gather(self, send: int, receive: int, count: int, dtype: str) -> None:
        """Gather, or not."""
        self._enter()
        if self.last and self._strikes("drop-call"):
            return
        self.inner.all_gather(send, receive, count, dtype)
        size = count * ITEM_BYTES[dtype]
        self._corrupt(receive, size * self.context.rank_count)
        if size and self._strikes("swap-results"):
            first, second = ctypes.string_at(receive, size), ctypes.string_at(receive + size, size)
            ctypes.memmove(receive, second, size)
            ctypes.memmove(receive + size, first, size)

    def _corrupt(self, address: int, size: int) -> None:
        if size and self.last and self._strikes("corrupt-byte"):
            middle = (ctypes.c_ubyte * size).from_address(address)
            middle[size // 2] ^= 0x55

    def connect(self, address: int, size_bytes: int) -> Any:
        """Register a region, or memory that was there before it."""
        self._enter()
        if self.fault != "stale-registration":
            return self.inner.connect(address, size_bytes)
        if address in self.seen and not any(ctypes.string_at(*self.seen[address])):
            old = ctypes.create_string_buffer(size_bytes)  # what is pinned there is not what is mapped there
            self.pinned.append(old)
            return self.inner.connect(ctypes.addressof(old), size_bytes)
        return _Watched(self.inner.connect(address, size_bytes), self, address, size_bytes)

    def close(self) -> None:
        """Close the communicator."""
        self.inner.close()


class _Watched:
    """Channels; when something has come, their region is known by it."""

    def __init__(self, inner: Any, owner: FaultyCommunicator, address: int, size_bytes: int) -> None:
        self.inner = inner
        self.owner = owner
        self.address = address
        self.size_bytes = size_bytes

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def wait(self, peer: int) -> None:
        """Wait, and look."""
        self.inner.wait(peer)
        held = ctypes.string_at(self.address, self.size_bytes)
        first = next((place for place, byte in enumerate(held[:4096]) if byte), None)
        if first is not None:
            self.owner.seen[self.address] = (self.address + first, 1)
