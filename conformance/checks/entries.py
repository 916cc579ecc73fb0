"""CACHE: entries of a cache: those in use, those that are shared, what is counted, what a hit costs, many pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from allranks.conformance import program as p
from allranks.conformance.checks.cache import fault_of
from allranks.conformance.checks.outcome import Outcome, View, Violation
from allranks.conformance.plan import Part, Planned

# Calls that make something which has to be given back.
_TAKES = ("cuMemCreate", "cuMemRetainAllocationHandle", "cuMemImportFromShareableHandle", "cuMulticastCreate")
# Calls that set something up.
_SETS_UP = (
    "cuMemCreate",
    "cuMemAlloc",
    "cuMemAddressReserve",
    "cuMemMap",
    "cuMemExportToShareableHandle",
    "cuMemImportFromShareableHandle",
)


@dataclass(frozen=True, slots=True)
class _Situation:
    """A connect or a put, with the channels that are alive on all ranks, and with those that were let go of."""

    step: Planned
    alive: dict[int, tuple[Part | None, ...]]
    dropped: dict[int, tuple[Part | None, ...]]


def _situations(view: View) -> Iterator[_Situation]:
    alive: dict[int, tuple[Part | None, ...]] = {}
    dropped: dict[int, tuple[Part | None, ...]] = {}
    for step in view.applied:
        match step.step:
            case p.Connect():
                yield _Situation(step, dict(alive), dict(dropped))
                alive[step.target] = step.parts
            case p.Put():
                yield _Situation(step, dict(alive), dict(dropped))
            case p.Drop(what="channels") if step.target in alive:
                dropped[step.target] = alive.pop(step.target)
            case _:
                pass


def _judge(view: View, requirement: str, speaks: Callable[[_Situation], bool]) -> Outcome:
    """Judge what speaks for the requirement: it ends well, and a put puts its bytes where they belong."""
    outcome = Outcome()
    for situation in _situations(view):
        step = situation.step
        if not speaks(situation):
            continue
        events = view.events(step)
        if view.trouble is not None and step.number > view.trouble:
            outcome.inconclusive += 1
            continue
        bad = [rank for rank in view.ranks if events[rank].status in ("error", "stalled")]
        if not bad and not view.all_ok(events):
            outcome.inconclusive += 1
            continue
        outcome.evaluated += 1
        fault = None
        if bad:
            fault = bad[0], view.describe(events[bad[0]])
        elif isinstance(step.step, p.Put):
            fault = fault_of(view, step)
        if fault is not None:
            outcome.violations.append(
                Violation(
                    requirement=requirement,
                    rank=fault[0],
                    step=step.number,
                    operation=step.operation,
                    evidence=fault[1],
                )
            )
    return outcome


def cache_5(view: View) -> Outcome:
    """Channels work however many others were connected after them.

    Does not verify: a bound of the cache (LIFE-2 sees what grows in a loop); eviction that all ranks do alike (RDV-2).
    """

    def speaks(situation: _Situation) -> bool:
        return isinstance(situation.step.step, p.Put) and any(
            other > situation.step.target for other in situation.alive
        )

    return _judge(view, "CACHE-5", speaks)


def cache_6(view: View) -> Outcome:
    """What was imported, retained or created n times is released n times; who lets go of channels harms no others.

    Does not verify: address space that registering again uses up.
    """

    def speaks(situation: _Situation) -> bool:
        if not isinstance(situation.step.step, p.Put):
            return False
        mine = [part.buffer for part in situation.step.receive]
        return any(
            part is not None and part.buffer == mine[rank]
            for parts in situation.dropped.values()
            for rank, part in enumerate(parts)
        )

    outcome = _judge(view, "CACHE-6", speaks)
    if (
        view.trace.ledger is None
        or view.lost
        or not all(event.status in ("ok", "error") for event in view.trace.closing)
    ):
        outcome.inconclusive += 1
        return outcome
    outcome.evaluated += 1
    taken = np.sum([view.calls.count(name, well=True) for name in _TAKES], axis=0)
    given = view.calls.count("cuMemRelease", well=True)
    for rank in view.ranks:
        if taken[rank] != given[rank]:
            evidence = f"rank {rank} got {taken[rank]} references to handles and gave {given[rank]} back"
            outcome.violations.append(
                Violation(requirement="CACHE-6", rank=rank, step=-1, operation="close", evidence=evidence)
            )
            break
    return outcome


def cache_7(view: View) -> Outcome:
    """Connecting what is connected on all ranks sets nothing up.

    Does not verify: host rendezvous, as an agreement may be one; collectives on connected buffers.
    """
    outcome = Outcome()
    if "channel_cache" not in view.trace.capabilities:
        return outcome
    for situation in _situations(view):
        step = situation.step
        if not isinstance(step.step, p.Connect) or step.parts not in situation.alive.values():
            continue
        if not view.all_ok(view.events(step)) or not view.calls.known:
            outcome.inconclusive += 1
            continue
        outcome.evaluated += 1
        counts = {name: view.calls.count(name, step=step.number) for name in sorted(_SETS_UP)}
        for rank in view.ranks:
            made = {name: count[rank] for name, count in counts.items() if count[rank]}
            if made:
                evidence = f"a hit made {', '.join(f'{count} x {name}' for name, count in made.items())}"
                outcome.violations.append(
                    Violation(
                        requirement="CACHE-7", rank=rank, step=step.number, operation="connect", evidence=evidence
                    )
                )
                break
    return outcome


def cache_9(view: View) -> Outcome:
    """Regions that lie in several physical allocations can be connected, and are reached.

    Does not verify: bytes of a region beyond those that are put.
    """

    def speaks(situation: _Situation) -> bool:
        step = situation.step
        parts = step.parts if isinstance(step.step, p.Connect) else step.receive
        return any(part is not None and _in_pieces(view, rank, part) for rank, part in enumerate(parts))

    return _judge(view, "CACHE-9", speaks)


def _in_pieces(view: View, rank: int, part: Part) -> bool:
    placed = view.trace.placed.get((rank, part.buffer))
    return placed is not None and len(placed.pieces) > 1
