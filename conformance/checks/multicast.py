"""NVLS: multicast."""

from __future__ import annotations

from allranks.conformance import program as p
from allranks.conformance.checks.outcome import ABSENCE, Outcome, View, Violation, difference
from allranks.conformance.checks.rooms import bound_bytes, rooms
from allranks.conformance.model import store_windows
from allranks.conformance.plan import Planned


def _violation(requirement: str, rank: int, step: Planned, evidence: str) -> Violation:
    return Violation(requirement=requirement, rank=rank, step=step.number, operation=step.operation, evidence=evidence)


def reach_fault(step: Planned, reached: list[list[int]]) -> str | None:
    """Find what is wrong with where a binding's address leads: each rank's own buffer, from its start, whole."""
    size = min(part.size_bytes for part in step.parts if part is not None)
    by_owner: dict[int, list[list[int]]] = {}
    for piece in sorted(reached):
        by_owner.setdefault(piece[2], []).append(piece)
    for rank, part in enumerate(step.parts):
        assert part is not None
        covered = 0
        for start, length, _, buffer, offset in by_owner.get(rank, ()):
            if start == covered:
                if (buffer, offset) != (part.buffer, part.offset_bytes + start):
                    return (
                        f"byte {start} leads to rank {rank}'s buffer {buffer} at {offset}, not to buffer {part.buffer}"
                    )
                covered += length
        if covered < size:
            return f"from byte {covered} on rank {rank}'s buffer {part.buffer} is not reached"
    return None


def nvls_1(view: View) -> Outcome:
    """The multicast address of a buffer reaches that buffer on every rank and nothing else.

    Every byte by the simulated driver's translation, the first, middle and last words by stores. Does not verify: data
    at every word of large buffers.
    """
    outcome = Outcome()
    for step, events in view.collective(p.Bind):
        if not view.all_ok(events):
            outcome.inconclusive += 1
            continue
        outcome.evaluated += 1
        for rank, event in enumerate(events):
            fault = reach_fault(step, event.observed["reached"])
            if fault is not None:
                outcome.violations.append(_violation("NVLS-1", rank, step, fault))
                break
    for step, events in view.collective(p.MulticastStore):
        if not view.all_ok(events):
            outcome.inconclusive += 1
            continue
        outcome.evaluated += 1
        fault_at = store_fault(view, step)
        if fault_at is not None:
            outcome.violations.append(_violation("NVLS-1", fault_at[0], step, fault_at[1]))
    outcome.violations += view.changed_later("NVLS-1", p.MulticastStore, p.MulticastReduce)
    return outcome


def store_fault(view: View, step: Planned) -> tuple[int, str] | None:
    """Find what is wrong with what a store put where: (rank, evidence)."""
    meaning = view.meaning(step)
    windows = store_windows(min(part.size_bytes for part in step.receive))
    for rank, event in enumerate(view.events(step)):
        wanted = b"".join(stretch.stored for stretch in meaning.written if stretch.rank == rank)
        if event.observed["windows"] != wanted:
            part = step.receive[rank]
            return rank, f"buffer {part.buffer}, {windows}: {difference(event.observed['windows'], wanted)}"
    stray = view.stray_write(step)
    return (stray.owner, stray.evidence) if stray is not None else None


def nvls_2(view: View) -> Outcome:
    """A binding has the same offset on every rank, or every rank gets an error."""
    outcome = Outcome()
    for step, events in view.collective(p.Bind):
        statuses = {event.status for event in events}
        if "stalled" in statuses or "not_reached" in statuses or statuses == {"skipped"}:
            outcome.inconclusive += 1
            continue
        outcome.evaluated += 1
        if len(statuses) > 1:
            odd = next(rank for rank in view.ranks if events[rank].status != "ok")
            outcome.violations.append(
                _violation("NVLS-2", odd, step, f"bound on some ranks only; rank {odd}: {events[odd].error}")
            )
        waited = [rank for rank, event in enumerate(events) if event.error_type in ABSENCE]
        if statuses == {"error"} and 0 < len(waited) < len(events) and view.trouble == step.number:
            odd = next(rank for rank in view.ranks if rank not in waited)
            evidence = f"rank {odd} refuses alone, ranks {waited} wait until the deadline: {events[odd].error}"
            outcome.violations.append(_violation("NVLS-2", odd, step, evidence))
        offsets = [event.observed.get("offset_bytes") for event in events]
        if len(set(offsets)) > 1:
            outcome.violations.append(_violation("NVLS-2", 0, step, f"offsets by rank: {offsets}"))
    return outcome


