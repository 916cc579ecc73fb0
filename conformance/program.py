"""Programs: what each rank does, as plain data.

A `Program` is a sequence of steps. A *local* step is done by some ranks on their own (allocate, free, write, drop); a
*collective* step is one that every rank takes part in, with an operand for each rank: a default and a few exceptions,
which is what divergence looks like in practice, and which shrinks well.

References are indices into what a rank has alive at that point, taken modulo how much there is. So every sub-list of
steps is a Program again, and nothing needs repair while a failure is made smaller. Nothing in a Program is an address.

A *compound* step is one that real programs do as one and that consists of others (`Exchange`, `Reallocate`). `parts_of`
says of which; `unrolled` writes it out, so that nobody else has to know compound steps.
"""

from __future__ import annotations

import itertools
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

T = TypeVar("T")

MemoryKind = Literal["vmm", "plain", "segments"]
Placement = Literal["low", "high", "reuse", "equal", "never_reuse"]
Dropped = Literal["channels", "binding", "group"]

DTYPES = (
    "int8",
    "uint8",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
)
OPERATIONS = ("sum", "prod", "min", "max")


@dataclass(frozen=True, slots=True)
class Operand(Generic[T]):
    """What each rank brings to a step: a default, and exceptions by rank."""

    default: T
    exceptions: Mapping[int, T] = field(default_factory=dict)

    def of(self, rank: int) -> T:
        """Give what `rank` brings."""
        return self.exceptions.get(rank, self.default)


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A part of a live buffer.

    Parameters
    ----------
    buffer : int
        Index into the rank's live buffers, oldest first, modulo their number.
    offset_bytes, size_bytes : int
        Clipped to the buffer; size 0 means all that follows the offset.
    """

    buffer: int = 0
    offset_bytes: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalStep:
    """A step that the ranks in `ranks` do on their own; None is all of them."""

    ranks: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocate(LocalStep):
    """Allocate a buffer: `vmm` by virtual memory management (rounded up to the granularity), `plain` by cuMemAlloc.

    `segments` is as `vmm`, of one physical allocation a granule, mapped side by side, as growable allocators do it.

    Placement: lowest or highest free address; the address of the buffer that the rank freed last (`reuse`); the same
    address on every rank (`equal`); an address never used before (`never_reuse`).
    """

    size_bytes: int
    kind: MemoryKind = "vmm"
    placement: Placement = "low"


@dataclass(frozen=True, slots=True, kw_only=True)
class Free(LocalStep):
    """Free a live buffer."""

    buffer: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reallocate(LocalStep):
    """Free a live buffer and allocate another one, as a workspace that grows does; what it held is lost.

    A rank that has no buffer allocates one all the same.
    """

    size_bytes: int
    kind: MemoryKind = "vmm"
    placement: Placement = "low"
    buffer: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop(LocalStep):
    """Let go of the last reference to a collective object, without closing it first.

    Parameters
    ----------
    index : int
        Which, among those that some of the ranks refer to still (an object stays with the ranks that did not let go of
        it, a binding also after its group was closed), oldest first, modulo their number. So ranks can let go in
        different orders.
    """

    what: Dropped
    index: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SubsetPut(LocalStep):
    """The ranks in `ranks`, and no others, connect a region each, put into each other's, and close the channels."""

    region: Operand[Region]
    piece_bytes: int = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Connect:
    """Every rank registers a region and gets channels to the regions of all others."""

    region: Operand[Region]


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """Every rank writes a piece of its own into peers' regions of the channels, at its own place, and signals.

    With a `reach` it does so to that many ranks after it, in cyclic order; 0: to all.
    """

    channels: int = 0
    piece_bytes: int = 64
    reach: int = 0

    def distances(self, rank_count: int) -> range:
        """Give how far after a rank the ranks are that it writes to; those that write to it are as far before it."""
        return range(1, min(rank_count, self.reach + 1) if self.reach else rank_count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """Every rank registers a region and at once writes into those of its peers, in one call: `Connect`, then `Put`.

    No rank waits between the two for others to have connected. The channels stay, as after `Connect`.
    """

    region: Operand[Region]
    piece_bytes: int = 64
    reach: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenGroup:
    """Every rank opens a multicast group of that capacity."""

    capacity_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """Every rank binds a whole buffer to the group; together they are one binding.

    Parameters
    ----------
    buffer : Operand of int
        Index into the rank's live buffers that are not bound to the group yet, oldest first, modulo their number.
    """

    buffer: Operand[int]
    group: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MulticastStore:
    """One rank stores through the multicast address of a binding: first, middle and last words."""

    binding: int = 0
    source: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MulticastReduce:
    """Every rank reads the reduction of all ranks' bound memory through the multicast address."""

    binding: int = 0
    count: int = 4
    dtype: str = "float32"
    operation: str = "sum"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unbind:
    """Every rank takes a binding out of its group."""

    binding: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseGroup:
    """Every rank closes a group."""

    group: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduce:
    """The reduction over all ranks of `count` elements, to every rank. Equal regions: in place.

    Ranks in `empty_on` bring no elements at all. If others bring some, that is the caller's error, and every rank's.
    """

    send: Operand[Region]
    receive: Operand[Region]
    count: int
    dtype: str = "float32"
    operation: str = "sum"
    empty_on: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AllGather:
    """`count` elements of each rank, in the order of ranks, to every rank; `empty_on` as in `AllReduce`."""

    send: Operand[Region]
    receive: Operand[Region]
    count: int
    dtype: str = "float32"
    empty_on: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """The steps, `times` times over."""

    times: int
    steps: tuple[Step, ...]


CollectiveStep = (
    Connect | Put | OpenGroup | Bind | MulticastStore | MulticastReduce | Unbind | CloseGroup | AllReduce | AllGather
)
SimpleStep = Allocate | Free | Drop | SubsetPut | CollectiveStep
CompoundStep = Reallocate | Exchange
Step = SimpleStep | CompoundStep | Repeat

STEP_TYPES: tuple[type, ...] = (
    Allocate,
    Free,
    Drop,
    SubsetPut,
    Connect,
    Put,
    OpenGroup,
    Bind,
    MulticastStore,
    MulticastReduce,
    Unbind,
    CloseGroup,
    AllReduce,
    AllGather,
    Reallocate,
    Exchange,
    Repeat,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A driver call that fails: a rank's k-th call (from 0) of that name returns the code, and does nothing."""

    rank: int
    call: str
    k: int
    code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A sequence of steps for a number of ranks.

    Parameters
    ----------
    rank_count : int
        Ranks, from 1.
    steps : tuple of Step
        What they do.
    seed : int
        What the data depends on, beside rank, step and position.
    shift_bytes : Operand of int
        How far each rank's addresses are shifted, so that equal histories give unequal addresses.
    schedule : tuple of (decision, choice)
        Where the run deviates from going on with the current task.
    faults : tuple of Fault
        Driver calls that fail.
    """

    rank_count: int
    steps: tuple[Step, ...]
    seed: int = 0
    shift_bytes: Operand[int] = field(default_factory=lambda: Operand(0))
    schedule: tuple[tuple[int, int], ...] = ()
    faults: tuple[Fault, ...] = ()


# The channels that were made last, in a `Put` that follows their `Connect`; no case file can say this.
_NEWEST = -1


def parts_of(step: SimpleStep | CompoundStep) -> tuple[SimpleStep, ...]:
    """Give the steps that a step consists of, in order; a simple step is its own only part.

    Where a rank has no buffer there is nothing to connect; then no older channels are whole either, so that the second
    part of an `Exchange` never means other channels than those of the first.
    """
    if isinstance(step, Exchange):
        return Connect(region=step.region), Put(channels=_NEWEST, piece_bytes=step.piece_bytes, reach=step.reach)
    if isinstance(step, Reallocate):
        return (
            Free(ranks=step.ranks, buffer=step.buffer),
            Allocate(ranks=step.ranks, size_bytes=step.size_bytes, kind=step.kind, placement=step.placement),
        )
    return (step,)


@dataclass(frozen=True, slots=True)
class Numbered:
    """A step as it is run: its number, and which round of the innermost `Repeat` it ends, if any.

    Of a compound step it is one part. Later ones have `follows`: a rank does them if the part before ended well there.
    """

    number: int
    step: SimpleStep
    ends_round: int | None = None
    part_of: type[CompoundStep] | None = None
    follows: bool = False


def unrolled(program: Program) -> Iterator[Numbered]:
    """Give the steps in order as they are run, with `Repeat` and compound steps written out."""
    number = itertools.count()

    def walk(steps: tuple[Step, ...], ends: int | None) -> Iterator[Numbered]:
        for position, step in enumerate(steps):
            last = ends if position == len(steps) - 1 else None
            if isinstance(step, Repeat):
                for turn in range(step.times):
                    yield from walk(step.steps, turn if step.times > 1 else None)
            elif isinstance(step, CompoundStep):
                first, second = parts_of(step)
                yield Numbered(next(number), first, None, type(step))
                yield Numbered(next(number), second, last, type(step), follows=True)
            else:
                yield Numbered(next(number), step, last)

    return walk(program.steps, None)


_NEEDED: dict[type, str] = {
    Connect: "channels",
    Put: "channels",
    **dict.fromkeys((OpenGroup, Bind, MulticastStore, MulticastReduce, Unbind, CloseGroup), "multicast"),
    AllReduce: "all_reduce",
    AllGather: "all_gather",
    SubsetPut: "subsets",
}
_COLLECTIVE = frozenset((*typing.get_args(CollectiveStep), Exchange))


def needed_capability(step: SimpleStep) -> str:
    """Give what a backend has to be able to do for the step, as in `backend.CAPABILITIES`; empty: nothing."""
    if isinstance(step, Drop):
        return "channels" if step.what == "channels" else "multicast"
    return _NEEDED.get(type(step), "")


def is_collective(step: Step) -> bool:
    """Whether every rank has to take part."""
    return type(step) in _COLLECTIVE
