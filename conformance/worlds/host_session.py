"""Sessions of ranks whose buffers are host memory, each in a process of its own."""

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
    """Make the session of one rank.

    Parameters
    ----------
    program, plan
        What to do.
    rank : int
        Which rank's part.
    backend : Backend
        The communicator under test.
    arena : Arena
        Where the user's buffers lie.
    meeting : Meeting
        Where the ranks meet.
    board : mutable sequence of int
        Where the session notes what the rank does, at its own index.
    timeout_s : float
        Deadline for the communicator's own blocking calls.
    """
    site = HostSite(arena, program.shift_bytes.of(rank))
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
