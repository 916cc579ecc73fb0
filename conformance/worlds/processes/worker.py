"""A worker: the process of one rank. It plays its rank's part in one Program after the other."""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import os
import signal
import socket
import sys
import traceback
from typing import Final

from allranks.conformance.backend import Backend
from allranks.conformance.worlds.arena import Arena
from allranks.conformance.worlds.host_session import host_session
from allranks.conformance.worlds.processes.journal import Journal
from allranks.conformance.worlds.processes.line import Line, LineMeeting
from allranks.conformance.worlds.processes.parcel import unpack
from allranks.conformance.worlds.processes.wire import Frame, Kind
from allranks.conformance.worlds.told import SessionLog

# What makes the interpreter write its stacks; libraries have no use for it.
STACKS_SIGNAL: Final = signal.SIGRTMIN + 9
_LINE_BUFFERED: Final = 1  # _IOLBF


def _show_what_is_printed() -> None:
    """Have what is printed leave the process line by line: it may be killed at any time."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    libc = ctypes.CDLL(None)
    libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, _LINE_BUFFERED, 0)


def serve(backend: Backend, stream: socket.socket, journal: int, stacks: int, rank: int) -> None:
    """Play rank `rank` in whatever comes along the stream, until it ends.

    Parameters
    ----------
    backend : Backend
        The communicator under test.
    stream : socket
        The link to the supervisor.
    journal, stacks : int
        Descriptors: where events go, and where the interpreter writes stacks.
    rank : int
        Which rank this is in every run.
    """
    _show_what_is_printed()
    faulthandler.enable(file=stacks)
    faulthandler.register(STACKS_SIGNAL, file=stacks, all_threads=True)
    line, log, arena = Line(stream), Journal(journal), Arena()
    os.close(journal)
    while True:
        try:
            frame = line.receive()
        except EOFError:
            break
        if frame.kind is not Kind.RUN:
            break
        try:
            _play(backend, line, log, arena, frame, rank)
        except Exception:  # noqa: BLE001 -- of this package itself: the supervisor raises it
            line.send(Frame(Kind.FAILED, frame.run, traceback.format_exc()))
    atexit._run_exitfuncs()


def _play(backend: Backend, line: Line, journal: Journal, arena: Arena, frame: Frame, rank: int) -> None:
    timeout_s, packed = frame.value
    program, plan = unpack(packed)
    meeting = LineMeeting(line, frame.run, program.rank_count)
    session = host_session(
        program,
        plan,
        rank=rank,
        backend=backend,
        arena=arena,
        meeting=meeting,
        board=journal.board,
        timeout_s=timeout_s,
    )
    log = SessionLog(session, journal.append)
    session.told = log.event
    session.play()
    log.end()
    line.send(Frame(Kind.DONE, frame.run))
