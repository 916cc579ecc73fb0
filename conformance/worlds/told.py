"""What a session saw, as it is told to whoever makes a Trace of it.

Ranks that are trusted hand it over as a whole, by `Told.of`. Others tell it as it goes on in plain data, and it is read
again without believing all of it: one record at open, one a step, one at the end. So whoever reads them knows how far a
rank came, whatever became of it.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from allranks.conformance.trace import OPENING, Event, Placed, Status, Trace, Usage
from allranks.conformance.worlds.session import Session

_STATUSES: Final = frozenset(typing.get_args(Status))


class Untrue(Exception):  # noqa: N818 -- says what was told
    """What a rank told cannot be."""


def _plain(event: Event) -> list[Any]:
    return [
        event.status,
        event.error,
        event.error_type,
        event.error_code,
        event.raised_at,
        event.rendezvous,
        {name: seen.item() if isinstance(seen, np.generic) else seen for name, seen in event.observed.items()},
    ]


def _event(plain: Any) -> Event:
    status, error, error_type, error_code, raised_at, rendezvous, observed = plain
    if status not in _STATUSES or type(rendezvous) is not int or type(observed) is not dict:
        raise Untrue(f"status={status!r} rendezvous={rendezvous!r}: no event is like that")
    return Event(
        status=status,
        error=str(error),
        error_type=str(error_type),
        error_code=str(error_code),
        raised_at=tuple(map(str, raised_at)),
        rendezvous=rendezvous,
        observed=observed,
    )


class SessionLog:
    """Tells what a session sees.

    Parameters
    ----------
    session : Session
        Whose.
    append : callable
        Takes the records, which are dicts.
    """

    def __init__(self, session: Session, append: Callable[[Any], None]) -> None:
        self._session = session
        self._append = append
        self._placed = 0

    def event(self, number: int) -> None:
        """Tell that a step, or open, has its event; see `Session.told`."""
        session = self._session
        if number == OPENING:
            self._append({"open": _plain(session.opening), "can": sorted(session.capabilities)})
            return
        told: dict[str, Any] = {"step": number, "event": _plain(session.events[number])}
        if len(session.placed) > self._placed:
            self._placed = len(session.placed)
            buffer, placed = next(reversed(session.placed.items()))
            told["placed"] = (buffer, placed.pieces, placed.same_base_as)
        self._append(told)

    def end(self) -> None:
        """Tell the rest."""
        session = self._session
        self._append(
            {
                "close": _plain(session.closing),
                "after": [_plain(event) for event in session.after_close],
                "probes": [_plain(event) for event in session.probes],
                "usage": [[entry.step, entry.round, *_amounts(entry)] for entry in session.usage],
                "contents": list(session.contents.items()),
            }
        )


def _amounts(usage: Usage) -> tuple[int, int, int]:
    return usage.memory_bytes, usage.multicast_bytes, usage.handles


@dataclass(slots=True)
class Told:
    """What a rank told, as far as it came; `events` are those of the first steps."""

    opening: Event | None = None
    capabilities: tuple[str, ...] = ()
    events: list[Event] = field(default_factory=list)
    placed: dict[int, Placed] = field(default_factory=dict)
    closing: Event | None = None
    after_close: list[Event] = field(default_factory=list)
    probes: list[Event] = field(default_factory=list)
    usage: list[Usage] = field(default_factory=list)
    contents: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)

    @classmethod
    def of(cls, session: Session) -> Told:
        """Give what a session has seen so far; it is the session's own."""
        return cls(
            opening=session.opening,
            capabilities=tuple(sorted(session.capabilities)),
            events=session.events or [Event() for _ in session.plan],
            placed=session.placed,
            closing=session.closing,
            after_close=session.after_close,
            probes=session.probes,
            usage=session.usage,
            contents=session.contents,
        )

    def read(self, records: Iterable[Any], steps: int) -> None:
        """Take in records of a plan with so many steps.

        Raises
        ------
        Untrue
            At the first that cannot be; what came before is taken in.
        """
        for told in records:
            try:
                self._read(told, steps)
            except (KeyError, TypeError, ValueError, IndexError) as error:
                raise Untrue(f"a record cannot be read: {type(error).__name__}: {error}") from None

    def _read(self, told: Any, steps: int) -> None:
        if self.closing is not None:
            raise Untrue("something is told after the end")
        if "open" in told:
            if self.opening is not None:
                raise Untrue("open is told twice")
            self.opening, self.capabilities = _event(told["open"]), tuple(map(str, told["can"]))
        elif self.opening is None:
            raise Untrue("the result of open is missing")
        elif "step" in told:
            number, expected = told["step"], len(self.events)
            if number != expected or expected >= steps:
                raise Untrue(f"the result of step {number!r} is told where that of step {expected} should be")
            self.events.append(_event(told["event"]))
            if "placed" in told:
                buffer, pieces, same = told["placed"]
                self.placed[buffer] = Placed(pieces=tuple(tuple(piece) for piece in pieces), same_base_as=same)
        else:
            self._read_end(told, steps)

    def _read_end(self, told: Any, steps: int) -> None:
        closing = _event(told["close"])
        opened = self.opening is not None and self.opening.status == "ok"
        stalled = any(event.status == "stalled" for event in self.events)
        if opened and not stalled and len(self.events) < steps:
            raise Untrue(f"the result of step {len(self.events)} is missing")
        self.after_close = [_event(event) for event in told["after"]]
        self.probes = [_event(event) for event in told["probes"]]
        self.usage = [Usage(*entry) for entry in told["usage"]]
        self.contents = {
            buffer: [(offset, bytes(held)) for offset, held in ranges] for buffer, ranges in told["contents"]
        }
        self.closing = closing


def fill(trace: Trace, told: Sequence[Told], steps: int) -> None:
    """Put into a Trace what its ranks told, each as far as it came."""
    trace.capabilities = next((one.capabilities for one in told if one.capabilities), ())
    trace.events = [one.events + [Event() for _ in range(steps - len(one.events))] for one in told]
    trace.opening = [one.opening or Event() for one in told]
    trace.closing = [one.closing or Event() for one in told]
    trace.after_close = [one.after_close for one in told]
    trace.probes = [one.probes for one in told] if any(one.probes for one in told) else []
    trace.placed = {(rank, buffer): placed for rank, one in enumerate(told) for buffer, placed in one.placed.items()}
    trace.contents = {(rank, buffer): held for rank, one in enumerate(told) for buffer, held in one.contents.items()}
    trace.usage = tuple(told[0].usage)
