"""LIFE: everything is given back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from allranks.conformance import program as p
from allranks.conformance.checks.outcome import Outcome, View, Violation
from allranks.conformance.plan import Part, Planned
from allranks.conformance.trace import Usage


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
    if view.trace.ledger is None or view.lost:
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


@dataclass(slots=True)
class _Object:
    """Channels, a group or a binding: who still refers to it, what it is made of, and the group that it is in."""

    made_by: p.SimpleStep
    ranks: set[int]
    parts: tuple[Part | None, ...]
    group: int


class _Held:
    """What the user's own program holds: buffers, and objects with the memory that they keep alive."""

    def __init__(self, rank_count: int) -> None:
        self.live: list[dict[int, int]] = [{} for _ in range(rank_count)]  # buffer -> size
        self.objects: dict[int, _Object] = {}

    def apply(self, step: Planned) -> None:
        """Follow a step."""
        match step.step:
            case p.Allocate() | p.Free():
                for rank in step.ranks:
                    part = step.parts[rank]
                    if part is None:
                        continue
                    if isinstance(step.step, p.Allocate):
                        self.live[rank][part.buffer] = part.size_bytes
                    else:
                        self.live[rank].pop(part.buffer, None)
            case p.Connect() | p.OpenGroup() | p.Bind():
                self.objects[step.target] = _Object(step.step, set(step.ranks), step.parts, step.group)
            case p.Drop() | p.Unbind() | p.CloseGroup() if step.target in self.objects:
                self.objects[step.target].ranks.difference_update(step.ranks)
                if isinstance(step.step, p.CloseGroup):  # its bindings go with it
                    self.objects = {n: held for n, held in self.objects.items() if held.group != step.target}
                self.objects = {number: held for number, held in self.objects.items() if held.ranks}
            case _:
                pass

    def state(self) -> Hashable:
        """Give what can be compared between rounds: everything held, in order, with names that begin at 0."""
        names: dict[tuple[str, int, int], int] = {}

        def name(*thing: Any) -> int:
            return names.setdefault(thing, len(names))

        objects = tuple(
            (
                type(held.made_by).__name__,
                getattr(held.made_by, "capacity_bytes", 0),
                tuple(sorted(held.ranks)),
                tuple(
                    part and (name("buffer", r, part.buffer), part.offset_bytes, part.size_bytes)
                    for r, part in enumerate(held.parts)
                ),
                (name("object", 0, number), name("object", 0, held.group)),
            )
            for number, held in self.objects.items()
        )
        buffers = tuple(
            tuple((name("buffer", rank, buffer), size) for buffer, size in live.items())
            for rank, live in enumerate(self.live)
        )
        return objects, buffers


def _held_by_user(view: View) -> dict[int, Hashable]:
    """Say what the user's own program holds at the end of each round, by the number of the step that ends it."""
    held = _Held(view.program.rank_count)
    states: dict[int, Hashable] = {}
    for step in view.plan:
        if step.applies:
            held.apply(step)
        if step.ends_round is not None:
            states[step.number] = held.state()
    return states


def life_2(view: View) -> Outcome:
    """Over a loop nothing grows.

    A finite cache may fill for some rounds, and an entry may go a round late. So growth counts when it goes on over two
    rounds, from the third on, while the user's own program holds the same all the time. Does not verify: host memory;
    leaks in loops of less than five rounds.
    """
    outcome = Outcome()
    held = _held_by_user(view)
    for usage in _loops(view.trace.usage):
        windows = [
            (before, middle, after)
            for start, before, middle, after in zip(usage[1:], usage[2:], usage[3:], usage[4:], strict=False)
            if held[start.step] == held[before.step] == held[middle.step] == held[after.step]
        ]
        if not windows:
            continue
        outcome.evaluated += 1
        growth = next((text for window in windows if (text := _growth(*window))), "")
        if growth:
            evidence = f"{growth}{_refusal(view)}{_survivor(view)}"
            outcome.violations.append(
                Violation(requirement="LIFE-2", rank=-1, step=usage[-1].step, operation="repeat", evidence=evidence)
            )
    return outcome


def _growth(before: Usage, middle: Usage, after: Usage) -> str:
    """Say what is more after each of two rounds; empty: nothing."""
    for what, *amounts in (
        ("device memory", before.memory_bytes, middle.memory_bytes, after.memory_bytes),
        ("multicast capacity", before.multicast_bytes, middle.multicast_bytes, after.multicast_bytes),
        ("handles alive", before.handles, middle.handles, after.handles),
    ):
        if amounts[0] < amounts[1] < amounts[2]:
            return f"{what} grew from {amounts[0]} to {amounts[2]} between rounds {before.round} and {after.round}"
    return ""


def _loops(usage: tuple[Usage, ...]) -> list[list[Usage]]:
    """Give what was in use loop by loop."""
    loops: list[list[Usage]] = []
    for entry in usage:
        if entry.round == 0:
            loops.append([])
        loops[-1].append(entry)
    return loops


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
