"""LIFE: what driver calls say. Calls that are wrong, calls that fail, and calls after the end."""

from __future__ import annotations

from collections import Counter
from typing import Final

from allranks.conformance import program as p
from allranks.conformance.checks.call_log import Call
from allranks.conformance.checks.outcome import ABSENCE, Outcome, View, Violation
from allranks.conformance.program import Fault
from allranks.conformance.trace import CLOSING, OPENING, Event

# Answers that no caller can foresee: no memory, unwound by a stall, not ready yet, not permitted, not supported.
_UNWOUND: Final = 702
_FORESEEN_BY_NOBODY: Final = (2, _UNWOUND, 600, 800, 801)
# Asking what there is at an address is answered by failing.
_QUERIES: Final = (
    "cuMemRetainAllocationHandle",
    "cuMemGetAddressRange",
    "cuPointerGetAttribute",
    "cuPointerGetAttributes",
)
_GIVES_BACK: Final = (
    "cuMemRelease",
    "cuMemUnmap",
    "cuMemAddressFree",
    "cuMemFree",
    "cuMulticastUnbind",
    "cuStreamDestroy",
    "cuEventDestroy",
    "cuModuleUnload",
    "cuDevicePrimaryCtxRelease",
)
_CODE_NAMES: Final = {2: "CUDA_ERROR_OUT_OF_MEMORY", 304: "CUDA_ERROR_OPERATING_SYSTEM", 999: "CUDA_ERROR_UNKNOWN"}
_SET_UP: Final = (p.Connect, p.OpenGroup, p.Bind)


def _violation(requirement: str, rank: int, step: int, operation: str, evidence: str) -> Violation:
    shown = step if step < OPENING else -1
    return Violation(requirement=requirement, rank=rank, step=shown, operation=operation, evidence=evidence)


def life_5(view: View) -> Outcome:
    """No driver call of the communicator is wrong: none fails, and none does what the driver merely tolerates.

    Does not verify: queries, which fail to say no; runs in which something was lost before.
    """
    outcome = Outcome()
    if view.trace.stalled or view.lost:
        outcome.inconclusive += 1
        return outcome
    outcome.evaluated += view.calls.total()
    for call in view.calls.failed(by_communicator=True):
        if call.result in _FORESEEN_BY_NOBODY or call.name in _QUERIES:
            continue
        evidence = f"{call.name} on rank {call.rank} returned {call.result}"
        outcome.violations.append(_violation("LIFE-5", call.rank, call.step, call.name, evidence))
        return outcome
    for incident in view.trace.incidents:
        if incident["owner"] == 1 and incident["assumption"] is None and incident["kind"] != "unsupported":
            evidence = f"{incident['call']} on rank {incident['rank']}: {incident['kind']}: {incident['detail']}"
            outcome.violations.append(
                _violation("LIFE-5", incident["rank"], incident["step"], incident["call"], evidence)
            )
            break
    return outcome


def life_7(view: View) -> Outcome:
    """A second close does nothing; use after close raises.

    Does not verify: abort; use after a failed open, which leaves nothing to be used; closing from another thread.
    """
    outcome = Outcome()
    for rank, events in enumerate(view.trace.after_close):
        for event in events:
            call = event.observed["call"]
            outcome.evaluated += 1
            if call == "close" and event.status != "ok":
                outcome.violations.append(
                    _violation("LIFE-7", rank, CLOSING, "close", f"a second close: {view.describe(event)}")
                )
            elif call != "close" and event.status != "error":
                said = "succeeds" if event.status == "ok" else view.describe(event)
                outcome.violations.append(_violation("LIFE-7", rank, CLOSING, call, f"{call} after close: {said}"))
    return outcome


def hit(view: View, fault: Fault) -> Call | None:
    """Give the call of the communicator that the fault made fail, if there was one."""
    call = view.calls.kth(fault.rank, fault.call, fault.k)
    return call if call is not None and call.by_communicator else None


def _events_of(view: View, rank: int) -> list[Event]:
    probes = view.trace.probes[rank] if view.trace.probes else []
    return [*view.trace.events[rank], *probes, view.trace.closing[rank]]


def life_4(view: View) -> Outcome:
    """A driver call fails: its code is told, nothing leaks, and no later call fails because of it.

    What could not be given back stays: one handle of a kind, no more. Does not verify: quiet calls (queries); several
    failures at once.
    """
    outcome = Outcome()
    for fault in view.program.faults:
        call = hit(view, fault)
        if call is None:
            continue
        outcome.evaluated += 1
        told = _fault_told(view, fault, call)
        if told is not None:
            where = f"{fault.call} #{fault.k} fails on rank {fault.rank} ({_step_name(view, call)}): "
            outcome.violations.append(_violation("LIFE-4", fault.rank, call.step, fault.call, where + told))
    return outcome


def _step_name(view: View, call: Call) -> str:
    return {OPENING: "open", CLOSING: "close"}.get(
        call.step, view.plan[call.step].operation if call.step < len(view.plan) else "probe"
    )


def _fault_told(view: View, fault: Fault, call: Call) -> str | None:
    if view.trace.stalled or view.trace.ledger is None:
        return "after it ranks wait for ever"
    name = _CODE_NAMES.get(fault.code, "")
    said = [f"{event.error_code} {event.error}" for event in _events_of(view, fault.rank) if event.status == "error"]
    if not any(name in text for text in said):
        return f"rank {fault.rank} never says {name or fault.code}"
    for later in view.calls.failed():
        if later != call and later.name not in _QUERIES and later.result != _UNWOUND:
            return f"then {later.name} on rank {later.rank} returned {later.result}"
    for incident in view.trace.incidents:
        if incident["assumption"] is None and incident["kind"] != "unsupported":
            return f"then {incident['call']} on rank {incident['rank']}: {incident['kind']}"
    left = Counter(entry["kind"] for entry in view.trace.ledger)
    most = 1 if fault.call in _GIVES_BACK else 0
    many = {kind: count for kind, count in left.items() if count > most}
    if many:
        return f"still alive after close: {', '.join(f'{count} {kind}' for kind, count in sorted(many.items()))}"
    return None


def rdv_3(view: View) -> Outcome:
    """A set-up step that fails on one rank fails on all, which are told so; then all are usable, or all broken.

    Does not verify: that the error names the rank; failures of other kinds than a driver call's; work that is enqueued
    already (RDV-8).
    """
    outcome = Outcome()
    for fault in view.program.faults:
        call = hit(view, fault)
        if call is None or view.trace.stalled:
            continue
        planned = view.plan[call.step] if call.step < len(view.plan) else None
        if planned is None and call.step != OPENING:
            continue
        if planned is not None and not isinstance(planned.step, _SET_UP):
            continue
        outcome.evaluated += 1
        events = view.trace.closing if planned is None else view.events(planned)
        operation = _step_name(view, call)
        evidence = _parted(events) or (view.probe_fault() if planned is not None else None)
        if evidence:
            where = f"{fault.call} #{fault.k} fails on rank {fault.rank}: "
            outcome.violations.append(_violation("RDV-3", fault.rank, call.step, operation, where + evidence))
    return outcome


def _parted(events: list[Event]) -> str:
    statuses = [event.status for event in events]
    if len(set(statuses)) > 1:
        return f"the step ended by rank as {', '.join(statuses)}"
    waited = [rank for rank, event in enumerate(events) if event.error_type in ABSENCE]
    return f"ranks {waited} are not told, and wait until the deadline" if waited else ""
