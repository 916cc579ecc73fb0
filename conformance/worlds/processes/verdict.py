"""How a run that did not end well is told: who waits in what, since which step, who is gone, and what they said."""

from __future__ import annotations

import select
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from allranks.conformance.trace import CLOSING, OPENING, PROBING, Event, RankNote
from allranks.conformance.worlds.processes.native_stacks import native_stacks
from allranks.conformance.worlds.processes.run import Rank, Run
from allranks.conformance.worlds.processes.workers import Worker
from allranks.conformance.worlds.stacks import from_dump
from allranks.conformance.worlds.told import Told
from allranks.processes.watch import ThreadState, says

Verdict = Literal["blocked", "waiting"]

_STACKS_S: Final = 0.5
_LOOK_S: Final = 0.002
_MOST_LINES: Final = 10
_SPECIAL: Final = {OPENING: "open", CLOSING: "close", PROBING: "probe"}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rank is: a step, or one of the labels of what is no step."""

    step: int
    operation: str


def place_of(told: Told, label: int | None, operations: Mapping[int, str]) -> Place:
    """Say where a rank is by what it has told, and by the last label that it wrote, if that is to be believed."""
    done = len(told.events)
    if told.opening is None:
        return Place(OPENING, "open")
    if label is not None and label in (CLOSING, PROBING):
        return Place(label, _SPECIAL[label])
    if done < len(operations):
        return Place(done, operations[done])
    return Place(CLOSING, "close")


def mark(told: Told, place: Place, event: Event) -> None:
    """Put an event where a rank is."""
    if place.step == OPENING:
        told.opening = told.closing = event
    elif place.step == PROBING:
        told.probes.append(event)
    elif place.step == CLOSING:
        told.closing = event
    else:
        told.events += [Event() for _ in range(place.step - len(told.events))]
        told.events.append(event)


def event_of(run: Run, rank: Rank, verdict: Verdict | None, threads: list[ThreadState], deadline_s: float) -> Event:
    """Give what the step was in which a rank was left."""
    if rank.state == "died":
        return Event(status="error", error_type="Died", error=f"its process ended: {rank.word}")
    if rank.state == "lied":
        return Event(status="error", error_type="Garbled", error=f"what its process says cannot be: {rank.word}")
    text = f"waits in {rank.what} for ranks {run.missing(rank)}" if rank.state == "meets" else _at(threads)
    if verdict == "waiting":
        return Event(status="stalled", error_type="Waiting", error=f"{text}; no end within {deadline_s:g} s")
    return Event(status="stalled", error_type="Blocked", error=f"{text}, for ever")


def _at(threads: list[ThreadState]) -> str:
    """Say what a process is at: its main thread, and another one if only that keeps it from being blocked."""
    if not threads:
        return "waits"
    text = says(threads[0])
    lively = next((thread for thread in threads[1:] if thread.state != "blocked"), None)
    if lively is not None and threads[0].state == "blocked":
        text += f", while another thread {says(lively)}"
    return text


def moment(run: Run, verdict: Verdict | None, places: list[Place], threads: list[list[ThreadState]]) -> dict[str, Any]:
    """Give who waits for whom, and what the others are at."""
    waits, others = [], []
    for number, (rank, place) in enumerate(zip(run.ranks, places, strict=True)):
        at = {"rank": number, "step": place.step, "operation": place.operation}
        main = threads[number][0] if threads[number] else None
        if rank.state == "meets":
            waits.append({**at, "call": "exchange", "object": rank.what, "waits_for": run.missing(rank)})
        elif rank.state == "at work" and main is not None and main.state in ("blocked", "timed"):
            thing = main.object or "the kernel"
            limited = " with a time-out" if main.state == "timed" else ""
            waits.append({**at, "call": main.call + limited, "object": thing, "waits_for": []})
        else:
            others.append({**at, "state": _state(rank, main)})
    return {"kind": "stall" if verdict else "end", "verdict": verdict or "died", "waits": waits, "others": others}


def _state(rank: Rank, main: ThreadState | None) -> str:
    match rank.state:
        case "done":
            return "left"
        case "died":
            return f"died ({rank.word})"
        case "lied":
            return "told what cannot be"
        case _:
            return main.state if main is not None else "waits"


def notes(run: Run, threads: list[list[ThreadState]], *, native: bool) -> tuple[RankNote, ...]:
    """Give what each rank printed, and its stacks where it was left."""
    left = [rank.worker for rank, seen in zip(run.ranks, threads, strict=True) if _can_tell(rank, seen)]
    before = {worker.rank: len(worker.written_stacks()) for worker in left}
    for worker in left:
        worker.ask_for_stacks()
    until = time.monotonic() + _STACKS_S
    while any(not _complete(worker, before[worker.rank]) for worker in left) and time.monotonic() < until:
        # Nobody is told when a file grows; meanwhile some rank may be stuck in printing.
        select.select([worker.output for worker in left], [], [], _LOOK_S)
        for worker in left:
            worker.listen()
    below = native_stacks([worker.pid for worker in left]) if native else {}
    for rank in run.ranks:
        rank.worker.listen()
    return tuple(
        RankNote(
            output=tuple(rank.worker.said.decode(errors="replace").splitlines()[-_MOST_LINES:]),
            stack=tuple(line for line in from_dump(rank.worker.written_stacks()) if not line.startswith("<string>")),
            native=below.get(rank.worker.pid, ()),
        )
        for rank in run.ranks
    )


def _can_tell(rank: Rank, threads: list[ThreadState]) -> bool:
    return rank.left and all(thread.state != "stopped" for thread in threads)


def _complete(worker: Worker, before: int) -> bool:
    return "most recent call first" in (text := worker.written_stacks()[before:]) and text.endswith("\n")
