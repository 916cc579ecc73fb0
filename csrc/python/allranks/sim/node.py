"""Nodes and virtual processes of the simulated driver."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from allranks._native import sim as _sim
from allranks.sim.machines import Machine

PlacementRule = Literal["low", "high", "never_reuse"]
_RULES: Final[tuple[PlacementRule, ...]] = ("low", "high", "never_reuse")

LEDGER_KINDS: Final = (
    "allocation",
    "plain",
    "reservation",
    "mapping",
    "multicast",
    "binding",
    "descriptor",
    "stream",
    "event",
    "module",
    "context",
    "host",
    "pool",
    "imported",
)

CALL_DTYPE: Final = np.dtype([("step", "<u4"), ("call", "<u2"), ("owner", "<u2"), ("result", "<i4")])
WRITE_DTYPE: Final = np.dtype(
    [
        ("step", "<u4"),
        ("rank", "<i4"),
        ("allocation", "<u4"),
        ("device", "<i4"),
        ("offset_bytes", "<u8"),
        ("size_bytes", "<u8"),
    ]
)
_LEDGER_DTYPE: Final = np.dtype(
    [
        ("kind", "<i4"),
        ("rank", "<i4"),
        ("ordinal", "<u4"),
        ("step", "<u4"),
        ("call", "<u2"),
        ("owner", "<u2"),
        ("references", "<u4"),
        ("device", "<i4"),
        ("pad", "<u4"),
        ("bytes", "<u8"),
    ]
)


class LedgerEntry(NamedTuple):
    """One handle that is alive: what it is, whose, who made it when, and how many releases it still needs."""

    kind: str
    rank: int
    ordinal: int
    step: int
    call: str
    owner: int
    references: int
    device: int
    bytes: int


class NodeUsage(NamedTuple):
    """What a node has in use: bytes of device memory, bytes of multicast capacity, entries of the ledger."""

    memory_bytes: int
    multicast_bytes: int
    handles: int


class Piece(NamedTuple):
    """Where a stretch of an address range leads: (device, allocation, offset); device -1 is nowhere."""

    from_bytes: int
    size_bytes: int
    device: int
    owner_rank: int
    allocation: int
    through_multicast: bool
    offset_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where a process finds its addresses.

    Parameters
    ----------
    rule : {"low", "high", "never_reuse"}
        First fit from below (a freed address is used again at once), from above, or never the same twice.
    base_offset_bytes : int
        Shifts the whole range, so that equal histories of two ranks get unequal addresses.
    """

    rule: PlacementRule = "low"
    base_offset_bytes: int = 0


@functools.cache
def library_path() -> Path:
    """Give the path of the simulated driver's library."""
    return Path(__file__).parent / "lib" / "libsimcuda.so"


@functools.cache
def call_name(call: int) -> str:
    """Give the name of a driver call by its number in a call log.

    Raises
    ------
    ValueError
        If no call has that number.
    """
    name = _sim.call_name(call)
    if name is None:
        raise ValueError(f"call={call}: no driver call has that number")
    return name


_sim.load(str(library_path()))


class Process:
    """A virtual process: one rank's side of the simulated driver. Made by `Node.create_process`.

    It ends at `close`, or with its node; dropping the object does not end it.
    """

    __slots__ = ("_native",)

    def __init__(self, native: _sim.Process) -> None:
        self._native = native

    @property
    def rank(self) -> int:
        """Rank that reports name the process by."""
        return self._native.rank

    def enter(self, order: int) -> None:
        """Make the calling thread a task of the node's run; returns when it has the turn.

        Parameters
        ----------
        order : int
            Place among the tasks of the run, from 0.

        Raises
        ------
        RuntimeError
            If no run waits for a task with that order.
        """
        if not self._native.enter(order):
            raise RuntimeError(f"order={order}: the node has no run that waits for such a task")

    def bind(self) -> None:
        """Let the calling thread speak for this process outside of a run."""
        self._native.bind()

    def place(self, rule: PlacementRule) -> None:
        """Change where the address ranges that are reserved from now on go."""
        self._native.place(_RULES.index(rule))

    def wish(self, address: int) -> None:
        """Wish that the next address range starts at `address`; granted if that is free. 0: no wish."""
        self._native.wish(address)

    def calls(self, first: int = 0) -> npt.NDArray[np.void]:
        """Give the driver calls made, from number `first` on, as an array of `CALL_DTYPE`."""
        return np.frombuffer(self._native.calls(first), dtype=CALL_DTYPE)

    def resolve(self, address: int, size: int) -> list[Piece]:
        """Say which bytes of which allocations [address, address + size) reaches. Not a driver call."""
        return [Piece(*piece) for piece in self._native.resolve(address, size)]

    def peek(self, address: int, size: int) -> bytes:
        """Read device memory; refused for multicast addresses.

        Raises
        ------
        ValueError
            If some byte is not memory that the process reaches.
        """
        return self._native.peek(address, size)

    def poke(self, address: int, data: bytes | bytearray | memoryview | npt.NDArray[Any]) -> None:
        """Write device memory without a driver call; refused for multicast addresses.

        Raises
        ------
        ValueError
            If some byte is not memory that the process reaches.
        """
        self._native.poke(address, data)

    def view(self, address: int, size: int) -> npt.NDArray[np.uint8]:
        """Give the memory itself as an array of bytes, valid until it is freed.

        Raises
        ------
        ValueError
            If the range is not one contiguous stretch of one device.
        """
        return self._native.view(address, size)

    def fault(self, call: str, k: int, code: int) -> None:
        """Have the k-th call of `call` from now on (0: the next) return `code` and do nothing.

        Raises
        ------
        ValueError
            If no driver call of that name is simulated.
        """
        self._native.fault(call, k, code)

    def faults_clear(self) -> None:
        """Forget the faults that have not happened yet."""
        self._native.faults_clear()

    def close(self) -> None:
        """End the process as its death would: everything that it owns is given back."""
        self._native.close()


