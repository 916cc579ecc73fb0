"""Drawing a Program: the tables that draws are indices into, and one method a kind of step.

Every draw is an index into a small table, so that a seed gives the same Programs everywhere. What was drawn so far is
followed by the same resolver that Worlds and checks use, so that a step can mean the newest buffer or channels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from allranks.conformance import program as p
from allranks.conformance.plan import Resolver
from allranks.conformance.program import Operand, Region, Step

T = TypeVar("T")

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
GATHERED_BY_MANY: Final = (1, 0, 7, 64, 33, 257)  # a rank: what is gathered is as many times as large
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
# How many ranks are few: more of them do not all write to each other as a rule, and go fewer rounds.
FEW: Final = 4
REACHES: Final = (2, 1, 3, 1, 2, 3, 1, 0)
DROPPED: Final[tuple[p.Dropped, ...]] = ("channels", "binding", "group")
KINDS: Final[tuple[p.MemoryKind, ...]] = ("plain", "vmm")
REDUCIBLE: Final = (("float32", "sum"), ("int32", "sum"), ("bfloat16", "sum"), ("int32", "max"), ("uint64", "sum"))


_BELOW: Final = [st.integers(0, max(0, below - 1)) for below in range(LONGEST + 1)]


@dataclass(slots=True)
class Drawer:
    """Draws steps for a number of ranks, and follows what is alive."""

    draw: DrawFn
    rank_count: int
    steps: list[Step] = field(default_factory=list)
    _resolver: Resolver = field(init=False)
    _followed: int = 0

    def __post_init__(self) -> None:
        self._resolver = Resolver(self.rank_count)

    def index(self, below: int, label: str) -> int:
        """Draw a number below another one."""
        return self.draw(_BELOW[below], label=label) if below > 1 else 0

    def pick(self, table: Sequence[Any], label: str) -> Any:
        """Draw an entry of a table."""
        return table[self.index(len(table), label)]

    def rank(self) -> int:
        """Draw a rank."""
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

    @property
    def step_count(self) -> int:
        """How many steps there are so far, with loops written out; a compound step is one."""
        return sum(map(_width, self.steps))

    # --- what is alive ---

    @property
    def alive(self) -> Resolver:
        """What is alive after the steps so far, which are followed when it is asked for."""
        for step in self.steps[self._followed :]:
            self._follow(step)
        self._followed = len(self.steps)
        return self._resolver

    def _follow(self, step: Step) -> None:
        if isinstance(step, p.Repeat):
            for _ in range(step.times):
                for inner in step.steps:
                    self._follow(inner)
        else:
            for part in p.parts_of(step):
                self._resolver.resolve(part)

    def newest(self, before: int = 0) -> list[int]:
        """Give the index of the buffer that each rank made last, or of one of those before it."""
        return [max(0, len(live) - 1 - before) for live in self.alive.buffers]

    def newest_channels(self, before: int = 0) -> int:
        """Give the index of the channels that were made last, or of some before them."""
        return max(0, len(self.alive.channels) - 1 - before)

    def newest_held(self, what: p.Dropped, ranks: tuple[int, ...] | None, before: int = 0) -> int:
        """Give the index in a `Drop` by these ranks of what was made last, or of one before it."""
        asked = set(range(self.rank_count) if ranks is None else ranks)
        return max(0, sum(bool(holders & asked) for holders in self.alive.held.get(what, {}).values()) - 1 - before)

    def window(self, buffers: Sequence[int]) -> Operand[Region]:
        """A window into a buffer of each rank; in one of three cases one rank has another window."""
        offset, extent = self.pick(WINDOWS, "window")
        regions = [Region(buffer=buffer, offset_bytes=offset, size_bytes=extent) for buffer in buffers]
        apart, rank = self.kind_and_rank(3, "apart")
        if apart == 2:
            offset, extent = self.pick(WINDOWS, "window")
            regions[rank] = Region(buffer=buffers[rank], offset_bytes=offset, size_bytes=extent)
        return operand(regions)

    def region(self) -> Region:
        """Draw a window into some buffer."""
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
        """Memory that peers can reach, of one piece or of several."""
        return p.Allocate(ranks=self.who(), **self.pick(ANY_BLOCKS, "block"))

    def allocate_either(self) -> p.Allocate:
        """Memory of either kind; nobody but collectives asks where it comes from."""
        return replace(self.allocate(), kind=self.pick(KINDS, "memory"))

    def put(self) -> p.Put:
        """Through the newest channels as often as through older ones."""
        newest = self.newest_channels()
        return p.Put(
            channels=self.pick((newest, 0, newest, 1), "channels"),
            piece_bytes=self.pick((64, 1, 13, 256), "piece"),
            reach=self.reach(),
        )

    def reach(self) -> int:
        """Of many ranks mostly near ones write to each other."""
        return int(self.pick(REACHES, "reach")) if self.rank_count > FEW else 0

    def rounds(self) -> int:
        """As many rounds as show that something grows; among many ranks, as show that something comes again."""
        return 5 if self.rank_count <= FEW else 2

    def count(self, table: Sequence[int]) -> tuple[int, tuple[int, ...]]:
        """How many elements, and the ranks that bring none at all, of which there is one in one of twelve cases."""
        twelfth, place = divmod(self.index(12 * len(table), "count"), len(table))
        return table[place], (self.rank(),) if twelfth == 1 else ()

    def subset_put(self) -> p.SubsetPut:
        """Two neighbours and nobody else, or one rank alone."""
        alone, first = self.kind_and_rank(3, "some")
        return p.SubsetPut(
            ranks=(first,) if alone == 1 else tuple(sorted({first, (first + 1) % self.rank_count})),
            region=self.diverging(Region(buffer=self.index(3, "buffer")), self.region),
        )

    def free(self) -> p.Free:
        """One of the older buffers."""
        return p.Free(ranks=self.who(), buffer=self.index(4, "buffer"))

    def connect(self) -> p.Connect:
        """One rank or two may bring another region than the rest."""
        return p.Connect(region=self.diverging(self.region(), self.region))

    def exchange(self) -> p.Exchange:
        """A connect that is written through at once."""
        return self.at_once(self.connect())

    def at_once(self, connect: p.Connect) -> p.Exchange:
        """The regions of a connect, and the writing in the same step."""
        return p.Exchange(region=connect.region, reach=self.reach())

    def open_group(self) -> p.OpenGroup:
        """A group, small or not."""
        return p.OpenGroup(capacity_bytes=self.pick(CAPACITIES, "capacity"))

    def bind(self) -> p.Bind:
        """One rank or two may bring another buffer than the rest."""
        return p.Bind(
            group=self.index(2, "group"),
            buffer=self.diverging(self.index(4, "buffer"), lambda: self.index(4, "buffer")),
        )

    def multicast_store(self) -> p.MulticastStore:
        """From any rank."""
        return p.MulticastStore(binding=self.index(4, "binding"), source=self.rank())

    def multicast_reduce(self) -> p.MulticastReduce:
        """Of a type and operation that the hardware has."""
        dtype, operation = self.pick(REDUCIBLE, "type")
        return p.MulticastReduce(
            binding=self.index(4, "binding"), count=self.pick((4, 1, 32, 64), "count"), dtype=dtype, operation=operation
        )

    def unbind(self) -> p.Unbind:
        """One of the bindings."""
        return p.Unbind(binding=self.index(4, "binding"))

    def close_group(self) -> p.CloseGroup:
        """One of the groups."""
        return p.CloseGroup(group=self.index(2, "group"))

    def drop(self) -> p.Drop:
        """One rank, or all, let go of something."""
        return p.Drop(ranks=self.who(), what=self.pick(DROPPED, "what"), index=self.index(3, "index"))

    def all_reduce(self) -> p.AllReduce:
        """Regions, types and operations of all kinds."""
        dtype, operation = self.pick(TYPES, "type")
        count, empty = self.count(COUNTS)
        return p.AllReduce(
            send=self.diverging(self.region(), self.region),
            receive=self.diverging(self.region(), self.region),
            count=count,
            dtype=dtype,
            operation=operation,
            empty_on=empty,
        )

    def all_gather(self) -> p.AllGather:
        """Regions and types of all kinds."""
        count, empty = self.count(COUNTS[:-1] if self.rank_count <= FEW else GATHERED_BY_MANY)
        return p.AllGather(
            send=self.diverging(self.region(), self.region),
            receive=self.diverging(self.region(), self.region),
            count=count,
            dtype=self.pick(p.DTYPES, "dtype"),
            empty_on=empty,
        )


def _width(step: Step) -> int:
    return step.times * sum(map(_width, step.steps)) if isinstance(step, p.Repeat) else 1


def operand(values: Sequence[T]) -> Operand[T]:
    """Make an operand of what each rank brings: what most bring is the default."""
    ((default, _),) = Counter(values).most_common(1)
    return Operand(default, {rank: value for rank, value in enumerate(values) if value != default})
