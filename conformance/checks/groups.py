"""NVLS: several multicast groups, and how one comes to be."""

from __future__ import annotations

from allranks.conformance import program as p
from allranks.conformance.checks.multicast import reach_fault, store_fault
from allranks.conformance.checks.outcome import Outcome, View, Violation
from allranks.conformance.plan import Planned


def _violation(requirement: str, rank: int, step: Planned, evidence: str) -> Violation:
    return Violation(requirement=requirement, rank=rank, step=step.number, operation=step.operation, evidence=evidence)


def nvls_7(view: View) -> Outcome:
    """A group is opened on every rank or on none, none waits for a device that is not added, and all have added theirs.

    Does not verify: other orders of driver calls than these; that is the simulated driver's to refuse.
    """
    outcome = Outcome()
    for step, events in view.collective(p.OpenGroup):
        statuses = {event.status for event in events}
        if not statuses <= {"ok", "error", "stalled"} or (view.trouble is not None and step.number > view.trouble):
            outcome.inconclusive += 1
            return outcome
        outcome.evaluated += 1
        fault = None
        if len(statuses) > 1 or "stalled" in statuses:
            odd = next(rank for rank in view.ranks if events[rank].status != "ok")
            others = sorted({event.status for rank, event in enumerate(events) if rank != odd})
            fault = odd, f"rank {odd}: {view.describe(events[odd])}; the others: {', '.join(others)}"
        elif statuses == {"ok"}:
            fault = _missing_device(view, step)
        if fault is not None:
            outcome.violations.append(_violation("NVLS-7", fault[0], step, fault[1]))
    return outcome


def _missing_device(view: View, step: Planned) -> tuple[int, str] | None:
    added = view.calls.count("cuMulticastAddDevice", well=True, until=step.number).tolist()
    if len(set(added)) == 1:
        return None
    return added.index(min(added)), f"the group is open; devices added so far by rank: {added}"


def nvls_8(view: View) -> Outcome:
    """With several groups alive, each binding's address reaches its own buffers and nothing else.

    Does not verify: groups over some of the ranks.
    """
    outcome = Outcome()
    alive: set[int] = set()
    for step in view.applied:
        match step.step:
            case p.OpenGroup():
                alive.add(step.target)
            case p.CloseGroup() | p.Drop(what="group"):
                alive.discard(step.target)
            case p.Bind() | p.MulticastStore() if len(alive) > 1:
                _judge_reach(view, step, outcome)
            case _:
                pass
    return outcome


def _judge_reach(view: View, step: Planned, outcome: Outcome) -> None:
    events = view.events(step)
    store = isinstance(step.step, p.MulticastStore)
    bad = [rank for rank in view.ranks if events[rank].status in ("error", "stalled")]
    if (bad and not store) or (view.trouble is not None and step.number > view.trouble):
        outcome.inconclusive += 1
        return
    if not bad and not view.all_ok(events):
        outcome.inconclusive += 1
        return
    outcome.evaluated += 1
    if bad:
        outcome.violations.append(_violation("NVLS-8", bad[0], step, view.describe(events[bad[0]])))
        return
    if store:
        found = store_fault(view, step)
        if found is not None:
            outcome.violations.append(_violation("NVLS-8", found[0], step, found[1]))
        return
    for rank, event in enumerate(events):
        fault = reach_fault(step, event.observed["reached"])
        if fault is not None:
            outcome.violations.append(_violation("NVLS-8", rank, step, fault))
            return
