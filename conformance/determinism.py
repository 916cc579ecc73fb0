"""The same Program with the same schedule is to give the same Trace: where two of them part.

What differs is a finding like any other, about the communicator (it depends on time, addresses, or what ran before) or
about this package. It is none of the requirements, so it has a name of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Final

from allranks import sim
from allranks.conformance.checks.outcome import Violation
from allranks.conformance.plan import Planned
from allranks.conformance.trace import Event, Trace

DETERMINISM: Final = "DETERMINISM"
# How often a Program that is known to differ is run again until it does.
RUNS: Final = 10
_OF_RANKS: Final = ("opening", "closing")
_OF_EACH: Final = ("probes", "after_close")


def parting(
    first: Trace, run_again: Callable[[], Trace], plan: Sequence[Planned], *, times: int = 1
) -> Violation | None:
    """Run again, once or up to a number of times, and say where a Trace parts from the first; None: none does."""
    digest = first.digest()
    for _ in range(times):
        other = run_again()
        if other.digest() != digest:
            return _difference(first, other, plan)
    return None


def _difference(first: Trace, other: Trace, plan: Sequence[Planned]) -> Violation:
    """Say where two Traces part: the first step that differs, or else what differs beside steps."""
    for step in plan:
        for rank, (a, b) in enumerate(zip(first.events, other.events, strict=True)):
            if a[step.number] != b[step.number]:
                return _violation(rank, step.number, step.operation, _told(a[step.number], b[step.number]))
    for name in _OF_RANKS:
        for rank, (one, two) in enumerate(zip(getattr(first, name), getattr(other, name), strict=False)):
            if one != two:
                return _violation(rank, -1, name, _told(one, two))
    for name in _OF_EACH:
        for rank, (many, others) in enumerate(zip(getattr(first, name), getattr(other, name), strict=False)):
            for one, two in zip(many, others, strict=False):
                if one != two:
                    return _violation(rank, -1, name, _told(one, two))
    for rank, (log, again) in enumerate(zip(first.calls, other.calls, strict=False)):
        calls, calls_again = log.tolist(), again.tolist()
        for call, call_again in zip(calls, calls_again, strict=False):
            if call != call_again:
                said = f"the driver call {_call(call)} in one run was {_call(call_again)} in the next"
                return _violation(rank, *_place(call[0], plan), said)
        if len(calls) != len(calls_again):
            return _violation(rank, -1, "run", f"{len(calls)} driver calls in one run, {len(calls_again)} in the next")
    names = [
        field.name
        for field in dataclasses.fields(Trace)
        if repr(getattr(first, field.name)) != repr(getattr(other, field.name))
    ]
    return _violation(-1, -1, "run", f"two runs differ in {', '.join(names) or 'what no text shows'}")


def _violation(rank: int, step: int, operation: str, evidence: str) -> Violation:
    return Violation(requirement=DETERMINISM, rank=rank, step=step, operation=operation, evidence=evidence)


def _place(number: int, plan: Sequence[Planned]) -> tuple[int, str]:
    return (number, plan[number].operation) if number < len(plan) else (-1, "open or close")


def _call(call: Sequence[Any]) -> str:
    return f"{sim.call_name(call[1])}, which returned {call[3]},"


def _told(one: Event, two: Event) -> str:
    if one.status != two.status or one.error != two.error:
        return f"{_ended(one)} in one run, {_ended(two)} in the next"
    names = [field.name for field in dataclasses.fields(Event) if getattr(one, field.name) != getattr(two, field.name)]
    shown = [
        f"{name}: {_short(getattr(one, name))} in one run, {_short(getattr(two, name))} in the next" for name in names
    ]
    return "; ".join(shown)


def _ended(event: Event) -> str:
    return f"{event.status} ({event.error})" if event.error else event.status


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
