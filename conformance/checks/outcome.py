"""What a check says, and what it looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from allranks.conformance import program as p
from allranks.conformance.checks.call_log import CallLog
from allranks.conformance.model import Meaning, Model, meaning_of, probe_result
from allranks.conformance.plan import Planned
from allranks.conformance.program import Program
from allranks.conformance.trace import LEFT, Event, Trace

T = TypeVar("T")


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


# Errors that say that others did not come.
ABSENCE = ("Timeout", "PeerLost", "Stalled")


@dataclass(slots=True)
class Outcome:
    """How much was evaluated, how much could not be told, and what was violated."""

    evaluated: int = 0
    inconclusive: int = 0
    violations: list[Violation] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Written:
    """Bytes [first, end) of an allocation that a rank wrote."""

    rank: int
    allocation: int
    first: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stray:
    """A write that no step meant: who wrote, whose buffer it is."""

    writer: int
    owner: int
    evidence: str


@dataclass
class View:
    """A Program with its plan and its Trace."""

    program: Program
    trace: Trace
    plan: list[Planned]
    meanings: dict[int, Meaning] = field(default_factory=dict)
    _strays: dict[int, Stray | None] = field(default_factory=dict)
    _seen: dict[Callable[..., Any], Any] = field(default_factory=dict)

    @property
    def ranks(self) -> range:
        """All ranks."""
        return range(self.program.rank_count)

    def once(self, look: Callable[[View], T]) -> T:
        """Give what several checks want of the Trace, which is looked for once."""
        if look not in self._seen:
            self._seen[look] = look(self)
        found: T = self._seen[look]
        return found

    @cached_property
    def _by_step(self) -> list[list[Event]]:
        return [list(events) for events in zip(*self.trace.events, strict=True)]

    @cached_property
    def applied(self) -> list[Planned]:
        """Steps that somebody does."""
        return [step for step in self.plan if step.applies]

    def events(self, step: Planned) -> list[Event]:
        """Give what the step was on each rank."""
        return self._by_step[step.number]

    def collective(self, *kinds: type) -> Iterator[tuple[Planned, list[Event]]]:
        """Give the collective steps of these kinds (all without any) that apply, with their events."""
        for step in self.applied:
            # RDV-5 judges steps to which ranks bring unequal counts.
            if (isinstance(step.step, kinds) if kinds else step.collective) and not step.unequal:
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
            if step.applies and isinstance(step.step, p.Allocate | p.Free)
            for rank in step.ranks
        )

    @cached_property
    def lost(self) -> bool:
        """Whether something else than a refusal by all ranks happened: ranks may have parted."""
        for step in self.plan:
            statuses = {self.trace.events[rank][step.number].status for rank in step.ranks}
            if step.follows and "not_reached" in statuses and self._told_before(step):
                statuses.discard("not_reached")
            if statuses & {"stalled", "not_reached"} or ("error" in statuses and len(statuses) > 1):
                return True
            if any(self.trace.events[rank][step.number].error_type in ABSENCE for rank in step.ranks):
                return True
        return False

    def _told_before(self, step: Planned) -> bool:
        """Whether ranks did not reach a later part of a compound step for no other reason than an error before it."""
        found = [(events[step.number - 1].status, events[step.number].status) for events in self.trace.events]
        return all(before == "error" for before, status in found if status == "not_reached")

    def only_trouble(self, step: Planned) -> bool:
        """Whether nothing but this step went wrong."""
        return self.trouble == step.number and all(
            event.status not in ("error", "stalled", "not_reached")
            for events in self.trace.events
            for number, event in enumerate(events)
            if number != step.number
        )

    @staticmethod
    def describe(event: Event) -> str:
        """Say how a step ended."""
        if event.raised_at:
            return f"{event.error_type}: {event.error}, raised at {' < '.join(reversed(event.raised_at))}"
        if event.error_type in LEFT:
            return event.error
        return {"stalled": "waits for ever", "not_reached": "was never reached", "unsupported": "cannot do it"}.get(
            event.status, event.error
        )

    @cached_property
    def calls(self) -> CallLog:
        """The driver calls."""
        return CallLog(self.trace.calls, self.program.rank_count)

    @cached_property
    def buffers(self) -> dict[int, list[tuple[int, int, int]]]:
        """Whose an allocation is, as a whole: (rank, buffer, offset of the buffer's byte 0 in it)."""
        places: dict[int, list[tuple[int, int, int]]] = {}
        for (rank, buffer), placed in self.trace.placed.items():
            inside = 0
            for allocation, offset, size in placed.pieces:
                places.setdefault(allocation, []).append((rank, buffer, offset - inside))
                inside += size
        return places

    @cached_property
    def written(self) -> dict[int, list[Written]]:
        """Writes of the communicator to the user's buffers by step; what one rank wrote side by side is one."""
        log = self.trace.written
        if log is None:
            return {}
        allocations = log["allocation"]
        known = np.zeros(max(max(self.buffers, default=0), int(allocations.max(initial=0))) + 1, dtype=bool)
        known[list(self.buffers)] = True  # numbers are small, counted on the node
        log = log[known[allocations]]
        if not len(log):
            return {}
        log = log[np.lexsort((log["offset_bytes"], log["allocation"], log["rank"], log["step"]))]
        same = np.logical_and.reduce([log[name][1:] == log[name][:-1] for name in ("step", "rank", "allocation")])
        ends = log["offset_bytes"] + log["size_bytes"]
        starts = np.flatnonzero(np.concatenate(([True], ~(same & (log["offset_bytes"][1:] == ends[:-1])))))
        by_step: dict[int, list[Written]] = {}
        columns = [log[name][starts].tolist() for name in ("step", "rank", "allocation", "offset_bytes")]
        last = ends[np.append(starts[1:], len(log)) - 1].tolist()
        for step, rank, allocation, offset, end in zip(*columns, last, strict=True):
            by_step.setdefault(step, []).append(Written(rank, allocation, offset, end))
        return by_step

    def meaning(self, step: Planned) -> Meaning:
        """Give what the step does when it succeeds."""
        found = self.meanings.get(step.number)
        if found is None:
            found = self.meanings[step.number] = meaning_of(self.program, step)
        return found

    def stray_write(self, step: Planned) -> Stray | None:
        """Find a write of the step to a user's buffer that the step does not mean."""
        if step.number not in self._strays:
            self._strays[step.number] = self._stray_write(step)
        return self._strays[step.number]

    def _stray_write(self, step: Planned) -> Stray | None:
        writes = self.written.get(step.number)
        if not writes:
            return None
        meant: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for stretch in self.meaning(step).written:
            end = stretch.offset_bytes + len(stretch.stored)
            meant.setdefault((stretch.rank, stretch.buffer), []).append((stretch.offset_bytes, end))
        for write in writes:
            for rank, buffer, shift in self.buffers.get(write.allocation, ()):
                start, end = write.first - shift, write.end - shift
                if not _covered(start, end, meant.get((rank, buffer), [])):
                    evidence = (
                        f"rank {write.rank} wrote bytes {start} to {end - 1} of rank {rank}'s buffer {buffer}, "
                        "which the step has no business with"
                    )
                    return Stray(writer=write.rank, owner=rank, evidence=evidence)
        return None

    def probe_fault(self) -> str | None:
        """Find what the probes after a failure show that is not allowed.

        A communicator is usable on all ranks (right bytes, every time) or broken on all (an error, every time).
        """
        if not self.trace.probes:
            return None
        right = probe_result(self.program)
        said = [event.status for events in self.trace.probes for event in events]
        if set(said) == {"ok"}:
            wrong = [
                r for r, events in enumerate(self.trace.probes) if any(e.observed["result"] != right for e in events)
            ]
            return f"after it a sum over all ranks succeeds with wrong bytes on ranks {wrong}" if wrong else None
        if set(said) == {"error"}:
            return None
        shown = [f"rank {r}: {'/'.join(e.status for e in events)}" for r, events in enumerate(self.trace.probes)]
        return f"after it the communicator is neither usable nor broken: {', '.join(shown)}"

    def changed_later(self, requirement: str, *kinds: type) -> list[Violation]:
        """Find bytes that these kinds of steps put in place, and that were others when all was over."""
        return [
            Violation(requirement=requirement, rank=rank, step=step.number, operation=step.operation, evidence=evidence)
            for rank, step, evidence in self._changed
            if isinstance(step.step, kinds)
        ][:1]

    @cached_property
    def _changed(self) -> list[tuple[int, Planned, str]]:
        """What the buffers hold at the end against what the Model says: (rank, step that put it there, evidence)."""
        if not self.trace.contents:
            return []
        model = Model(self.program)
        for step in self.plan:
            model.follow(
                step, well=not step.unequal, meaning=self.meaning(step) if step.applies and step.collective else None
            )
        changed = []
        for (rank, buffer), ranges in self.trace.contents.items():
            for offset, stored, number in model.contents.get((rank, buffer), ()):
                held = _held(ranges, offset, len(stored))
                if held != stored:
                    evidence = f"buffer {buffer} at {offset}, changed by the end: {difference(held, stored)}"
                    changed.append((rank, self.plan[number], evidence))
        return changed


def _held(ranges: list[tuple[int, bytes]], offset: int, size: int) -> bytes:
    """Give what the ranges (offset, bytes) hold at an offset."""
    for start, held in ranges:
        if start <= offset and offset + size <= start + len(held):
            return held[offset - start : offset - start + size]
    return b""


def _covered(start: int, end: int, spans: list[tuple[int, int]]) -> bool:
    """Whether the union of the spans covers [start, end)."""
    for first, last in sorted(spans):
        if first <= start < last:
            start = last
    return start >= end


def difference(seen: bytes, wanted: bytes) -> str:
    """Say where two byte strings part."""
    if len(seen) != len(wanted):
        return f"{len(seen)} bytes instead of {len(wanted)}"
    first = next(index for index, (a, b) in enumerate(zip(seen, wanted, strict=True)) if a != b)
    count = sum(a != b for a, b in zip(seen, wanted, strict=True))
    got, want = seen[first : first + 8].hex(), wanted[first : first + 8].hex()
    return f"byte {first}: got {got}, wanted {want} ({count} of {len(wanted)} bytes differ)"
