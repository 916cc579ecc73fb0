"""What the references of a Program mean: one pure resolver, shared by Worlds and checks.

It follows which buffers and objects are alive on each rank, and turns every step into a `Planned` one: which region of
which buffer each rank brings, which object is meant, how many elements fit. A step that makes no sense at its place
(nothing to refer to, a channel whose buffer is gone) is planned as one that nobody does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from allranks.conformance import program as p
from allranks.conformance.data import ITEM_BYTES
from allranks.conformance.program import Numbered, Program, Region, SimpleStep, unrolled


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes [offset, offset + size) of a rank's buffer, which is named by its ordinal."""

    buffer: int
    offset_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """A live buffer of a rank."""

    ordinal: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A step with its references resolved.

    Parameters
    ----------
    applies : bool
        False: nobody does it.
    ranks : tuple of int
        Who does it.
    parts : tuple of Part or None, one a rank
        The region that a rank brings (send region of a collective), or the buffer that it frees.
    receive : tuple of Part, one a rank
        Receive regions; of a `Put` the rank's region in the channels.
    target : int
        Ordinal of the object that is meant, or that is made; -1: none.
    group : int
        Ordinal of the group that a binding belongs to; -1: none.
    count : int
        Elements, or bytes of a piece.
    unequal : bool
        Whether some ranks bring no elements where others do, which is an error on every rank.
    operation, capability : str
        The step's name, for labels and stories; what a backend has to be able to do for it.
    needs : int
        Ordinal of the object that has to be there; -1: none.
    collective : bool
        Whether every rank takes part.
    part_of : str
        Name of the compound step that it is a part of; empty: it is a step of its own.
    follows : bool
        Whether it is a later part of that, which a rank reaches only if the part before ended well there.
    """

    number: int
    step: SimpleStep
    ends_round: int | None = None
    applies: bool = True
    ranks: tuple[int, ...] = ()
    parts: tuple[Part | None, ...] = ()
    receive: tuple[Part, ...] = ()
    target: int = -1
    group: int = -1
    count: int = 0
    unequal: bool = False
    operation: str = ""
    capability: str = ""
    needs: int = -1
    collective: bool = False
    part_of: str = ""
    follows: bool = False

    @property
    def name(self) -> str:
        """What to call it where people read it: ``"put"``, or ``"exchange: put"``."""
        return f"{self.part_of}: {self.operation}" if self.part_of else self.operation


_NAMES: dict[type, str] = {
    p.Allocate: "allocate",
    p.Free: "free",
    p.Drop: "drop",
    p.SubsetPut: "subset_put",
    p.Connect: "connect",
    p.Put: "put",
    p.OpenGroup: "open_group",
    p.Bind: "bind",
    p.MulticastStore: "multicast_store",
    p.MulticastReduce: "multicast_reduce",
    p.Unbind: "unbind",
    p.CloseGroup: "close_group",
    p.AllReduce: "all_reduce",
    p.AllGather: "all_gather",
}
_COMPOUND: dict[type, str] = {p.Reallocate: "reallocate", p.Exchange: "exchange"}


_MAKES = (p.Connect, p.OpenGroup, p.Bind)  # their target is not there before them


@dataclass(slots=True)
class _Channels:
    ordinal: int
    parts: tuple[Part, ...]


@dataclass(slots=True)
class _Group:
    ordinal: int


@dataclass(slots=True)
class _Binding:
    ordinal: int
    group: int
    parts: tuple[Part, ...]


@dataclass(slots=True)
class Resolver:
    """The state that references are resolved against: what is alive, of `rank_count` ranks."""

    rank_count: int
    buffers: list[list[Buffer]] = field(default_factory=list)
    made: list[int] = field(default_factory=list)
    channels: list[_Channels] = field(default_factory=list)
    groups: list[_Group] = field(default_factory=list)
    bindings: list[_Binding] = field(default_factory=list)
    held: dict[str, dict[int, set[int]]] = field(default_factory=dict)  # kind -> object -> ranks that refer to it
    objects: int = 0

    def __post_init__(self) -> None:
        self.buffers = [[] for _ in range(self.rank_count)]
        self.made = [0] * self.rank_count

    def resolve(self, step: SimpleStep) -> dict[str, Any] | None:
        """Follow a step; gives the fields of its `Planned`, or None when it does not apply."""
        match step:
            case p.AllReduce():
                return self.collective(step, 1)
            case p.AllGather():
                return self.collective(step, self.rank_count)
            case _:
                found: dict[str, Any] | None = getattr(self, _NAMES[type(step)])(step)
                return found

    def next_object(self, kind: p.Dropped) -> int:
        """Give the ordinal of an object that is made now; all ranks refer to it."""
        made = self.objects
        self.objects += 1
        self.held.setdefault(kind, {})[made] = set(range(self.rank_count))
        return made

    def clip(self, rank: int, region: Region) -> Part | None:
        """Give what a rank's region is at this point; None: the rank has no buffer."""
        live = self.buffers[rank]
        if not live:
            return None
        buffer = live[region.buffer % len(live)]
        offset = region.offset_bytes % buffer.size_bytes
        rest = buffer.size_bytes - offset
        size = rest if region.size_bytes == 0 else min(region.size_bytes, rest)
        return Part(buffer.ordinal, offset, size)

    def clip_all(self, operand: p.Operand[Region]) -> tuple[Part, ...] | None:
        """Give what each rank brings; None: some rank has nothing."""
        parts = [self.clip(rank, operand.of(rank)) for rank in range(self.rank_count)]
        found = tuple(part for part in parts if part is not None)
        return found if len(found) == self.rank_count else None

    def alive(self, parts: tuple[Part, ...]) -> bool:
        """Whether the buffers are all there still."""
        return all(
            any(buffer.ordinal == part.buffer for buffer in self.buffers[rank]) for rank, part in enumerate(parts)
        )

    def ranks_of(self, step: p.LocalStep) -> tuple[int, ...]:
        """Give the ranks that a local step is for."""
        everyone = range(self.rank_count)
        return tuple(everyone) if step.ranks is None else tuple(sorted({r for r in step.ranks if r in everyone}))

    # --- one method a kind of step: the fields of Planned, or None when the step does not apply ---

    def allocate(self, step: p.Allocate) -> dict[str, Any] | None:
        """Every rank that it is for has one more buffer."""
        parts: list[Part | None] = [None] * self.rank_count
        ranks = self.ranks_of(step)
        for rank in ranks:
            buffer = Buffer(ordinal=self.made[rank], size_bytes=step.size_bytes)
            self.made[rank] += 1
            self.buffers[rank].append(buffer)
            parts[rank] = Part(buffer.ordinal, 0, buffer.size_bytes)
        return {"ranks": ranks, "parts": tuple(parts)} if ranks else None

    def free(self, step: p.Free) -> dict[str, Any] | None:
        """Ranks that have none have no part in it."""
        parts: list[Part | None] = [None] * self.rank_count
        ranks = tuple(rank for rank in self.ranks_of(step) if self.buffers[rank])
        for rank in ranks:
            buffer = self.buffers[rank].pop(step.buffer % len(self.buffers[rank]))
            parts[rank] = Part(buffer.ordinal, 0, buffer.size_bytes)
        return {"ranks": ranks, "parts": tuple(parts)} if ranks else None

    def drop(self, step: p.Drop) -> dict[str, Any] | None:
        """Some ranks let go; from then on no collective step means the object, but the others hold it still."""
        asked = set(self.ranks_of(step))
        held = self.held.get(step.what, {})
        among = [ordinal for ordinal, holders in held.items() if holders & asked]
        if not among:
            return None
        target = among[step.index % len(among)]
        ranks = tuple(sorted(held[target] & asked))
        held[target] -= asked
        self.channels = [made for made in self.channels if made.ordinal != target]
        self.groups = [group for group in self.groups if group.ordinal != target]
        self.bindings = [binding for binding in self.bindings if target not in (binding.ordinal, binding.group)]
        return {"ranks": ranks, "target": target}

    def subset_put(self, step: p.SubsetPut) -> dict[str, Any] | None:
        """It applies where all of its ranks have a buffer."""
        ranks = self.ranks_of(step)
        parts = tuple(self.clip(r, step.region.of(r)) if r in ranks else None for r in range(self.rank_count))
        sizes = [part.size_bytes for part in parts if part is not None]
        if not ranks or len(sizes) < len(ranks):
            return None
        piece = min(step.piece_bytes, *(size // self.rank_count for size in sizes))
        return {"ranks": ranks, "parts": parts, "count": piece} if piece else None

    def connect(self, step: p.Connect) -> dict[str, Any] | None:
        """It makes channels, where every rank has a buffer."""
        parts = self.clip_all(step.region)
        if parts is None:
            return None
        made = _Channels(self.next_object("channels"), parts)
        self.channels.append(made)
        return {"parts": parts, "target": made.ordinal}

    def put(self, step: p.Put) -> dict[str, Any] | None:
        """It needs channels whose buffers are there, with room for a piece of each rank."""
        if not self.channels:
            return None
        channels = self.channels[step.channels % len(self.channels)]  # -1: those that were made last
        piece = min(step.piece_bytes, *(part.size_bytes // self.rank_count for part in channels.parts))
        if piece == 0 or not self.alive(channels.parts):
            return None
        return {"target": channels.ordinal, "receive": channels.parts, "count": piece}

    def open_group(self, _: p.OpenGroup) -> dict[str, Any]:
        """It makes a group."""
        group = _Group(self.next_object("group"))
        self.groups.append(group)
        return {"target": group.ordinal}

    def bind(self, step: p.Bind) -> dict[str, Any] | None:
        """It makes a binding, where every rank has a buffer that is not bound to the group."""
        if not self.groups:
            return None
        group = self.groups[step.group % len(self.groups)]
        parts = []
        for rank, live in enumerate(self.buffers):
            bound = {b.parts[rank].buffer for b in self.bindings if b.group == group.ordinal}
            free = [buffer for buffer in live if buffer.ordinal not in bound]
            if not free:
                return None
            buffer = free[step.buffer.of(rank) % len(free)]
            parts.append(Part(buffer.ordinal, 0, buffer.size_bytes))
        binding = _Binding(self.next_object("binding"), group.ordinal, tuple(parts))
        self.bindings.append(binding)
        return {"target": binding.ordinal, "group": group.ordinal, "parts": binding.parts}

    def of_binding(self, index: int, *, needs_memory: bool) -> _Binding | None:
        """Give a binding; None: there is none, or not its memory."""
        if not self.bindings:
            return None
        binding = self.bindings[index % len(self.bindings)]
        return binding if self.alive(binding.parts) or not needs_memory else None

    def multicast_store(self, step: p.MulticastStore) -> dict[str, Any] | None:
        """It needs a binding with its memory."""
        binding = self.of_binding(step.binding, needs_memory=True)
        if binding is None:
            return None
        return {"target": binding.ordinal, "group": binding.group, "receive": binding.parts}

    def multicast_reduce(self, step: p.MulticastReduce) -> dict[str, Any] | None:
        """It needs a binding with its memory, and room for an element."""
        binding = self.of_binding(step.binding, needs_memory=True)
        if binding is None:
            return None
        smallest = min(part.size_bytes for part in binding.parts)
        count = min(step.count, smallest // ITEM_BYTES[step.dtype])
        if count == 0:
            return None
        return {"target": binding.ordinal, "group": binding.group, "receive": binding.parts, "count": count}

    def unbind(self, step: p.Unbind) -> dict[str, Any] | None:
        """The binding is gone, whether its memory is there or not."""
        binding = self.of_binding(step.binding, needs_memory=False)
        if binding is None:
            return None
        self.bindings.remove(binding)
        del self.held["binding"][binding.ordinal]
        return {"target": binding.ordinal, "group": binding.group, "parts": binding.parts}

    def close_group(self, step: p.CloseGroup) -> dict[str, Any] | None:
        """The group is gone, with what was bound to it."""
        if not self.groups:
            return None
        group = self.groups.pop(step.group % len(self.groups))
        del self.held["group"][group.ordinal]
        self.bindings = [binding for binding in self.bindings if binding.group != group.ordinal]
        return {"target": group.ordinal}

    def collective(self, step: p.AllReduce | p.AllGather, factor: int) -> dict[str, Any] | None:
        """Regions are aligned, clipped to as many elements as fit everywhere, and made in place where they overlap."""
        send = self.clip_all(step.send)
        receive = self.clip_all(step.receive)
        if send is None or receive is None:
            return None
        item = ITEM_BYTES[step.dtype]
        send = tuple(_aligned(part, item) for part in send)
        receive = tuple(_aligned(part, item) for part in receive)
        room = min(part.size_bytes // (item * factor) for part in receive)
        count = min(step.count, room, *(part.size_bytes // item for part in send))
        if len(set(step.empty_on)) >= self.rank_count:
            count = 0
        sent = [Part(part.buffer, part.offset_bytes, count * item) for part in send]
        received = [Part(part.buffer, part.offset_bytes, count * item * factor) for part in receive]
        for rank, (source, target) in enumerate(zip(sent, received, strict=True)):
            own = Part(target.buffer, target.offset_bytes + (rank * count * item if factor > 1 else 0), count * item)
            if _overlap(source, target):
                sent[rank] = own  # in place, which is the one overlap that the definition allows
        empty = {rank for rank in step.empty_on if rank < self.rank_count}
        unequal = bool(empty) and len(empty) < self.rank_count and count > 0
        return {"parts": tuple(sent), "receive": tuple(received), "count": count, "unequal": unequal}


def _aligned(part: Part, item: int) -> Part:
    offset = part.offset_bytes - part.offset_bytes % item
    return Part(part.buffer, offset, part.size_bytes)


def _overlap(a: Part, b: Part) -> bool:
    return (
        a.buffer == b.buffer
        and a.offset_bytes < b.offset_bytes + b.size_bytes
        and b.offset_bytes < a.offset_bytes + a.size_bytes
    )


def planned(program: Program) -> Iterator[Planned]:
    """Resolve the references of a Program, step by step."""
    resolver = Resolver(program.rank_count)
    everyone = tuple(range(program.rank_count))
    numbered: Numbered
    for numbered in unrolled(program):
        step = numbered.step
        fields = resolver.resolve(step)
        common: dict[str, Any] = {
            "number": numbered.number,
            "step": step,
            "ends_round": numbered.ends_round,
            "operation": _NAMES[type(step)],
            "capability": p.needed_capability(step),
            "collective": p.is_collective(step),
        }
        if numbered.part_of is not None:
            common |= {"part_of": _COMPOUND[numbered.part_of], "follows": numbered.follows}
        if fields is None:
            yield Planned(**common, applies=False)
        else:
            fields.setdefault("ranks", everyone)
            needs = fields.get("group" if isinstance(step, _MAKES) else "target", -1)
            yield Planned(**common, needs=needs, **fields)
