"""CACHE: what is cached is true.

All four look at `Put` steps: did what each rank wrote through its channels arrive in the buffers that the peers have
now, at the right place, and nowhere else? The history of the regions decides which requirement a step speaks for.
"""

from __future__ import annotations

from allranks.conformance import program as p
from allranks.conformance.checks.outcome import Outcome, View, Violation, difference
from allranks.conformance.plan import Part, Planned
from allranks.conformance.worlds.session import piece_of


def _history(view: View, step: Planned) -> set[str]:
    """Give the requirements that a put speaks for, by what its regions are."""
    speaks = set()
    sizes: dict[tuple[int, int], int] = {}
    for planned in view.plan[: step.number]:
        if isinstance(planned.step, p.Allocate):
            sizes.update(
                {(r, part.buffer): part.size_bytes for r, part in enumerate(planned.parts) if part is not None}
            )
    connected = {
        (rank, part.buffer)
        for planned, _ in view.collective(p.Connect)
        if planned.number < step.number
        for rank, part in enumerate(planned.parts)
        if part is not None
    }
    for rank, part in enumerate(step.receive):
        placed = view.trace.placed.get((rank, part.buffer))
        before = (rank, placed.same_base_as) if placed is not None else (rank, -1)
        if before in connected:
            speaks.add("CACHE-2" if sizes.get(before) == sizes.get((rank, part.buffer)) else "CACHE-3")
    offsets = {part.offset_bytes for part in step.receive}
    if len(offsets) > 1 or offsets != {0}:
        speaks.add("CACHE-4")
    return speaks or {"CACHE-1"}


def _wanted(view: View, step: Planned, rank: int, seen: bytes) -> bytes:
    """Give what the region should hold; a rank's own place in it is nobody's to write."""
    size = step.count
    wanted = bytearray(seen)
    for peer in view.ranks:
        if peer != rank:
            wanted[peer * size : (peer + 1) * size] = piece_of(view.program, step.number, peer, rank, size)
    return bytes(wanted)


def _fault_of(view: View, step: Planned) -> tuple[int, str] | None:
    """Find what is wrong with a put: (rank, evidence)."""
    for rank, event in enumerate(view.events(step)):
        seen = event.observed["region"]
        wanted = _wanted(view, step, rank, seen)
        if seen != wanted:
            where = step.receive[rank]
            return rank, f"region in buffer {where.buffer} at {where.offset_bytes}: {difference(seen, wanted)}"
    size = step.count
    allowed = [
        (rank, Part(part.buffer, part.offset_bytes, size * view.program.rank_count))
        for rank, part in enumerate(step.receive)
    ]
    stray = view.stray_write(step, allowed)
    return (stray[0], stray[2]) if stray is not None else None


def _judge(view: View, requirement: str) -> Outcome:
    outcome = Outcome()
    for step, events in view.collective(p.Put):
        if requirement not in _history(view, step):
            continue
        if not view.all_ok(events):
            outcome.inconclusive += 1
            continue
        outcome.evaluated += 1
        fault = _fault_of(view, step)
        if fault is not None:
            outcome.violations.append(
                Violation(requirement=requirement, rank=fault[0], step=step.number, operation="put", evidence=fault[1])
            )
    return outcome


def cache_1(view: View) -> Outcome:
    """A channel reaches the peer's buffer. Does not verify: bytes beyond the pieces that were put."""
    return _judge(view, "CACHE-1")


def cache_2(view: View) -> Outcome:
    """After a buffer was freed and its address given again, the old entry is not used. Limits as CACHE-1."""
    return _judge(view, "CACHE-2")


def cache_3(view: View) -> Outcome:
    """The same base with another extent is another entry. Limits as CACHE-1."""
    return _judge(view, "CACHE-3")


def cache_4(view: View) -> Outcome:
    """Regions at offsets are reached at their own offsets. Limits as CACHE-1."""
    return _judge(view, "CACHE-4")
