"""Situations: short histories that ranks of real programs come into, and that separate one rank from the others.

Each is a few steps that belong together, because the fault that they show needs all of them: a region that is
connected before and after its memory was renewed, and written to; an entry with two users of which one ends; a rank
alone that has no room. Drawn step by step, these come together once in hundreds of Programs.

A situation gives its steps one at a time, and each is taken in before the next is asked for: what is the newest buffer
then, is the newest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from allranks.conformance import program as p
from allranks.conformance.drawing import BLOCKS, CAPACITIES, COUNTS, MIB, SIZES, TYPES, Drawer, operand
from allranks.conformance.program import Operand, Region, Step

Steps = Iterator[Step]

# (size, placement) of a buffer that comes in the place of another one; size 0: as that one was.
_RENEWED: Final[tuple[tuple[int, p.Placement], ...]] = (
    *((0, "reuse"),) * len(SIZES),
    *((size, "reuse") for size in SIZES),
    *((0, "low"), (0, "equal"), (0, "high"), (0, "never_reuse")),
)
_IN_PIECES: Final = tuple(size for size in SIZES if size > 2 * MIB)
# Offsets with regions from there on across the border of two pieces, or of which the first is not a part.
_ACROSS: Final = (2 * MIB - 64, 2 * MIB - 4, 2 * MIB, 2 * MIB + 4096, 0)
_DROP_ORDERS: Final[tuple[tuple[p.Dropped, p.Dropped], ...]] = (
    *(("channels", "channels"), ("group", "binding"), ("binding", "group")),
)


@dataclass(slots=True)
class Situations(Drawer):
    """Draws steps and situations."""

    def draw_kind(self, kind: str) -> None:
        """Add a step, or the steps of a situation."""
        made = getattr(self, kind)()
        for step in made if isinstance(made, Iterator) else (made,):
            self.steps.append(step)

    # --- memory ---

    def free_newest(self, who: tuple[int, ...] | None) -> Steps:
        """Each of some ranks gives the buffer back that it made last."""
        newest = self.newest()
        ranks = range(self.rank_count) if who is None else who
        for index in sorted({newest[rank] for rank in ranks}):
            alike = tuple(rank for rank in ranks if newest[rank] == index)
            yield p.Free(ranks=None if len(alike) == self.rank_count else alike, buffer=index)

    def renewal(self, who: tuple[int, ...] | None) -> Steps:
        """The newest buffer of one rank, or of all, is given back, and something else lies at its place."""
        live = self.alive.buffers[0 if who is None else who[0]]
        before = live[-1].size_bytes if live else 2 * MIB
        size, placement = self.pick(_RENEWED, "renewed")
        yield from self.free_newest(who)
        yield p.Allocate(ranks=who, size_bytes=size or before, placement=placement)

    def move(self) -> Steps:
        """One rank, or all, give a buffer back and get one of the same or another size at the same or another place.

        In two steps as often as in one.
        """
        who = self.who()
        at_once, buffer = divmod(self.index(6, "buffer"), 3)
        if at_once:
            yield p.Reallocate(ranks=who, buffer=buffer, **self.pick(BLOCKS, "block"))
        else:
            yield p.Free(ranks=who, buffer=buffer)
            yield p.Allocate(ranks=who, **self.pick(BLOCKS, "block"))

    def churn(self) -> Steps:
        """One rank's allocator alone gets busy: its buffers are renewed one after the other, in other places."""
        who = (self.rank(),)
        renewed = (
            p.Allocate(ranks=who, **self.pick(BLOCKS, "block")),
            p.Free(ranks=who, buffer=self.index(2, "buffer")),
        )
        yield p.Repeat(times=2 + self.index(3, "times"), steps=renewed)

    def grow(self) -> Steps:
        """One rank's pool alone grows: buffers that the others know nothing of."""
        extra = p.Allocate(ranks=(self.rank(),), **self.pick(BLOCKS, "block"))
        yield p.Repeat(times=1 + self.index(3, "times"), steps=(extra,))

    def trade(self) -> Steps:
        """On one rank the two oldest buffers trade their addresses."""
        who, size = (self.rank(),), self.pick(SIZES, "size")
        again = p.Allocate(ranks=who, size_bytes=size, placement=self.pick(("reuse", "low"), "placement"))
        yield from (p.Free(ranks=who), p.Free(ranks=who), again, again)

    # --- channels ---

    def connect_newest(self, before: int = 0) -> p.Connect:
        """Every rank brings a window into the buffer that it made last, or into one before."""
        return p.Connect(region=self.window(self.newest(before)))

    def again(self, connect: p.Connect) -> p.Connect:
        """The same windows as before, into what is each rank's newest buffer now."""
        windows = [connect.region.of(rank) for rank in range(self.rank_count)]
        return p.Connect(
            region=operand(
                [
                    Region(buffer=buffer, offset_bytes=window.offset_bytes, size_bytes=window.size_bytes)
                    for buffer, window in zip(self.newest(), windows, strict=True)
                ]
            )
        )

    def put_newest(self, before: int = 0) -> p.Put:
        """Through the channels that were made last, or through some before."""
        return p.Put(channels=self.newest_channels(before), reach=self.reach())

    def reconnect(self) -> Steps:
        """The same region, before and after something that changed for one rank or for all."""
        connect = self.connect()
        yield connect
        third, change = divmod(self.index(12, "change"), 4)
        yield from (self.move, self.churn, self.trade, self.grow)[change]()
        yield from self.written_to(connect, at_once=third == 2)

    def written_to(self, connect: p.Connect, *, at_once: bool) -> Steps:
        """Regions are connected and written to, in two steps or in one."""
        if at_once:
            yield self.at_once(connect)
        else:
            yield connect
            yield self.put_newest()

    def renewed(self) -> Steps:
        """What was connected is given back, what lies there now is connected, and written to."""
        who = self.who()
        connect = self.connect_newest()
        yield connect
        third, let_go = divmod(self.index(9, "let go"), 3)
        if let_go == 1:
            yield p.Drop(what="channels", index=self.newest_held("channels", None))
        elif let_go == 2:
            yield self.put_newest()
        yield from self.renewal(who)
        yield from self.written_to(self.again(connect), at_once=third == 2)

    def shared(self) -> Steps:
        """A region is connected twice; one of the two is let go of, everywhere or by one rank; the other is used."""
        connect = self.connect_newest()
        yield connect
        yield connect
        older, who = self.index(2, "older"), self.who()
        yield p.Drop(ranks=who, what="channels", index=self.newest_held("channels", who, older))
        yield self.put_newest()

    def windows(self) -> Steps:
        """Several windows into a buffer are connected one after the other; the first and the last are written to."""
        count = 2 + self.index(3, "windows")
        for _ in range(count):
            yield self.connect_newest()
        yield self.put_newest()
        yield self.put_newest(count - 1)

    def crossed(self) -> Steps:
        """Two buffers lie in one order on one rank and in the other on the rest; both are connected and written to."""
        odd, size = self.rank(), self.pick(SIZES, "size")
        others = tuple(rank for rank in range(self.rank_count) if rank != odd)
        if others:
            yield p.Repeat(times=2, steps=(p.Allocate(size_bytes=size, ranks=others),))
        yield p.Allocate(size_bytes=size, ranks=(odd,), placement="high")
        yield p.Allocate(size_bytes=size, ranks=(odd,))
        for before in (1, 0):
            yield p.Connect(region=operand([Region(buffer=buffer) for buffer in self.newest(before)]))
        yield self.put_newest(1)
        yield self.put_newest()

    def pieces(self) -> Steps:
        """Memory that several allocations make up, on one rank or on all, is connected across a border."""
        yield p.Allocate(ranks=self.who(), size_bytes=self.pick(_IN_PIECES, "size"), kind="segments")
        across = self.pick(_ACROSS, "across")
        yield p.Connect(region=operand([Region(buffer=buffer, offset_bytes=across) for buffer in self.newest()]))
        yield self.put_newest()

    def let_go(self) -> Steps:
        """Channels are made, one rank lets go of them, and the others do so later or not at all."""
        yield self.connect_newest()
        who = (self.rank(),)
        yield p.Drop(ranks=who, what="channels", index=self.newest_held("channels", who))
        if self.index(2, "others"):
            yield self.connect_newest()

    def some_then_all(self) -> Steps:
        """Two neighbours meet without the others, and then all meet."""
        yield self.subset_put()
        yield self.connect_newest()
        yield self.put_newest()

    def uneven(self) -> p.AllReduce:
        """One rank brings no elements to a reduction, and the others do."""
        dtype, operation = self.pick(TYPES, "type")
        return p.AllReduce(
            send=Operand(Region()),
            receive=Operand(Region(buffer=1)),
            count=self.pick(COUNTS[2:], "count"),
            dtype=dtype,
            operation=operation,
            empty_on=(self.rank(),),
        )

    # --- groups ---

    def rebind(self) -> Steps:
        """A binding comes out, a buffer of one rank or of all is renewed, and something is bound again."""
        yield self.unbind()
        yield from self.move()
        yield self.bind()

    def reopen(self) -> Steps:
        """A group is closed and another one opened in its place."""
        yield self.close_group()
        yield self.open_group()
        yield self.bind()
        yield self.multicast_store()

    def bind_newest(self) -> p.Bind:
        """Every rank binds the buffer that it made last, in the newest group, which has nothing bound yet."""
        return p.Bind(group=max(0, len(self.alive.groups) - 1), buffer=operand(self.newest()))

    def store_newest(self) -> p.MulticastStore:
        """Through what was bound last."""
        return p.MulticastStore(binding=max(0, len(self.alive.bindings) - 1), source=self.rank())

    def no_room(self) -> Steps:
        """In a small group one rank, or all, bind more than there is room for; then something that fits."""
        capacity = self.pick(CAPACITIES[1:3], "capacity")
        yield p.OpenGroup(capacity_bytes=capacity)
        yield p.Allocate(ranks=self.who(), size_bytes=capacity + 2 * MIB)
        yield self.bind_newest()
        yield self.bind()

    def two_groups(self) -> Steps:
        """Beside a group with something bound another one is opened; what is stored reaches each one's own buffers."""
        if not self.alive.bindings:
            yield self.bind()
        yield p.OpenGroup(capacity_bytes=self.pick(CAPACITIES, "capacity"))
        yield self.bind_newest()
        yield self.store_newest()
        yield self.multicast_store()

    # --- lives ---

    def drops(self) -> Steps:
        """Two objects are made, and one rank lets go of them in the other order than the rest."""
        odd = self.rank()
        first, second = self.pick(_DROP_ORDERS, "order")
        others = tuple(rank for rank in range(self.rank_count) if rank != odd)
        if not all(self.alive.buffers):  # some rank has nothing to bring
            yield p.Allocate(size_bytes=2 * MIB)
        yield from (self.connect(), self.connect()) if first == second else (self.open_group(), self.bind())
        yield p.Drop(ranks=others, what=first)
        yield p.Drop(ranks=(odd,), what=second, index=int(first == second))  # of two alike it begins with the newer
        yield p.Drop(ranks=(odd,), what=first)
        yield p.Drop(ranks=others, what=second)

    def loop(self) -> Steps:
        """A whole life of a group, several times over."""
        orders = (
            (p.Unbind(), p.CloseGroup(), p.Free()),
            (p.Free(), p.Unbind(), p.CloseGroup()),
            (p.CloseGroup(), p.Free(), p.Drop(what="binding")),
            (p.Drop(what="binding"), p.CloseGroup(), p.Free()),
        )
        body = (
            p.Allocate(**self.pick(BLOCKS, "block")),
            p.OpenGroup(capacity_bytes=self.pick(CAPACITIES[2:], "capacity")),
            p.Bind(buffer=Operand(0)),
            *self.pick(orders, "order"),
        )
        yield p.Repeat(times=self.rounds(), steps=body)

    def connect_loop(self) -> Steps:
        """A buffer that comes and goes, connected each time, at the same place or not."""
        body = (
            p.Allocate(**self.pick(BLOCKS, "block")),
            p.Connect(region=Operand(Region(buffer=0))),
            p.Put(reach=self.reach()),
            p.Drop(what="channels"),
            p.Free(),
        )
        yield p.Repeat(times=self.rounds(), steps=body)
