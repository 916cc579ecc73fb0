"""Checks: pure functions of a Program and its Trace.

Each names the requirement that it enforces, and says how much it evaluated, how much was inconclusive (what comes after
a stall is), and what was violated. None ever touches a backend.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Final

from allranks.conformance.checks.cache import cache_1, cache_2, cache_3, cache_4
from allranks.conformance.checks.calls import life_4, life_5, life_7, rdv_3
from allranks.conformance.checks.collectives import coll_1, coll_2, coll_3
from allranks.conformance.checks.entries import cache_5, cache_6, cache_7, cache_9
from allranks.conformance.checks.groups import nvls_7, nvls_8
from allranks.conformance.checks.life import life_1, life_2, life_3
from allranks.conformance.checks.multicast import nvls_1, nvls_2, nvls_3, nvls_4, nvls_5
from allranks.conformance.checks.outcome import Outcome, View, Violation
from allranks.conformance.checks.participants import rdv_5, rdv_6, rdv_7
from allranks.conformance.checks.rendezvous import rdv_1, rdv_2
from allranks.conformance.plan import Planned, planned
from allranks.conformance.program import Program
from allranks.conformance.trace import UNWATCHED, Trace

Check = Callable[[View], Outcome]

CHECKS: Final[dict[str, Check]] = {
    "RDV-1": rdv_1,
    "RDV-2": rdv_2,
    "RDV-3": rdv_3,
    "RDV-5": rdv_5,
    "RDV-6": rdv_6,
    "RDV-7": rdv_7,
    "CACHE-1": cache_1,
    "CACHE-2": cache_2,
    "CACHE-3": cache_3,
    "CACHE-4": cache_4,
    "CACHE-5": cache_5,
    "CACHE-6": cache_6,
    "CACHE-7": cache_7,
    "CACHE-9": cache_9,
    "NVLS-1": nvls_1,
    "NVLS-2": nvls_2,
    "NVLS-3": nvls_3,
    "NVLS-4": nvls_4,
    "NVLS-5": nvls_5,
    "NVLS-7": nvls_7,
    "NVLS-8": nvls_8,
    "LIFE-1": life_1,
    "LIFE-2": life_2,
    "LIFE-3": life_3,
    "LIFE-4": life_4,
    "LIFE-5": life_5,
    "LIFE-7": life_7,
    "COLL-1": coll_1,
    "COLL-2": coll_2,
    "COLL-3": coll_3,
}


# What speaks in a run with an injected failure, and what speaks even when the user's own calls have failed.
FAULTED: Final = frozenset({"LIFE-4", "RDV-3", "NVLS-7"})
UNDETERRED: Final = frozenset({"LIFE-2", "LIFE-5", "CACHE-6"})
# What looks at driver calls, at the ledger, at where multicast addresses lead: not every world can tell.
OF_CALLS: Final = frozenset({"LIFE-4", "LIFE-5", "RDV-3", "CACHE-7", "NVLS-7"})
OF_LEDGER: Final = frozenset({"LIFE-1", "LIFE-2", "LIFE-3", "CACHE-6"})
OF_PLACES: Final = frozenset({"NVLS-1", "NVLS-4", "NVLS-8"})


# What cannot be evaluated in host memory and on real GPUs: nobody watches the communicator, and no place is told.
UNSEEN_IN_HOST: Final = OF_CALLS | OF_LEDGER | {"CACHE-9"}


def _untold(trace: Trace) -> frozenset[str]:
    """Give the requirements that nothing is known about, because the world does not record what they look at."""
    if trace.machine in UNWATCHED:
        return UNSEEN_IN_HOST | OF_PLACES
    calls = frozenset() if trace.calls else OF_CALLS
    blind = any(event.observed.get("reached", ()) is None for events in trace.events for event in events)
    return calls | OF_PLACES if blind else calls


def supported(trace: Trace, plan: list[Planned]) -> list[Planned]:
    """Give the plan without the steps that the backend says it cannot do: nobody did them."""
    declined = {
        step.number
        for step in plan
        if step.applies and all(trace.events[rank][step.number].status == "unsupported" for rank in step.ranks)
    }
    return [dataclasses.replace(step, applies=False) if step.number in declined else step for step in plan]


def judge(
    program: Program,
    trace: Trace,
    requirements: tuple[str, ...] | None = None,
    *,
    plan: list[Planned] | None = None,
) -> dict[str, Outcome]:
    """Apply the checks of the requirements (all by default) to a run; those that have none are left out.

    Parameters
    ----------
    program, trace
        What was to be done, and what happened.
    requirements : tuple of str, optional
        Ids.
    plan : list of Planned, optional
        What `allranks.conformance.plan.planned` gives, for a caller that has it already.
    """
    view = View(program, trace, supported(trace, plan if plan is not None else list(planned(program))))
    asked = tuple(name for name in requirements or CHECKS if name in CHECKS)
    untold = _untold(trace)
    found = {name: Outcome(inconclusive=1) for name in asked if name in untold}
    chosen = tuple(name for name in asked if name not in untold)
    return found | _judged(view, chosen)


def _judged(view: View, chosen: tuple[str, ...]) -> dict[str, Outcome]:
    if view.program.faults:
        return {name: CHECKS[name](view) if name in FAULTED else Outcome() for name in chosen}
    if view.user_failed:
        # Without the user's buffers nothing means anything, but for a fault that used the memory up or gave it back.
        found = {name: CHECKS[name](view) for name in chosen if name in UNDETERRED}
        broken = {name: outcome for name, outcome in found.items() if outcome.violations}
        return {name: broken.get(name, Outcome(inconclusive=1)) for name in chosen}
    return {name: CHECKS[name](view) for name in chosen}


__all__ = ["CHECKS", "FAULTED", "Check", "Outcome", "View", "Violation", "judge"]
