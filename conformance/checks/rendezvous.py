"""RDV: all ranks, or none."""

from __future__ import annotations

from allranks.conformance import program as p
from allranks.conformance.checks.outcome import Outcome, View, Violation
from allranks.conformance.plan import Planned
from allranks.conformance.trace import ENDED, Event

_OUT_OF_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"


def _no_room_expected(view: View, step: Planned) -> bool:
    """A bind may be refused for want of room; NVLS-5 judges that."""
    return isinstance(step.step, p.Bind) and all(event.status != "stalled" for event in view.events(step))


def _out_of_memory(event: Event) -> bool:
    return _OUT_OF_MEMORY in (event.error_code or event.error)


def rdv_1(view: View) -> Outcome:
    """A collective step succeeds on every rank.

    Does not verify: steps after the first that went wrong; refusals for want of room (NVLS-5) and of memory in loops
    (LIFE-2).
    """
    outcome = Outcome()
    refused = [rank for rank, event in enumerate(view.trace.opening) if event.status == "error"]
    if refused and not _out_of_memory(view.trace.opening[refused[0]]):
        first = next((rank for rank in refused if view.trace.opening[rank].raised_at), refused[0])
        evidence = f"open: {view.describe(view.trace.opening[first])}"
        return Outcome(
            evaluated=1,
            violations=[Violation(requirement="RDV-1", rank=first, step=-1, operation="open", evidence=evidence)],
        )
    for step in view.plan:
        if not (step.applies and step.collective):
            continue
        events = view.events(step)
        if step.unequal:
            if any(event.status != "ok" for event in events):
                outcome.inconclusive += 1
                break  # RDV-5 judges it, and after an error the communicator may be broken
            continue
        if view.all_ok(events):
            outcome.evaluated += 1
            continue
        bad = [rank for rank in view.ranks if events[rank].status in ("error", "stalled", "unsupported")]
        if not bad or _no_room_expected(view, step) or any(_out_of_memory(events[r]) for r in bad):
            outcome.inconclusive += 1
            if view.trace.stalled:
                break
            continue
        outcome.evaluated += 1
        went_on = [rank for rank in view.ranks if events[rank].status == "ok"]
        # The others' errors may follow from it: a process that ended, then what is no error of a communicator.
        ended = [rank for rank in bad if events[rank].error_type in ENDED]
        first = next((rank for rank in [*ended, *bad] if events[rank].raised_at or rank in ended), bad[0])
        evidence = view.describe(events[first])
        if went_on:
            evidence += f"; ranks {went_on} have gone on"
        outcome.violations.append(
            Violation(requirement="RDV-1", rank=first, step=step.number, operation=step.operation, evidence=evidence)
        )
        break
    if view.trace.outside:
        outcome.violations.append(
            Violation(
                requirement="RDV-1",
                rank=-1,
                step=-1,
                operation="run",
                evidence=f"a rank kept its turn without coming by the driver:\n{view.trace.outside}",
            )
        )
    return outcome


def rdv_2(view: View) -> Outcome:
    """Whether a step enters an internal rendezvous is the same on every rank.

    Does not verify: backends that do not count their rendezvous; which rendezvous it was.
    """
    outcome = Outcome()
    for step in view.plan:
        if not (step.applies and step.collective):
            continue
        events = view.events(step)
        counts = [event.rendezvous for event in events]
        if any(event.status == "not_reached" for event in events) or min(counts) < 0:
            outcome.inconclusive += 1
            continue
        outcome.evaluated += 1
        if len(set(counts)) > 1:
            usual = max(set(counts), key=counts.count)
            odd = [rank for rank in view.ranks if counts[rank] != usual]
            evidence = f"ranks {odd} entered {counts[odd[0]]} internal rendezvous, the others {usual}"
            outcome.violations.append(
                Violation(
                    requirement="RDV-2", rank=odd[0], step=step.number, operation=step.operation, evidence=evidence
                )
            )
        if not view.all_ok(events):
            break
    return outcome
