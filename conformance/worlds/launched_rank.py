"""What each rank of a launched world runs: it waits for Programs, plays its part in them, and tells how it went."""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import resource
from collections.abc import MutableSequence
from dataclasses import dataclass
from typing import Any

from allranks.conformance.backend import Backend, load_backend, versions_of
from allranks.conformance.trace import Event
from allranks.conformance.worlds.crew import connect
from allranks.conformance.worlds.player import Played, Player
from allranks.conformance.worlds.processes.parcel import pickled, unpack
from allranks.conformance.worlds.sentinel import mapped
from allranks.conformance.worlds.wire import Lane, MpiWire, StoreWire, Wire
from allranks.errors import UsageError
from allranks.processes.ties import end_with_parent


@dataclass(frozen=True, slots=True)
class Play:
    """Play a Program: its number, counted by whoever gives it, and what `pack` made of it."""

    run: int
    packed: bytes


@dataclass(frozen=True, slots=True)
class Halt:
    """Tell how far a Program has come, which has no end: the event is that of the step that the rank is in."""

    run: int
    event: Event


@dataclass(frozen=True, slots=True)
class Answer:
    """What a rank says of its part in a Program."""

    run: int
    played: Played


@dataclass(frozen=True, slots=True)
class Progress:
    """A rank has got further since it said so last; only where nobody can see its board."""

    run: int


def wire_of(kind: str) -> Wire:
    """Give the ranks that the launcher has started: over MPI, or over the store of ``torchrun``."""
    return MpiWire() if kind == "mpi" else StoreWire()


def player_of(
    wire: Wire, backend: Backend, meeting: Lane, deadline_s: float, board: MutableSequence[int] | None = None
) -> Player:
    """Make what plays this rank."""
    return Player(backend, wire.rank, wire.size, meeting, deadline_s=deadline_s, shared=board)


def main(job: str) -> None:
    """Serve the crew that has started this rank."""
    told: dict[str, Any] = json.loads(job)
    end_with_parent()
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    faulthandler.enable()
    connection, board = connect(told)
    try:
        wire = wire_of(told["wire"])
        backend = load_backend(told["backend"])
        hello: dict[str, Any] = {"rank": wire.rank, "size": wire.size, "pid": os.getpid(), "local": board is not None}
        hello["shared"] = sorted(mapped(os.getpid()))
        connection.send({**hello, "facts": versions_of(backend) if wire.rank == 0 else {}})
        if wire.size != told["size"]:
            return  # whoever has started it knows
    except UsageError as error:
        connection.send({"usage": str(error)})
        os._exit(0)
    gc.collect()
    gc.freeze()  # no use in going through what was imported
    player = player_of(wire, backend, wire.lane(), told["deadline_s"], board)

    def look() -> Event | None:
        if not connection.poll():
            return None
        try:
            said: object = connection.recv()
        except EOFError:
            os._exit(1)
        if not isinstance(said, Halt):  # nothing else is said to a rank that plays: its crew has ended
            os._exit(1)
        return said.event

    over = True
    while over:
        try:
            play: Play | Halt | None = connection.recv()
        except EOFError:
            os._exit(1)
        if play is None:
            return
        if isinstance(play, Halt):  # it came to its end all the same
            continue
        played = player.play(play.run, *unpack(play.packed), look)
        connection.send_bytes(pickled(Answer(play.run, played)))
        over = played.over
    while True:  # the session is stuck in its thread: wait for the end
        try:
            connection.recv()
        except EOFError:
            os._exit(1)
