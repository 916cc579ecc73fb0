"""The simulated CUDA driver, from Python: machines, nodes, virtual processes, the turnstile.

A `Node` is one simulated host. Each rank has a `Process` on it: its own address space, handles and contexts, also when
ranks are threads of one real process. A *run* lets a fixed number of threads take turns, exactly one at a time; it
knows at once when nothing can go on, and who waits for whom.

Threads: a node is used by the thread that made it, and by the tasks of its run.
"""

from __future__ import annotations

from allranks.sim.machines import GIB, KIB, MACHINES, MIB, Machine, machine
from allranks.sim.node import (
    CALL_DTYPE,
    LEDGER_KINDS,
    WRITE_DTYPE,
    LedgerEntry,
    Node,
    NodeUsage,
    Piece,
    Placement,
    PlacementRule,
    Process,
    call_name,
    library_path,
)
from allranks.sim.turns import Meeting, Missing, WaitResult, label, leave, notify, now, unbind, wait, yield_turn

__all__ = [
    "CALL_DTYPE",
    "GIB",
    "KIB",
    "LEDGER_KINDS",
    "MACHINES",
    "MIB",
    "WRITE_DTYPE",
    "LedgerEntry",
    "Machine",
    "Meeting",
    "Missing",
    "Node",
    "NodeUsage",
    "Piece",
    "Placement",
    "PlacementRule",
    "Process",
    "WaitResult",
    "call_name",
    "label",
    "leave",
    "library_path",
    "machine",
    "notify",
    "now",
    "unbind",
    "wait",
    "yield_turn",
]
