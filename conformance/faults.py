"""A fault at every driver call: all (rank, call, k) that the communicator makes in a Program, one Program each."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from allranks import sim
from allranks.conformance import program as p
from allranks.conformance.program import Fault, Operand, Program, Region
from allranks.conformance.trace import Trace

MIB: Final = 1 << 20
# An error that no library has a way round for, as it has for memory that is not there.
CODE: Final = 999  # CUDA_ERROR_UNKNOWN
_COMMUNICATOR: Final = 1

_REGION: Final = Operand(Region())
_OTHER: Final = Operand(Region(buffer=1))

# Short lives of everything that a communicator makes.
PROGRAMS: Final[tuple[Program, ...]] = (
    Program(
        rank_count=2,
        steps=(
            p.Allocate(size_bytes=2 * MIB),
            p.Connect(region=_REGION),
            p.Put(),
            p.Drop(what="channels"),
            p.Connect(region=_REGION),
        ),
    ),
    Program(
        rank_count=2,
        steps=(
            p.Allocate(size_bytes=2 * MIB),
            p.OpenGroup(capacity_bytes=4 * MIB),
            p.Bind(buffer=Operand(0)),
            p.MulticastStore(),
            p.Unbind(),
            p.CloseGroup(),
        ),
    ),
    Program(
        rank_count=3,
        steps=(
            p.Allocate(size_bytes=2 * MIB),
            p.Allocate(size_bytes=2 * MIB),
            p.Connect(region=_REGION),
            p.OpenGroup(capacity_bytes=4 * MIB),
            p.Bind(buffer=Operand(1)),
            p.AllReduce(send=_REGION, receive=_OTHER, count=64),
        ),
    ),
)


def with_faults(program: Program, trace: Trace) -> Iterator[Program]:
    """Give the Program once for each driver call that the communicator made in its run, with that call failing."""
    for rank, log in enumerate(trace.calls):
        made: Counter[int] = Counter()
        for _, call, owner, _ in log.tolist():
            if owner == _COMMUNICATOR:
                fault = Fault(rank=rank, call=sim.call_name(call), k=made[call], code=CODE)
                yield dataclasses.replace(program, faults=(fault,))
            made[call] += 1


def in_turn(faulted: Iterable[Program]) -> list[Program]:
    """Order Programs of one fault each so that every entry point fails once before any fails again.

    What a communicator does wrong about an entry point it mostly does at every call of it.
    """
    seen: Counter[str] = Counter()

    def turn(program: Program) -> int:
        (fault,) = program.faults
        seen[fault.call] += 1
        return seen[fault.call]

    return sorted(faulted, key=turn)
