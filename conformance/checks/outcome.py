"""What a check says, and what it looks at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from allranks.conformance.plan import Part, Planned, planned
from allranks.conformance.program import Program
from allranks.conformance.trace import Event, Trace, Written


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One requirement broken.

    Parameters
    ----------
    requirement : str
        Which: ``"CACHE-2"``.
    rank, step : int
        Where it showed; rank -1 is all of them, step -1 is the end of the run.
    operation : str
        The step's operation.
    evidence : str
        What was seen, and what should have been.
    """

    requirement: str
    rank: int
    step: int
    operation: str
    evidence: str


@dataclass(slots=True)
class Outcome:
    """How much was evaluated, how much could not be told, and what was violated."""

    evaluated: int = 0
    inconclusive: int = 0
    violations: list[Violation] = field(default_factory=list)


@dataclass
class View:
    """A Program with its plan and its Trace."""

    program: Program
    trace: Trace
    plan: list[Planned]

    @staticmethod
    def of(program: Program, trace: Trace) -> View:
        """Resolve the Program."""
        return View(program, trace, list(planned(program)))

    @property
    def ranks(self) -> range:
        """All ranks."""
        return range(self.program.rank_count)

    def events(self, step: Planned) -> list[Event]:
        """Give what the step was on each rank."""
        return [self.trace.events[rank][step.number] for rank in self.ranks]

    def collective(self, *kinds: type) -> Iterator[tuple[Planned, list[Event]]]:
        """Give the steps of these kinds that apply, with their events."""
        for step in self.plan:
            if step.applies and isinstance(step.step, kinds):
                yield step, self.events(step)

    def all_ok(self, events: list[Event]) -> bool:
        """Whether the step ended well everywhere."""
        return all(event.status == "ok" for event in events)

    @cached_property
    def trouble(self) -> int | None:
        """Number of the first step that some rank did not end well."""
        return self.trace.first_trouble()

    @cached_property
    def user_failed(self) -> bool:
        """Whether some allocation or free of the user's own went wrong."""
        return any(
            self.trace.events[rank][step.number].status == "error"
            for step in self.plan
            if step.applies and not step.collective
            for rank in step.ranks
        )

    def before_trouble(self, step: Planned) -> bool:
        """Whether everything was well up to and including this step."""
        return self.trouble is None or step.number < self.trouble

    @cached_property
    def buffers(self) -> dict[int, list[tuple[int, int, int, int, int]]]:
        """Where the user's buffers lie: allocation -> (rank, buffer, offset in it, offset in the buffer, size)."""
        places: dict[int, list[tuple[int, int, int, int, int]]] = {}
        for (rank, buffer), placed in self.trace.placed.items():
            inside = 0
            for allocation, offset, size in placed.pieces:
                places.setdefault(allocation, []).append((rank, buffer, offset, inside, size))
                inside += size
        return places

    @cached_property
    def written(self) -> dict[int, list[Written]]:
        """Writes of the communicator by step."""
        by_step: dict[int, list[Written]] = {}
        for write in self.trace.written or ():
            by_step.setdefault(write.step, []).append(write)
        return by_step

    def stray_write(self, step: Planned, allowed: list[tuple[int, Part]]) -> tuple[int, int, str] | None:
        """Find a write of the step to a user's buffer outside of the allowed parts, each (rank, part).

        Returns
        -------
        tuple of (rank that wrote, rank whose buffer it is, text), or None
        """
        for write in self.written.get(step.number, ()):
            for rank, buffer, at, inside, size in self.buffers.get(write.allocation, ()):
                first = max(write.offset_bytes, at)
                last = min(write.offset_bytes + write.size_bytes, at + size)
                if first >= last:
                    continue
                start, end = first - at + inside, last - at + inside
                if not _covered(start, end, [p for owner, p in allowed if owner == rank and p.buffer == buffer]):
                    text = (
                        f"rank {write.rank} wrote bytes {start} to {end - 1} of rank {rank}'s buffer {buffer}, "
                        "which the step has no business with"
                    )
                    return write.rank, rank, text
        return None


def _covered(start: int, end: int, parts: list[Part]) -> bool:
    """Whether the union of the parts covers [start, end)."""
    for part in sorted(parts, key=lambda part: part.offset_bytes):
        if part.offset_bytes <= start < part.offset_bytes + part.size_bytes:
            start = part.offset_bytes + part.size_bytes
    return start >= end


def difference(seen: bytes, wanted: bytes) -> str:
    """Say where two byte strings part."""
    if len(seen) != len(wanted):
        return f"{len(seen)} bytes instead of {len(wanted)}"
    first = next(index for index, (a, b) in enumerate(zip(seen, wanted, strict=True)) if a != b)
    count = sum(a != b for a, b in zip(seen, wanted, strict=True))
    got, want = seen[first : first + 8].hex(), wanted[first : first + 8].hex()
    return f"byte {first}: got {got}, wanted {want} ({count} of {len(wanted)} bytes differ)"