@functools.cache
def _fields_of(machine: Machine) -> dict[str, Any]:
    return machine.as_fields()


class Node:
    """One simulated host.

    Parameters
    ----------
    machine : Machine
        What it consists of.

    Raises
    ------
    ValueError
        If a field of the machine is out of range; the message names it.
    """

    __slots__ = ("_native", "machine")

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._native = _sim.Node(_fields_of(machine))

    def create_process(self, rank: int, placement: Placement | None = None) -> Process:
        """Make a virtual process that reports call rank `rank`."""
        where = placement or Placement()
        return Process(self._native.create_process(rank, _RULES.index(where.rule), where.base_offset_bytes))

    def run_begin(self, task_count: int, schedule: Sequence[tuple[int, int]] | Callable[[int, int], int] = ()) -> None:
        """Start a run; it goes once `task_count` threads have entered.

        Parameters
        ----------
        task_count : int
            How many threads take part.
        schedule : sequence of (decision, choice), or callable (decision, runnable) -> choice
            Where the run deviates from going on with the current task.
        """
        if callable(schedule):
            self._native.run_begin_asking(task_count, schedule)
        else:
            self._native.run_begin(task_count, list(schedule))

    def run_wait(self, quiet_timeout_s: float) -> bool:
        """Wait for the end of the run. False: a task kept the turn for that long without coming by the driver."""
        return self._native.run_wait(quiet_timeout_s)

    def run_report(self) -> dict[str, Any]:
        """Give who waited for whom at the stall and at each deadline that passed."""
        report: dict[str, Any] = json.loads(self._native.run_report())
        return report

    @property
    def stalled(self) -> bool:
        """Whether the last run came to a point where nothing could ever go on."""
        return self._native.stalled()

    @property
    def decisions(self) -> int:
        """How many scheduling decisions the last run asked for."""
        return self._native.decisions()

    @property
    def verdict_ns(self) -> int:
        """Real nanoseconds from the last task that could run to the stall verdict."""
        return self._native.verdict_ns()

    def deviations(self) -> list[tuple[int, int]]:
        """Give the (decision, choice) pairs that the last run realised, choice 0 left out."""
        return self._native.deviations()

    def ledger(self) -> list[LedgerEntry]:
        """Give everything alive, ordered by (rank, kind, ordinal)."""
        rows = np.frombuffer(self._native.ledger(), dtype=_LEDGER_DTYPE)
        return [
            LedgerEntry(LEDGER_KINDS[kind], rank, ordinal, step, call_name(call), owner, references, device, size)
            for kind, rank, ordinal, step, call, owner, references, device, _, size in rows.tolist()
        ]

    def used(self) -> NodeUsage:
        """Give what is in use, all devices and processes together."""
        return NodeUsage(*self._native.used())

    def incidents(self) -> list[dict[str, Any]]:
        """Give what hardware tolerates or leaves undefined although it is wrong, and sticky errors."""
        incidents: list[dict[str, Any]] = json.loads(self._native.incidents())
        return incidents

    def writes_record(self, on: bool) -> None:
        """Switch the recording of writes on or off."""
        self._native.writes_record(on)

    def writes(self) -> npt.NDArray[np.void]:
        """Give the recorded writes in order, coalesced, as an array of `WRITE_DTYPE`."""
        return np.frombuffer(self._native.writes(), dtype=WRITE_DTYPE)

    def writes_clear(self) -> None:
        """Forget the recorded writes."""
        self._native.writes_clear()

    def memory_used(self, device: int) -> int:
        """Give the bytes of device memory in use."""
        return self._native.memory_used(device)

    def multicast_used(self, device: int) -> int:
        """Give the bytes of multicast capacity in use on the device's fabric."""
        return self._native.multicast_used(device)

    def check_invariants(self) -> None:
        """Check that the node's books agree.

        Raises
        ------
        AssertionError
            If they do not; the message says which rule is broken.
        """
        broken = self._native.check_invariants()
        if broken is not None:
            raise AssertionError(broken)

    def close(self) -> None:
        """End the node and all its processes."""
        self._native.close()
