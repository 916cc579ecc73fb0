"""The Model: what the steps of a Program mean. The definition of the semantics, in plain Python.

It says which bytes each step puts where, follows what the user's buffers then hold, and holds the *set* of states that
a communicator may be in. Contents are sparse: a buffer of 1 GiB in which 64 bytes are known costs 64 bytes. It knows
nothing of any backend; Worlds use it for the data that users bring, checks for what has to come of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

from allranks.conformance import data
from allranks.conformance import program as p
from allranks.conformance.plan import Part, Planned
from allranks.conformance.program import Program

State = Literal["usable", "broken"]

PROBE_DTYPE: Final = "int32"
_PROBE_COUNT: Final = 64
_PROBE_STEP: Final = 1_000_000  # no step of a Program has that number
_WINDOW_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class Stretch:
    """Bytes at an offset of a rank's buffer."""

    rank: int
    buffer: int
    offset_bytes: int
    stored: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """What a collective step does when it succeeds.

    Parameters
    ----------
    given : tuple of Stretch
        What the user writes into the own buffers before.
    written : tuple of Stretch
        What the communicator writes: these bytes, and no others of any buffer.
    told : bytes
        What every rank is told by the call itself.
    """

    given: tuple[Stretch, ...] = ()
    written: tuple[Stretch, ...] = ()
    told: bytes = b""


def store_windows(size_bytes: int) -> list[tuple[int, int]]:
    """Give (offset, size) of what `MulticastStore` writes of a buffer: all of a small one, else ends and middle.

    Offsets are multiples of 4; the last window reaches the last byte.
    """
    if size_bytes <= 4 * _WINDOW_BYTES:
        return [(0, size_bytes)]
    middle = size_bytes // 2 // 4 * 4
    last = (size_bytes - _WINDOW_BYTES) // 4 * 4
    return [(0, _WINDOW_BYTES), (middle, _WINDOW_BYTES), (last, size_bytes - last)]


def piece_of(program: Program, number: int, rank: int, peer: int, size: int) -> bytes:
    """Give what `rank` puts into the region of `peer` in step `number`."""
    # One stretch of data a rank, of which each peer gets its own part.
    return pieces_of(program, number, rank, size)[peer * size : (peer + 1) * size]


def pieces_of(program: Program, number: int, rank: int, size: int) -> bytes:
    """Give what `rank` puts into the regions of all peers in step `number`, one after the other."""
    return data.random_bytes(program.seed, rank, number, size * program.rank_count)


def stored_at(program: Program, number: int, offset_bytes: int, size: int) -> bytes:
    """Give what `MulticastStore` step `number` writes at an offset of the bound buffers."""
    return data.random_bytes(program.seed, offset_bytes % 8191, number, size)


def operand_of(program: Program, step: Planned, rank: int) -> data.Bits:
    """Give what a rank brings to a reduction or a gathering."""
    collective = step.step
    assert isinstance(collective, p.AllReduce | p.AllGather | p.MulticastReduce)
    return data.operand(
        seed=program.seed,
        rank=rank,
        step=step.number,
        count=step.count,
        dtype=collective.dtype,
        operation="min" if isinstance(collective, p.AllGather) else collective.operation,
        rank_count=program.rank_count,
    )


def probe_operand(program: Program, rank: int) -> data.Bits:
    """Give what a rank brings to the sum over all ranks that tells a usable communicator from a broken one."""
    return data.operand(
        seed=program.seed,
        rank=rank,
        step=_PROBE_STEP,
        count=_PROBE_COUNT,
        dtype=PROBE_DTYPE,
        operation="sum",
        rank_count=program.rank_count,
    )


def probe_result(program: Program) -> bytes:
    """Give what comes of it."""
    operands = [probe_operand(program, rank) for rank in range(program.rank_count)]
    return data.reduced(operands, PROBE_DTYPE, "sum").tobytes()


def meaning_of(program: Program, step: Planned) -> Meaning:
    """Say what a step does when it succeeds; steps that touch no buffer mean nothing here."""
    ranks = range(program.rank_count)
    match step.step:
        case p.Put():
            size, count = step.count, program.rank_count
            return Meaning(
                written=tuple(
                    _into(part, peer, rank * size, piece_of(program, step.number, rank, peer, size))
                    for peer, part in enumerate(step.receive)
                    for rank in sorted((peer - distance) % count for distance in step.step.distances(count))
                )
            )
        case p.SubsetPut():
            size = step.count
            return Meaning(
                written=tuple(
                    _into(part, peer, rank * size, piece_of(program, step.number, rank, peer, size))
                    for peer, part in enumerate(step.parts)
                    for rank in step.ranks
                    if part is not None and rank != peer
                )
            )
        case p.MulticastStore():
            windows = store_windows(min(part.size_bytes for part in step.receive))
            stored = [(offset, stored_at(program, step.number, offset, size)) for offset, size in windows]
            return Meaning(
                written=tuple(
                    _into(part, rank, offset, text) for rank, part in enumerate(step.receive) for offset, text in stored
                )
            )
        case p.MulticastReduce(dtype=dtype, operation=operation):
            operands = [operand_of(program, step, rank) for rank in ranks]
            return Meaning(given=_each(step.receive, operands), told=data.reduced(operands, dtype, operation).tobytes())
        case p.AllReduce(dtype=dtype, operation=operation):
            operands = [operand_of(program, step, rank) for rank in ranks]
            result = data.reduced(operands, dtype, operation).tobytes()
            return Meaning(given=_each(step.parts, operands), written=_all(step.receive, result))
        case p.AllGather():
            operands = [operand_of(program, step, rank) for rank in ranks]
            result = b"".join(operand.tobytes() for operand in operands)
            return Meaning(given=_each(step.parts, operands), written=_all(step.receive, result))
        case _:
            return Meaning()


