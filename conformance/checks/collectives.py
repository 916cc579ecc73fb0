"""COLL: the bytes are right."""

from __future__ import annotations

from allranks.conformance import data
from allranks.conformance import program as p
from allranks.conformance.checks.outcome import Outcome, View, Violation, difference
from allranks.conformance.plan import Planned
from allranks.conformance.trace import Event


def _violation(requirement: str, rank: int, step: Planned, evidence: str) -> Violation:
    return Violation(requirement=requirement, rank=rank, step=step.number, operation=step.operation, evidence=evidence)


def wanted(view: View, step: Planned) -> bytes:
    """Give the result that the definition demands, the same on every rank."""
    collective = step.step
    assert isinstance(collective, p.AllReduce | p.AllGather | p.MulticastReduce)
    operation = "min" if isinstance(collective, p.AllGather) else collective.operation
    operands = [
        data.operand(
            seed=view.program.seed,
            rank=rank,
            step=step.number,
            count=step.count,
            dtype=collective.dtype,
            operation=operation,
            rank_count=view.program.rank_count,
        )
        for rank in view.ranks
    ]
    if isinstance(collective, p.AllGather):
        return b"".join(operand.tobytes() for operand in operands)
    return data.reduced(operands, collective.dtype, operation).tobytes()


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


def coll_1(view: View) -> Outcome:
    """Every rank gets the values of the definition.

    Does not verify: NaN and infinities; sums that are not exact in the dtype.
    """
    outcome = Outcome()
    for step, events in _each(view, (p.AllReduce, p.AllGather, p.MulticastReduce), outcome):
        outcome.evaluated += 1
        right = wanted(view, step)
        for rank, event in enumerate(events):
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
    for step, events in _each(view, (p.AllReduce, p.AllGather, p.MulticastReduce), outcome):
        outcome.evaluated += 1
        first = events[0].observed["result"]
        for rank, event in enumerate(events):
            if event.observed["result"] != first:
                evidence = f"{_shape(step)}: rank {rank} and rank 0: {difference(event.observed['result'], first)}"
                outcome.violations.append(_violation("COLL-2", rank, step, evidence))
                break
    return outcome


def coll_3(view: View) -> Outcome:
    """Inputs are unchanged, and nothing outside the output is written.

    Does not verify: writes to memory that is nobody's buffer, where the world does not record writes.
    """
    outcome = Outcome()
    for step, events in _each(view, (p.AllReduce, p.AllGather), outcome):
        outcome.evaluated += 1
        for rank, event in enumerate(events):
            if event.observed.get("input_kept") is False:
                outcome.violations.append(_violation("COLL-3", rank, step, "its input was changed"))
                break
        stray = view.stray_write(step, list(enumerate(step.receive)))
        if stray is not None:
            outcome.violations.append(_violation("COLL-3", stray[1], step, stray[2]))
    return outcome