def nvls_3(view: View) -> Outcome:
    """Offsets are multiples of the granularity, and bindings share no addresses.

    Does not verify: the last bytes, which are NVLS-1's to see; whether bindings of one group lie in one object.
    """
    outcome = Outcome()
    found = rooms(view)
    for step, events in view.collective(p.Bind):
        if not view.all_ok(events):
            outcome.inconclusive += 1
            continue
        outcome.evaluated += 1
        offset = events[0].observed["offset_bytes"]
        if offset % view.trace.granularity_bytes != 0:
            outcome.violations.append(
                _violation("NVLS-3", 0, step, f"offset {offset} is no multiple of {view.trace.granularity_bytes}")
            )
        live = found[step.number].live if step.number in found else {}
        for rank in view.ranks:
            shared = [
                live[other][0].number for other in events[rank].observed["shares_addresses_with"] if other in live
            ]
            if shared:
                evidence = f"its addresses are those of the binding of step {shared[0]} too"
                outcome.violations.append(_violation("NVLS-3", rank, step, evidence))
                break
    return outcome


def nvls_4(view: View) -> Outcome:
    """An unbound range is unreachable, and free for the next binding.

    Does not verify: which of several free ranges is taken.
    """
    outcome = Outcome()
    for step, events in view.collective(p.Unbind):
        if not view.all_ok(events):
            outcome.inconclusive += 1
            continue
        outcome.evaluated += 1
        for rank, event in enumerate(events):
            still = [piece for piece in event.observed["reached"] if piece[2] >= 0]
            if still:
                evidence = f"after unbind the address still reaches rank {still[0][2]}'s buffer {still[0][3]}"
                outcome.violations.append(_violation("NVLS-4", rank, step, evidence))
                break
    found = rooms(view)
    for step, events in view.collective(p.Bind):
        room = found.get(step.number)
        if room is not None and room.unbound and room.must_take(view, step):
            outcome.evaluated += 1
            if any(event.status == "error" for event in events):
                rank = next(rank for rank in view.ranks if events[rank].status == "error")
                evidence = f"an empty group refuses a buffer that it held before: {events[rank].error}"
                outcome.violations.append(_violation("NVLS-4", rank, step, evidence))
    return outcome


def nvls_5(view: View) -> Outcome:
    """No room is an error on every rank, and room is none; what was bound before still works (NVLS-1 sees that).

    Does not verify: refusals that fragmentation explains.
    """
    outcome = Outcome()
    refused = _refused(view)
    if refused is not None and view.trace.probes:
        outcome.evaluated += 1
        fault = view.probe_fault()
        if fault is not None:
            outcome.violations.append(_violation("NVLS-5", -1, refused, fault))
    found = rooms(view)
    for step, events in view.collective(p.Bind):
        room, statuses = found.get(step.number), {event.status for event in events}
        if room is None or not statuses <= {"ok", "error"}:
            outcome.inconclusive += 1
            continue
        taken, wanted = room.taken_bytes(view), bound_bytes(view, step)
        if taken + wanted > room.capacity_bytes:
            outcome.evaluated += 1
            if "ok" in statuses:
                rank = next(rank for rank in view.ranks if events[rank].status == "ok")
                evidence = f"{taken} of {room.capacity_bytes} bytes are taken, and yet {wanted} more were bound"
                outcome.violations.append(_violation("NVLS-5", rank, step, evidence))
        elif room.must_take(view, step) and not room.unbound:
            outcome.evaluated += 1
            if "error" in statuses:
                rank = next(rank for rank in view.ranks if events[rank].status == "error")
                outcome.violations.append(
                    _violation("NVLS-5", rank, step, f"an empty group refuses what fits: {events[rank].error}")
                )
    return outcome


def _refused(view: View) -> Planned | None:
    """Give the last bind that every rank refused, if that is all that went wrong."""
    last = None
    for step in view.plan:
        statuses = {view.trace.events[rank][step.number].status for rank in step.ranks}
        if "error" in statuses:
            if not isinstance(step.step, p.Bind) or statuses != {"error"}:
                return None
            last = step
        elif statuses & {"stalled", "not_reached"}:
            return None
    return last
