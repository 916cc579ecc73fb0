"""Strategies: Programs for Hypothesis to draw.

Length is drawn first, then steps, each from the family's table of kinds. Every draw is an index into a small table, so
that a seed gives the same Programs everywhere. Tables are weighted towards what divides ranks: buffers that one rank
alone frees, moves, or addresses differently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from allranks.conformance import program as p
from allranks.conformance.program import Operand, Region, Step

MIB: Final = 1 << 20

# Around the granularity and page sizes, odd ones, and small ones.
SIZES: Final = (
    *(4096, 100_003, 2 * MIB, 2 * MIB - 4, 2 * MIB + 4, 3_000_001, 4 * MIB, 64, 5 * MIB + 12),
    *(65_536, 65_532, 4096 + 4, 4 * MIB - 1, 6 * MIB, 1),
)
# (offset, extent) of regions; extent 0 is all that follows. They overlap, touch, and lie apart.
WINDOWS: Final = (
    *((0, 0), (64, 0), (0, 0), (4096, 0), (256, 0), (1000, 0), (2 * MIB - 64, 0), (12, 0), (65_536 - 4, 0)),
    *((0, 4096), (0, 320), (2 * MIB, 0), (64, 4096), (0, 100_000), (4096, 4096), (256, 320), (12, 2 * MIB)),
)
COUNTS: Final = (1, 0, 7, 64, 33, 1000, 257, 4096)
CAPACITIES: Final = (16 * MIB, 4 * MIB, 8 * MIB, 32 * MIB)
SHIFTS: Final = (0, 1 << 30, 1 << 33, 3 << 31)
PLACEMENTS: Final[tuple[p.Placement, ...]] = ("low", "reuse", "high", "equal", "never_reuse")
# What a draw is an index into has at most as many entries, so that Hypothesis draws nothing but what is asked for.
LONGEST: Final = 100
BLOCKS: Final = tuple({"size_bytes": size, "placement": at} for at in PLACEMENTS for size in SIZES)
# And memory that several allocations make up, side by side.
ANY_BLOCKS: Final = BLOCKS + tuple(
    {"size_bytes": size, "placement": at, "kind": "segments"}
    for at in PLACEMENTS[:3]
    for size in SIZES
    if size > 2 * MIB
)
REGIONS: Final = tuple(
    Region(buffer=buffer, offset_bytes=offset, size_bytes=extent)
    for offset, extent in WINDOWS
    for buffer in (0, 1, 2, 3)
)
TYPES: Final = tuple((dtype, operation) for operation in p.OPERATIONS for dtype in p.DTYPES)
# A step of many ranks costs more: as many steps beyond the fewest as there is room for, in steps times ranks.
ROOM: Final = 40
# Of more ranks than a few, mostly near ones write to each other; 0 is all to all.
FEW: Final = 4
REACHES: Final = (2, 1, 3, 0)
DROPPED: Final[tuple[p.Dropped, ...]] = ("channels", "binding", "group")
DROP_ORDERS: Final[tuple[tuple[p.Dropped, p.Dropped], ...]] = (
    *(("channels", "channels"), ("group", "binding"), ("binding", "group")),
)
KINDS: Final[tuple[p.MemoryKind, ...]] = ("plain", "vmm")
REDUCIBLE: Final = (("float32", "sum"), ("int32", "sum"), ("bfloat16", "sum"), ("int32", "max"), ("uint64", "sum"))


@dataclass(slots=True)
class _Drawer:
    """Draws steps for a number of ranks, and knows roughly what is alive."""

    draw: DrawFn
    rank_count: int
    buffers: int = 1
    made: list[str] = field(default_factory=list)

    def index(self, below: int, label: str) -> int:
        return self.draw(st.integers(0, below - 1), label=label) if below > 1 else 0

    def pick(self, table: Sequence[Any], label: str) -> Any:
        return table[self.index(len(table), label)]

    def rank(self) -> int:
        return self.index(self.rank_count, "rank")

    def kind_and_rank(self, kinds: int, label: str) -> tuple[int, int]:
        """One of a few kinds, and a rank: one draw, where the table is not too long for one."""
        if kinds * self.rank_count <= LONGEST:
            return divmod(self.index(kinds * self.rank_count, label), self.rank_count)
        return self.index(kinds, label), self.rank()

    def diverging(self, default: Any, other: Callable[[], Any]) -> Operand[Any]:
        """A default; in two of three cases one rank, or two, bring something else."""
        count, rank = self.kind_and_rank(3, "exceptions")
        exceptions = {rank: other()} if count else {}
        if count == 2:
            exceptions[self.rank()] = other()
        return Operand(default, exceptions)

    def who(self) -> tuple[int, ...] | None:
        """Everyone, or one rank alone; as often the one as the other."""
        alone, rank = self.kind_and_rank(2, "alone")
        return (rank,) if alone else None

    def region(self) -> Region:
        found: Region = self.pick(REGIONS, "region")
        return found

    def schedule(self) -> tuple[tuple[int, int], ...]:
        """In one of three Programs up to three places where another task goes first; early ones come more often."""
        if self.index(3, "scheduled") != 2:
            return ()
        places = {
            self.index(50, "place") * self.pick((1, 1, 3, 11), "stride"): 1 + self.index(3, "choice")
            for _ in range(1 + self.index(3, "deviations"))
        }
        return tuple(sorted(places.items()))

    # --- one method a kind of step ---

    def allocate(self) -> p.Allocate:
        return p.Allocate(ranks=self.who(), **self.pick(ANY_BLOCKS, "block"))

    def allocate_either(self) -> Step:
        """Memory of either kind; nobody but collectives asks where it comes from."""
        return replace(self.allocate(), kind=self.pick(KINDS, "memory"))

    def empty_on(self) -> tuple[int, ...]:
        """Now and then some ranks bring no elements."""
        return (self.rank(),) if self.index(16, "empty") == 1 else ()

    def subset_put(self) -> Step:
        first = self.rank()
        return p.SubsetPut(
            ranks=tuple(sorted({first, (first + 1) % self.rank_count})),
            region=self.diverging(Region(buffer=self.index(3, "buffer")), self.region),
        )

    def move(self) -> Step:
        """One rank, or all, give a buffer back and get one of the same or another size at the same or another place."""
        who = self.who()
        return p.Repeat(
            times=1,
            steps=(
                p.Free(ranks=who, buffer=self.index(3, "buffer")),
                p.Allocate(ranks=who, **self.pick(BLOCKS, "block")),
            ),
        )

    def churn(self) -> Step:
        """One rank's allocator alone gets busy: its buffers are renewed one after the other, in other places."""
        who = (self.rank(),)
        renewed = (
            p.Allocate(ranks=who, **self.pick(BLOCKS, "block")),
            p.Free(ranks=who, buffer=self.index(2, "buffer")),
        )
        return p.Repeat(times=2 + self.index(3, "times"), steps=renewed)

    def grow(self) -> Step:
        """One rank's pool alone grows: buffers that the others know nothing of."""
        extra = p.Allocate(ranks=(self.rank(),), **self.pick(BLOCKS, "block"))
        return p.Repeat(times=1 + self.index(3, "times"), steps=(extra,))

    def trade(self) -> Step:
        """On one rank two buffers trade their addresses."""
        who, size = (self.rank(),), self.pick(SIZES, "size")
        again = p.Allocate(ranks=who, size_bytes=size, placement=self.pick(("reuse", "low"), "placement"))
        return p.Repeat(times=1, steps=(p.Free(ranks=who), p.Free(ranks=who), again, again))

    def reconnect(self) -> Step:
        """The same region, before and after something that changed for one rank or for all."""
        connect = self.connect()
        change = self.pick((self.move, self.churn, self.trade, self.grow), "change")()
        return p.Repeat(times=1, steps=(connect, change, connect))

    def rebind(self) -> Step:
        """A binding comes out, a buffer of one rank or of all is renewed, and something is bound again."""
        return p.Repeat(times=1, steps=(self.unbind(), self.move(), self.bind()))

    def reopen(self) -> Step:
        """A group is closed and another one opened in its place."""
        return p.Repeat(times=1, steps=(self.close_group(), self.open_group(), self.bind(), self.multicast_store()))

    def drops(self) -> Step:
        """Two objects are made, and one rank lets go of them in the other order than the rest."""
        odd = self.rank()
        first, second = self.pick(DROP_ORDERS, "order")
        others = tuple(rank for rank in range(self.rank_count) if rank != odd)
        made = (self.connect(), self.connect()) if first == second else (self.open_group(), self.bind())
        return p.Repeat(
            times=1,
            steps=(
                *made,
                p.Drop(ranks=others, what=first),
                p.Drop(ranks=(odd,), what=second, index=int(first == second)),  # of two alike it begins with the newer
                p.Drop(ranks=(odd,), what=first),
                p.Drop(ranks=others, what=second),
            ),
        )

    def free(self) -> Step:
        return p.Free(ranks=self.who(), buffer=self.index(4, "buffer"))

    def connect(self) -> Step:
        return p.Connect(region=self.diverging(self.region(), self.region))

    def put(self) -> Step:
        return p.Put(
            channels=self.index(3, "channels"),
            piece_bytes=self.pick((64, 1, 13, 256), "piece"),
            reach=self.pick(REACHES, "reach") if self.rank_count > FEW else 0,
        )

    def open_group(self) -> Step:
        return p.OpenGroup(capacity_bytes=self.pick(CAPACITIES, "capacity"))

    def bind(self) -> Step:
        return p.Bind(
            group=self.index(2, "group"),
            buffer=self.diverging(self.index(4, "buffer"), lambda: self.index(4, "buffer")),
        )

    def multicast_store(self) -> Step:
        return p.MulticastStore(binding=self.index(4, "binding"), source=self.rank())

    def multicast_reduce(self) -> Step:
        dtype, operation = self.pick(REDUCIBLE, "type")
        return p.MulticastReduce(
            binding=self.index(4, "binding"), count=self.pick((4, 1, 32, 64), "count"), dtype=dtype, operation=operation
        )

    def unbind(self) -> Step:
        return p.Unbind(binding=self.index(4, "binding"))

    def close_group(self) -> Step:
        return p.CloseGroup(group=self.index(2, "group"))

    def drop(self) -> Step:
        return p.Drop(ranks=self.who(), what=self.pick(DROPPED, "what"), index=self.index(3, "index"))

    def all_reduce(self) -> Step:
        dtype, operation = self.pick(TYPES, "type")
        return p.AllReduce(
            send=self.diverging(self.region(), self.region),
            receive=self.diverging(self.region(), self.region),
            count=self.pick(COUNTS, "count"),
            dtype=dtype,
            operation=operation,
            empty_on=self.empty_on(),
        )

    def all_gather(self) -> Step:
        return p.AllGather(
            send=self.diverging(self.region(), self.region),
            receive=self.diverging(self.region(), self.region),
            count=self.pick(COUNTS[:-1], "count"),
            dtype=self.pick(p.DTYPES, "dtype"),
            empty_on=self.empty_on(),
        )

    def rounds(self) -> int:
        """As many rounds as show that something grows, and more where they cost little."""
        return 5 if self.rank_count <= FEW else 3

    def loop(self) -> Step:
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
        return p.Repeat(times=self.rounds(), steps=body)

    def connect_loop(self) -> Step:
        """A buffer that comes and goes, connected each time, at the same place or not."""
        body = (
            p.Allocate(**self.pick(BLOCKS, "block")),
            p.Connect(region=Operand(Region(buffer=0))),
            p.Put(reach=0 if self.rank_count <= FEW else REACHES[0]),
            p.Drop(what="channels"),
            p.Free(),
        )
        return p.Repeat(times=self.rounds(), steps=body)


