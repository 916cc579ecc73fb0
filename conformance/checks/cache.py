"""CACHE: what is cached is true.

All four look at `Put` steps: did what each rank wrote through its channels arrive in the buffers that the peers have
now, at the right place, and nowhere else? The history of the regions decides which requirement a step speaks for.
"""

from __future__ import annotations

from allranks.conformance import program as p
from allranks.conformance.checks.outcome import Outcome, View, Violation, difference
from allranks.conformance.plan import Planned


def _speaking(view: View) -> list[tuple[Planned, set[str]]]:
    """Give the puts with the requirements that each speaks for, by what its regions are."""
    sizes: dict[tuple[int, int], int] = {}
    connected: set[tuple[int, int]] = set()
    speaking = []
    for step in view.applied:
        brought = [(rank, part) for rank, part in enumerate(step.parts) if part is not None]
        match step.step:
            case p.Allocate():
                sizes.update({(rank, part.buffer): part.size_bytes for rank, part in brought})
            case p.Connect():
                connected.update((rank, part.buffer) for rank, part in brought)
            case p.Put():
                speaking.append((step, _history(view, step, sizes, connected)))
            case _:
                pass
    return speaking


def _history(view: View, step: Planned, sizes: dict[tuple[int, int], int], connected: set[tuple[int, int]]) -> set[str]:
    speaks = set()
    for rank, part in enumerate(step.receive):
        placed = view.trace.placed.get((rank, part.buffer))
        before = (rank, placed.same_base_as) if placed is not None else (rank, -1)
        if before in connected:
            speaks.add("CACHE-2" if sizes.get(before) == sizes.get((rank, part.buffer)) else "CACHE-3")
    offsets = {part.offset_bytes for part in step.receive}
    if len(offsets) > 1 or offsets != {0}:
        speaks.add("CACHE-4")
    return speaks or {"CACHE-1"}


def fault_of(view: View, step: Planned) -> tuple[int, str] | None:
    """Find what is wrong with a put: (rank, evidence). A rank's own place in its region is nobody's to write."""
    meaning = view.meaning(step)
    for rank, event in enumerate(view.events(step)):
        region, seen = step.receive[rank], event.observed["region"]
        wanted = bytearray(seen)
        for stretch in meaning.written:
            if stretch.rank == rank:
                start = stretch.offset_bytes - region.offset_bytes
                wanted[start : start + len(stretch.stored)] = stretch.stored
        if seen != wanted:
            return rank, (
                f"region in buffer {region.buffer} at {region.offset_bytes}: {difference(seen, bytes(wanted))}"
            )
    stray = view.stray_write(step)
    return (stray.writer, stray.evidence) if stray is not None else None


def _judge(view: View, requirement: str) -> Outcome:
    outcome = Outcome()
    for step, speaks in view.once(_speaking):
        if requirement not in speaks:
            continue
        if not view.all_ok(view.events(step)):
            outcome.inconclusive += 1
            continue
        outcome.evaluated += 1
        fault = fault_of(view, step)
        if fault is not None:
            outcome.violations.append(
                Violation(requirement=requirement, rank=fault[0], step=step.number, operation="put", evidence=fault[1])
            )
    return outcome


def cache_1(view: View) -> Outcome:
    """A channel reaches the peer's buffer, and what was put stays. Does not verify: regions beyond what was put."""
    outcome = _judge(view, "CACHE-1")
    outcome.violations += view.changed_later("CACHE-1", p.Put)
    return outcome


def cache_2(view: View) -> Outcome:
    """After a buffer was freed and its address given again, the old entry is not used. Limits as CACHE-1."""
    return _judge(view, "CACHE-2")


def cache_3(view: View) -> Outcome:
    """The same base with another extent is another entry. Limits as CACHE-1."""
    return _judge(view, "CACHE-3")


def cache_4(view: View) -> Outcome:
    """Regions at offsets are reached at their own offsets. Limits as CACHE-1."""
    return _judge(view, "CACHE-4")
