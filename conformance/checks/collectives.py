"""COLL: the bytes are right."""

from __future__ import annotations

from allranks.conformance import program as p
from allranks.conformance.checks.outcome import ABSENCE, Outcome, View, Violation, difference
from allranks.conformance.model import footprints
from allranks.conformance.plan import Planned, planned
from allranks.conformance.trace import UNWATCHED, Event

# What a rank says that has no room; and what is said of ranks that others wait for in vain, or that are gone.
_NO_ROOM = ("CUDA_ERROR_OUT_OF_MEMORY",)
_NO_REFUSAL = ("MemoryError", "Died", "Garbled", *ABSENCE)
_WITH_RESULT = (p.AllReduce, p.AllGather, p.MulticastReduce)
# Steps whose writes other requirements look at.
_ELSEWHERE = (p.Put, p.MulticastStore)


def _violation(requirement: str, rank: int, step: Planned, evidence: str) -> Violation:
    return Violation(requirement=requirement, rank=rank, step=step.number, operation=step.operation, evidence=evidence)


def _shape(step: Planned) -> str:
    collective = step.step
    return f"{step.count} x {getattr(collective, 'dtype', '')} {getattr(collective, 'operation', '')}".rstrip()


def _each(view: View, kinds: tuple[type, ...], outcome: Outcome) -> list[tuple[Planned, list[Event]]]:
    """Give the steps that ended well everywhere, and count the others as inconclusive."""
    good = []
    for step, events in view.collective(*kinds):
        if view.all_ok(events):
            good.append((step, events))
        else:
            outcome.inconclusive += 1
    return good


def _refused(view: View, step: Planned, events: list[Event]) -> bool:
    """Whether all ranks refuse what they were rightly asked for, without any trouble before."""
    return (
        isinstance(step.step, p.AllReduce | p.AllGather)
        and view.trouble == step.number
        and not view.program.faults
        and all(event.status == "error" for event in events)
        and not any(event.error_type in _NO_REFUSAL or event.error_code in _NO_ROOM for event in events)
    )


def coll_1(view: View) -> Outcome:
    """Every rank gets the values of the definition; a collective that all ranks refuse gives none.

    Does not verify: NaN and infinities; sums that are not exact in the dtype; refusals for want of memory, after other
    trouble, and of reductions through multicast.
    """
    outcome = Outcome()
    for step, events in view.collective(*_WITH_RESULT):
        if _refused(view, step, events):
            outcome.evaluated += 1
            evidence = f"{_shape(step)}: refused by every rank: {view.describe(events[0])}"
            outcome.violations.append(_violation("COLL-1", 0, step, evidence))
            continue
        if not view.all_ok(events):
            outcome.inconclusive += 1
            continue
        outcome.evaluated += 1
        meaning = view.meaning(step)
        for rank, event in enumerate(events):
            right = meaning.written[rank].stored if meaning.written else meaning.told
            if event.observed["result"] != right:
                evidence = f"{_shape(step)}: {difference(event.observed['result'], right)}"
                outcome.violations.append(_violation("COLL-1", rank, step, evidence))
                break
    return outcome


def coll_2(view: View) -> Outcome:
    """Every rank gets the same bits."""
    outcome = Outcome()
    if view.program.rank_count == 1:
        return outcome
    for step, events in _each(view, _WITH_RESULT, outcome):
        outcome.evaluated += 1
        first = events[0].observed["result"]
        for rank, event in enumerate(events):
            if event.observed["result"] != first:
                evidence = f"{_shape(step)}: rank {rank} and rank 0: {difference(event.observed['result'], first)}"
                outcome.violations.append(_violation("COLL-2", rank, step, evidence))
                break
    return outcome


def coll_3(view: View) -> Outcome:
    """Inputs are unchanged, results stay as they were, and nothing outside the output is written.

    Does not verify: where the world does not record writes, those to memory that is nobody's buffer, and such as are
    far from whatever any step touches.
    """
    outcome = Outcome()
    for step, events in _each(view, (p.AllReduce, p.AllGather), outcome):
        outcome.evaluated += 1
        for rank, event in enumerate(events):
            if event.observed.get("input_kept") is False:
                outcome.violations.append(_violation("COLL-3", rank, step, "its input was changed"))
                break
    for step, _ in view.collective():
        stray = None if isinstance(step.step, _ELSEWHERE) else view.stray_write(step)
        if stray is not None:
            outcome.violations.append(_violation("COLL-3", stray.owner, step, stray.evidence))
    outcome.violations += view.changed_later("COLL-3", p.AllReduce, p.AllGather)
    outcome.violations += _written_beside(view)
    return outcome


def _written_beside(view: View) -> list[Violation]:
    """Find bytes that no step touches, and that are not as they were when the buffer was new."""
    if not view.trace.contents or view.trace.machine not in UNWATCHED:  # elsewhere there is a log of writes
        return []
    meant = footprints(view.program, planned(view.program))  # with what the backend declines, as the world has it
    for (rank, buffer), ranges in view.trace.contents.items():
        own = set(meant.get((rank, buffer), ()))
        for offset, held in ranges:
            if (offset, len(held)) not in own and any(held):
                first = next(index for index, byte in enumerate(held) if byte)
                evidence = (
                    f"buffer {buffer} at {offset + first}, which no step touches, was written: "
                    f"{difference(held, bytes(len(held)))}"
                )
                return [Violation(requirement="COLL-3", rank=rank, step=-1, operation="run", evidence=evidence)]
    return []