# What each family is made of; a kind that is listed twice comes twice as often.
TABLES: Final[dict[str, tuple[str, ...]]] = {
    "RDV": (
        *("connect", "connect", "move", "allocate", "put", "all_reduce", "all_gather", "free"),
        *("reconnect", "churn", "grow", "connect", "subset_put", "drop"),
    ),
    "CACHE": (
        *("put", "connect", "connect", "move", "put", "allocate", "free", "connect_loop"),
        *("reconnect", "put", "trade", "churn"),
    ),
    "NVLS": (
        *("bind", "bind", "open_group", "multicast_store", "multicast_reduce", "unbind", "allocate", "close_group"),
        *("rebind", "multicast_store", "reopen", "move"),
    ),
    "LIFE": (
        *("loop", "drop", "bind", "connect", "open_group", "free", "allocate", "connect_loop"),
        *("drops", "connect", "grow", "bind"),
    ),
    # No connect here: peers need not reach memory of the plain kind.
    "COLL": ("all_reduce", "all_gather", "all_reduce", "all_gather", "move", "allocate_either", "all_reduce", "churn"),
}

# What a Program of the family starts with, so that its steps have something to refer to.
_STARTS: Final[dict[str, tuple[Step, ...]]] = {
    "RDV": (p.Allocate(size_bytes=2 * MIB), p.Connect(region=Operand(Region()))),
    "CACHE": (p.Allocate(size_bytes=2 * MIB), p.Connect(region=Operand(Region()))),
    "NVLS": (
        p.Allocate(size_bytes=3_000_001),
        p.Allocate(size_bytes=2 * MIB),
        p.OpenGroup(capacity_bytes=16 * MIB),
    ),
    "LIFE": (),
    "COLL": (p.Allocate(size_bytes=2 * MIB), p.Allocate(size_bytes=5 * MIB + 12)),
}


