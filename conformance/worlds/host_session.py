"""Sessions of ranks each of which is a process of its own, in host memory or at another site."""

from __future__ import annotations

from collections.abc import MutableSequence

from allranks.conformance.backend import Backend
from allranks.conformance.model import footprints
from allranks.conformance.plan import Planned
from allranks.conformance.program import Program
from allranks.conformance.worlds.arena import Arena
from allranks.conformance.worlds.host_site import HostSite
from allranks.conformance.worlds.margins import with_margins
from allranks.conformance.worlds.meeting import Meeting
from allranks.conformance.worlds.session import Context, Session
from allranks.conformance.worlds.site import Site


def host_session(
    program: Program,
    plan: list[Planned],
    *,
    rank: int,
    backend: Backend,
    arena: Arena,
    meeting: Meeting,
    board: MutableSequence[int],
    timeout_s: float,
) -> Session:
    """Make the session of one rank whose buffers lie in an arena; the rest is as for `session_at`."""
    site = HostSite(arena, program.shift_bytes.of(rank))
    return session_at(
        site, program, plan, rank=rank, backend=backend, meeting=meeting, board=board, timeout_s=timeout_s
    )


def session_at(
    site: Site,
    program: Program,
    plan: list[Planned],
    *,
    rank: int,
    backend: Backend,
    meeting: Meeting,
    board: MutableSequence[int],
    timeout_s: float,
) -> Session:
    """Make the session of one rank.

    Parameters
    ----------
    site : Site
        The rank's place.
    program, plan
        What to do.
    rank : int
        Which rank's part.
    backend : Backend
        The communicator under test.
    meeting : Meeting
        Where the ranks meet.
    board : mutable sequence of int
        Where the session notes what the rank does, at its own index.
    timeout_s : float
        Deadline for the communicator's own blocking calls.
    """
    context = Context(
        rank=rank,
        rank_count=program.rank_count,
        device=site.device,
        driver=site.driver,
        memory_space=site.memory_space,
        timeout_s=timeout_s,
        meeting=meeting,
    )
    return Session(
        program=program,
        plan=plan,
        ranges=with_margins(footprints(program, plan), plan),
        backend=backend,
        context=context,
        site=site,
        owners={},
        board=board,
    )