def _into(part: Part, rank: int, offset: int, stored: bytes) -> Stretch:
    return Stretch(rank, part.buffer, part.offset_bytes + offset, stored)


def _each(parts: Iterable[Part | None], operands: list[data.Bits]) -> tuple[Stretch, ...]:
    pairs = enumerate(zip(parts, operands, strict=True))
    return tuple(_into(part, rank, 0, operand.tobytes()) for rank, (part, operand) in pairs if part is not None)


def _all(parts: tuple[Part, ...], result: bytes) -> tuple[Stretch, ...]:
    return tuple(_into(part, rank, 0, result) for rank, part in enumerate(parts))


@dataclass(slots=True)
class Contents:
    """What is known of a buffer: disjoint runs of bytes by offset, each with the step that put it there."""

    runs: dict[int, tuple[bytes, int]] = field(default_factory=dict)

    def forget(self, offset: int, size: int) -> None:
        """Know nothing of [offset, offset + size) any more."""
        end = offset + size
        for start, (stored, step) in list(self.runs.items()):
            stop = start + len(stored)
            if start < end and offset < stop:
                del self.runs[start]
                if start < offset:
                    self.runs[start] = (stored[: offset - start], step)
                if end < stop:
                    self.runs[end] = (stored[end - start :], step)

    def write(self, offset: int, stored: bytes, step: int) -> None:
        """Put bytes at an offset."""
        if stored:
            self.forget(offset, len(stored))
            self.runs[offset] = (stored, step)

    def __iter__(self) -> Iterator[tuple[int, bytes, int]]:
        """Give (offset, bytes, step) in order of offsets."""
        for offset, (stored, step) in sorted(self.runs.items()):
            yield offset, stored, step


@dataclass(slots=True)
class Model:
    """What is so after the steps that were followed.

    Attributes
    ----------
    contents : mapping of (rank, buffer) to Contents
        What the live buffers hold, as far as it is known.
    states : frozenset
        What a communicator may be: usable is "right bytes", broken is "an error every time". Always the same on all
        ranks; which of the two it is after a failure is the library's choice.
    """

    program: Program
    contents: dict[tuple[int, int], Contents] = field(default_factory=dict)
    states: frozenset[State] = frozenset({"usable"})

    def follow(self, step: Planned, *, well: bool, meaning: Meaning | None = None) -> None:
        """Follow a step that ended well on all ranks that do it, or did not on some."""
        if not step.applies:
            return
        if isinstance(step.step, p.Allocate | p.Free):
            for rank in step.ranks:
                part = step.parts[rank]
                if part is not None:
                    self.contents.pop((rank, part.buffer), None)
            return
        effect = meaning or meaning_of(self.program, step)
        for stretch in (*effect.given, *effect.written):
            contents = self.contents.setdefault((stretch.rank, stretch.buffer), Contents())
            if well:
                contents.write(stretch.offset_bytes, stretch.stored, step.number)
            else:
                contents.forget(stretch.offset_bytes, len(stretch.stored))
        if not well and step.collective:
            self.states = frozenset({"usable", "broken"})


def touched(program: Program, step: Planned) -> Iterator[tuple[int, Part]]:
    """Give where a step brings or puts bytes, as (rank, part), without the bytes."""
    match step.step:
        case p.Put():
            size = step.count * program.rank_count
            for rank, part in enumerate(step.receive):
                yield rank, Part(part.buffer, part.offset_bytes, size)
        case p.SubsetPut():
            for rank in step.ranks:
                if (region := step.parts[rank]) is not None:
                    yield rank, Part(region.buffer, region.offset_bytes, step.count * program.rank_count)
        case p.MulticastStore():
            windows = store_windows(min(part.size_bytes for part in step.receive))
            for rank, part in enumerate(step.receive):
                for offset, size in windows:
                    yield rank, Part(part.buffer, part.offset_bytes + offset, size)
        case p.MulticastReduce(dtype=dtype):
            for rank, part in enumerate(step.receive):
                yield rank, Part(part.buffer, part.offset_bytes, step.count * data.ITEM_BYTES[dtype])
        case p.AllReduce() | p.AllGather():
            for parts in (step.parts, step.receive):
                for rank, brought in enumerate(parts):
                    if brought is not None:
                        yield rank, brought
        case _:
            return


def footprints(program: Program, plan: Iterable[Planned]) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Give, by (rank, buffer), the disjoint ranges (offset, size) that the steps together touch."""
    spans: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for step in plan:
        if step.applies:
            for rank, part in touched(program, step):
                if part.size_bytes:
                    end = part.offset_bytes + part.size_bytes
                    spans.setdefault((rank, part.buffer), []).append((part.offset_bytes, end))
    return {key: _merged(found) for key, found in spans.items()}


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join spans (first, end) that touch; gives (offset, size)."""
    joined: list[list[int]] = []
    for first, end in sorted(spans):
        if joined and first <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([first, end])
    return [(first, end - first) for first, end in joined]
