"""RDV: who takes part in a step. Ranks without elements, groups of one, groups of some, and what is done alone."""

from __future__ import annotations

from allranks.conformance import program as p
from allranks.conformance.checks.outcome import ABSENCE, Outcome, View, Violation, difference
from allranks.conformance.plan import Planned

_ALONE = ("allocate", "free", "drop")


def _violation(requirement: str, rank: int, step: Planned, evidence: str) -> Violation:
    return Violation(requirement=requirement, rank=rank, step=step.number, operation=step.operation, evidence=evidence)


def rdv_5(view: View) -> Outcome:
    """Zero elements and a group of one take part like any other; some ranks without elements are an error everywhere.

    Does not verify: collectives that are defined for unequal counts; regions of zero bytes.
    """
    outcome = Outcome()
    for step in view.applied:
        empty = isinstance(step.step, p.AllReduce | p.AllGather) and step.count == 0
        if not step.collective or not (empty or step.unequal or view.program.rank_count == 1):
            continue
        events = view.events(step)
        bad = [rank for rank in view.ranks if events[rank].status in ("error", "stalled")]
        if step.unequal:
            if not all(event.status in ("ok", "error") for event in events) and view.trouble != step.number:
                outcome.inconclusive += 1
                return outcome
            outcome.evaluated += 1
            fault = _unequal_fault(view, step)
            if fault is not None:
                outcome.violations.append(_violation("RDV-5", fault[0], step, fault[1]))
            return outcome  # after an error the communicator may be broken
        if view.trouble is not None and step.number > view.trouble:
            outcome.inconclusive += 1
            continue
        outcome.evaluated += 1
        if bad and not isinstance(step.step, p.Bind | p.OpenGroup):
            outcome.violations.append(_violation("RDV-5", bad[0], step, view.describe(events[bad[0]])))
    return outcome


def _unequal_fault(view: View, step: Planned) -> tuple[int, str] | None:
    said = "some ranks bring no elements: "
    for rank, event in enumerate(view.events(step)):
        if event.status != "error":
            return rank, f"{said}rank {rank} {'succeeds' if event.status == 'ok' else view.describe(event)}"
        if event.error_type in ABSENCE:
            return rank, f"{said}rank {rank} waited for ranks that had left the step: {event.error}"
    fault = view.probe_fault() if view.only_trouble(step) else None
    return None if fault is None else (-1, fault)


def rdv_6(view: View) -> Outcome:
    """What a rank does alone enters no rendezvous and waits for nobody.

    Does not verify: the order of internal collective steps, but for what becomes of the bytes (CACHE-1); rendezvous
    that the backend does not count, if the peers happen to come.
    """
    outcome = Outcome()
    waiting = {
        (wait["rank"], wait["step"]): wait
        for moment in view.trace.moments
        for wait in moment["waits"]
        if wait["operation"] in _ALONE and wait["waits_for"] and not wait["object"].startswith("world:")
    }
    for step in view.applied:
        if step.operation not in _ALONE:
            continue
        for rank in step.ranks:
            event, wait = view.events(step)[rank], waiting.get((rank, step.number))
            if event.status not in ("ok", "error", "stalled"):
                continue
            outcome.evaluated += 1
            if wait is not None:
                evidence = (
                    f"rank {rank}, which does this alone, waits in {wait['object']} for ranks {wait['waits_for']}"
                )
                outcome.violations.append(_violation("RDV-6", rank, step, evidence))
            elif event.rendezvous > 0:
                evidence = f"rank {rank}, which does this alone, entered {event.rendezvous} internal rendezvous"
                outcome.violations.append(_violation("RDV-6", rank, step, evidence))
    return outcome


def rdv_7(view: View) -> Outcome:
    """Groups of some ranks work, and what all ranks do after them works.

    Does not verify: several such groups alive at once; collectives over them.
    """
    outcome = Outcome()
    seen = False
    for step in view.applied:
        subset = isinstance(step.step, p.SubsetPut)
        seen = seen or subset
        if not seen or not (subset or step.collective) or step.unequal:
            continue
        if view.trouble is not None and step.number > view.trouble:
            outcome.inconclusive += 1
            return outcome
        bad = [rank for rank in step.ranks if view.events(step)[rank].status in ("error", "stalled")]
        if bad and isinstance(step.step, p.Bind | p.OpenGroup):
            outcome.inconclusive += 1
            return outcome
        outcome.evaluated += 1
        fault = (
            (bad[0], view.describe(view.events(step)[bad[0]])) if bad else _put_fault(view, step) if subset else None
        )
        if fault is not None:
            outcome.violations.append(_violation("RDV-7", fault[0], step, f"ranks {list(step.ranks)}: {fault[1]}"))
            return outcome
    return outcome


def _put_fault(view: View, step: Planned) -> tuple[int, str] | None:
    for rank in step.ranks:
        part, seen = step.parts[rank], view.events(step)[rank].observed.get("region")
        if part is None or seen is None:
            continue
        wanted = bytearray(seen)
        for stretch in view.meaning(step).written:
            if stretch.rank == rank:
                start = stretch.offset_bytes - part.offset_bytes
                wanted[start : start + len(stretch.stored)] = stretch.stored
        if seen != wanted:
            return rank, f"region in buffer {part.buffer} at {part.offset_bytes}: {difference(seen, bytes(wanted))}"
    stray = view.stray_write(step)
    return (stray.writer, stray.evidence) if stray is not None else None
