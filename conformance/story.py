"""A failure as a short story: what is broken, who waits for whom and where the others are, and how to see it again."""

from __future__ import annotations

from typing import Any, Final

from allranks.conformance import program as p
from allranks.conformance.checks.outcome import Violation
from allranks.conformance.plan import Part, Planned, planned
from allranks.conformance.program import Program
from allranks.conformance.trace import CLOSING, OPENING, PROBING, Trace

MOST_LINES: Final = 15
_MARKS: Final = {"error": ("x", "error"), "stalled": ("~", "waits for ever"), "not_reached": (".", "not reached")}
_STATES: Final = {
    "left": "ended",
    "runnable": "could run",
    "computing": "computes",
    "stopped": "is stopped by a signal",
    "waits": "waits",
}
_MOMENTS: Final = {
    "stall": "Nothing can go on:",
    "deadline": "Nothing could go on but the deadline:",
    "waiting": "No end within the deadline:",
    "died": "Ranks ended before their time:",
}


def _place(step: int, operation: str) -> str:
    if step == OPENING:
        return "opening"
    if step == CLOSING:
        return "closing"
    if step == PROBING:
        return "a collective after the last step"
    return f"step {step}, {operation}" if operation else "at the start"


def _ranks(ranks: list[int]) -> str:
    if len(ranks) > 6:
        return f"{len(ranks)} ranks ({ranks[0]} to {ranks[-1]})"
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))


def _waits(moment: dict[str, Any], names: dict[int, str]) -> list[str]:
    """One line for all that wait in the same call, on the same object, for the same ranks, at the same step."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for wait in moment["waits"]:
        operation = names.get(wait["step"], wait["operation"])
        key = (wait["call"], wait["object"], tuple(wait["waits_for"]), wait["step"], operation)
        groups.setdefault(key, []).append(wait["rank"])
    lines = []
    for (call, thing, waits_for, step, operation), ranks in groups.items():
        known = [rank for rank in ranks if rank >= 0]
        who = _ranks(known) if known else "a stream"
        target = f", for {_ranks(list(waits_for))}" if waits_for else ""
        verb = "wait" if len(known) > 1 else "waits"
        lines.append(f"  {who} {verb} in {call}, on {thing}{target} ({_place(step, operation)})")
    others: dict[tuple[Any, ...], list[int]] = {}
    for other in moment["others"]:
        operation = names.get(other["step"], other["operation"])
        others.setdefault((other["state"], other["step"], operation), []).append(other["rank"])
    for (state, step, operation), ranks in others.items():
        lines.append(f"  {_ranks(ranks)} {_STATES.get(state, state)} ({_place(step, operation)})")
    return lines


def tell(program: Program, trace: Trace, violation: Violation, replay: str = "") -> list[str]:
    """Tell the story of a violation in at most `MOST_LINES` lines.

    Parameters
    ----------
    program, trace
        The run that shows it.
    violation : Violation
        What is broken.
    replay : str
        The command that shows it again.
    """
    names = {step.number: step.name for step in planned(program) if step.part_of}
    operation = names.get(violation.step, violation.operation)
    where = f"step {violation.step} ({operation})" if violation.step >= 0 else violation.operation
    if violation.rank >= 0:
        where += f" on rank {violation.rank}"
    size = f"{_count(program.rank_count, 'rank')}, {_count(sum(1 for _ in p.unrolled(program)), 'step')}"
    lines = [
        f"{violation.requirement} is broken in {where}: {trace.backend}, {size}.",
        *(f"  {line}" for line in violation.evidence.splitlines()),
    ]
    if trace.moments:
        moment = trace.moments[0]
        what = _MOMENTS.get(moment.get("verdict", ""), _MOMENTS.get(moment["kind"], ""))
        lines += [what, *_waits(moment, names)]
    tail = [f"Again: {replay}"] if replay else []
    room = MOST_LINES - len(tail)
    if len(lines) > room:
        lines = [*lines[: room - 1], f"  and {len(lines) - room + 1} more lines"]
    return [*lines, *tail]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _size(count: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit and count % unit == 0:
            return f"{count // unit} {name}"
    return f"{count} B"


def _part(part: Part) -> str:
    offset = f"+{part.offset_bytes}" if part.offset_bytes else ""
    return f"buffer {part.buffer}{offset}"


def _cell(step: Planned, rank: int) -> str:
    """What a rank does in a step, in a few words."""
    if not step.applies or rank not in step.ranks:
        return ""
    part = step.parts[rank] if step.parts else None
    match step.step:
        case p.Allocate(size_bytes=size, placement=placement):
            assert part is not None
            return f"buffer {part.buffer}: {_size(size)}" + (f", {placement}" if placement != "low" else "")
        case p.OpenGroup(capacity_bytes=capacity):
            return f"group {step.target}: {_size(capacity)}"
        case p.Bind():
            assert part is not None
            return f"{_part(part)} as binding {step.target}"
        case p.AllReduce() | p.AllGather():
            assert part is not None
            return f"{step.count} of {_part(part)} to {_part(step.receive[rank])}"
        case p.Put(reach=reach):
            return f"{step.count} B to " + (f"the next {reach}" if reach else "each")
        case p.MulticastStore(source=source):
            return f"stores to {step.target}" if source % len(step.ranks) == rank else "takes part"
        case p.MulticastReduce():
            return f"{step.count} of binding {step.target}"
        case _:
            return _part(part) if part is not None else f"object {step.target}"


def lanes(program: Program, trace: Trace, *, most_ranks: int = 4, most_steps: int = 24) -> list[str]:
    """Draw a Program as one lane a rank; a mark says how the step ended there, and a last line what marks mean."""
    ranks = range(min(program.rank_count, most_ranks))
    marks = {status: f" {mark}" for status, (mark, _) in _MARKS.items()}
    rows = [["step", *(f"rank {rank}" for rank in ranks)]]
    plan = [step for step in planned(program) if step.applies]
    for step in plan[:most_steps]:
        cells = [_cell(step, rank) + marks.get(trace.events[rank][step.number].status, "") for rank in ranks]
        rows.append([f"{step.number} {step.name}", *cells])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    if len(plan) > most_steps:
        lines.append(f"... and {len(plan) - most_steps} more steps")
    if program.rank_count > most_ranks:
        lines.append(f"... and {program.rank_count - most_ranks} more ranks")
    seen = {trace.events[rank][step.number].status for step in plan[:most_steps] for rank in ranks}
    legend = [f"{mark} {meaning}" for status, (mark, meaning) in _MARKS.items() if status in seen]
    if legend:
        lines.append(f"({', '.join(legend)})")
    return lines


def left_behind(trace: Trace) -> list[str]:
    """Give what ranks that are processes printed, and where they were, rank by rank."""
    lines = []
    for rank, note in enumerate(trace.notes):
        for title, said in (("printed", note.output), ("was in", note.stack), ("was, natively, in", note.native)):
            if said:
                lines += [f"rank {rank} {title}:", *(f"    {line}" for line in said)]
    return lines