def programs(
    family: str, *, max_ranks: int, min_ranks: int = 1, min_steps: int = 3, max_steps: int = 11
) -> SearchStrategy[p.Program]:
    """Programs of a family.

    Parameters
    ----------
    family : str
        One of the keys of `TABLES`.
    max_ranks, min_ranks : int
        Ranks at most, and at least. A Program shrinks towards two.
    min_steps, max_steps : int
        Steps beside those that the family starts with; of many ranks fewer, see `ROOM`.
    """
    counts = [count for count in (2, *range(3, max_ranks + 1), 1) if min_ranks <= count <= max_ranks]

    @st.composite
    def drawn(draw: DrawFn) -> p.Program:
        drawer = _Drawer(draw, draw(st.sampled_from(counts), label="ranks"))
        longest = max(min_steps, min(max_steps, min_steps + ROOM // drawer.rank_count))
        length = draw(st.integers(min_steps, longest), label="length")
        table = TABLES[family]
        steps = [getattr(drawer, drawer.pick(table, "kind"))() for _ in range(length)]
        shift = drawer.diverging(0, lambda: drawer.pick(SHIFTS, "shift"))
        return p.Program(
            rank_count=drawer.rank_count,
            steps=(*_STARTS[family], *steps),
            seed=drawer.index(100, "seed"),
            shift_bytes=shift,
            schedule=drawer.schedule(),
        )

    return drawn()
