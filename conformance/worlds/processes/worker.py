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
from collections.abc import Callable
from typing import Final

from allranks.conformance.backend import Backend
from allranks.conformance.worlds.arena import Arena
from allranks.conformance.worlds.cuda_site import cuda_sites
from allranks.conformance.worlds.hardware import LIBRARY, DriverName
from allranks.conformance.worlds.host_session import session_at
from allranks.conformance.worlds.host_site import HostSite
from allranks.conformance.worlds.processes.journal import Journal
from allranks.conformance.worlds.processes.line import Line, LineMeeting
from allranks.conformance.worlds.processes.parcel import unpack
from allranks.conformance.worlds.processes.wire import Frame, Kind
from allranks.conformance.worlds.site import Site
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


def serve(
    backend: Backend, stream: socket.socket, journal: int, stacks: int, rank: int, driver: DriverName = "sim"
) -> None:
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
    driver : {"sim", "cuda"}
        Whether buffers are memory of a real device; else they are host memory.
    """
    _show_what_is_printed()
    faulthandler.enable(file=stacks)
    faulthandler.register(STACKS_SIGNAL, file=stacks, all_threads=True)
    line, log, sites = Line(stream), Journal(journal), _Sites(driver, rank)
    os.close(journal)
    while True:
        try:
            frame = line.receive()
        except EOFError:
            break
        if frame.kind is not Kind.RUN:
            break
        try:
            _play(backend, line, log, sites, frame, rank)
        except Exception:  # noqa: BLE001 -- of this package itself: the supervisor raises it
            line.send(Frame(Kind.FAILED, frame.run, traceback.format_exc()))
    atexit._run_exitfuncs()


class _Sites:
    """Gives a rank its place in each run. What all of them are made of is there from the first run on."""

    def __init__(self, driver: DriverName, rank: int) -> None:
        self.driver = driver
        self.rank = rank
        self._made: Callable[[int], Site] | None = None

    def of(self, shift_bytes: int) -> Site:
        """Give the place for a run."""
        if self._made is None:
            self._made = cuda_sites(LIBRARY, self.rank) if self.driver == "cuda" else _host_sites()
        return self._made(shift_bytes)


def _host_sites() -> Callable[[int], Site]:
    arena = Arena()
    return lambda shift_bytes: HostSite(arena, shift_bytes)


def _play(backend: Backend, line: Line, journal: Journal, sites: _Sites, frame: Frame, rank: int) -> None:
    timeout_s, packed = frame.value
    program, plan = unpack(packed)
    meeting = LineMeeting(line, frame.run, program.rank_count)
    session = session_at(
        sites.of(program.shift_bytes.of(rank)),
        program,
        plan,
        rank=rank,
        backend=backend,
        meeting=meeting,
        board=journal.board,
        timeout_s=timeout_s,
    )
    log = SessionLog(session, journal.append)
    session.told = log.event
    session.play()
    log.end()
    line.send(Frame(Kind.DONE, frame.run))
