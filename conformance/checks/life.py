"""LIFE: everything is given back."""

from __future__ import annotations

from collections import Counter
from typing import Any

from allranks.conformance import program as p
from allranks.conformance.checks.outcome import Outcome, View, Violation


def _ledger_fault(ledger: tuple[dict[str, Any], ...]) -> str:
    """Say what is still alive: kinds and numbers, and the first of them in full."""
    first = ledger[0]
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(Counter(e["kind"] for e in ledger).items()))
    return (
        f"still alive after close: {counts}; the first is {first['kind']} {first['ordinal']} of rank {first['rank']}, "
        f"made by {first['call']} in step {first['step']}, {first['bytes']} bytes, {first['references']} references"
    )


def _drops(view: View) -> bool:
    """Whether the Program lets go of objects in an order of its own."""
    return any(step.applies and isinstance(step.step, p.Drop) for step in view.plan)


def _at_end(view: View, requirement: str) -> Outcome:
    outcome = Outcome()
    if view.trace.ledger is None or view.trouble is not None:
        outcome.inconclusive += 1
        return outcome
    outcome.evaluated += 1
    for rank, event in enumerate(view.trace.closing):
        if event.status != "ok":
            outcome.violations.append(
                Violation(requirement=requirement, rank=rank, step=-1, operation="close", evidence=event.error)
            )
            return outcome
    if view.trace.ledger:
        outcome.violations.append(
            Violation(
                requirement=requirement,
                rank=view.trace.ledger[0]["rank"],
                step=-1,
                operation="close",
                evidence=_ledger_fault(view.trace.ledger),
            )
        )
    return outcome


def life_1(view: View) -> Outcome:
    """After close the ledger is empty. Does not verify: what the driver cannot see (host memory, threads)."""
    return Outcome() if _drops(view) else _at_end(view, "LIFE-1")


def life_2(view: View) -> Outcome:
    """Over a loop nothing grows.

    Rounds of one loop are compared from the second on, since a first round may fill caches. Does not verify: host
    memory.
    """
    outcome = Outcome()
    usage = [entry for entry in view.trace.usage if entry.round >= 1]
    if len(usage) >= 2:
        first, last = usage[0], usage[-1]
        outcome.evaluated += 1
        for what, before, after in (
            ("device memory", first.memory_bytes, last.memory_bytes),
            ("multicast capacity", first.multicast_bytes, last.multicast_bytes),
            ("handles alive", first.handles, last.handles),
        ):
            if after > before:
                evidence = (
                    f"{what} grew from {before} to {after} between rounds {first.round} and {last.round}"
                    f"{_refusal(view)}{_survivor(view)}"
                )
                outcome.violations.append(
                    Violation(requirement="LIFE-2", rank=-1, step=last.step, operation="repeat", evidence=evidence)
                )
                break
    return outcome


def _refusal(view: View) -> str:
    for step in view.plan:
        for rank, event in enumerate(view.events(step)):
            if event.error_code or "CUDA_ERROR_OUT_OF_MEMORY" in event.error:
                return f"; step {step.number} ({step.operation}) on rank {rank}: {event.error}"
    return ""


def _survivor(view: View) -> str:
    if not view.trace.ledger:
        return ""
    entry = view.trace.ledger[0]
    return (
        f"; alive at the end: {entry['kind']} {entry['ordinal']} of rank {entry['rank']} from {entry['call']} in step "
        f"{entry['step']}, {entry['references']} references"
    )


def life_3(view: View) -> Outcome:
    """Objects may be let go in any order. Does not verify: what the driver cannot see."""
    return _at_end(view, "LIFE-3") if _drops(view) else Outcome()
