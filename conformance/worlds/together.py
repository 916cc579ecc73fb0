"""Checking from within a job that another launcher has started: ``mpiexec -n 4 allranks check --launcher none ...``.

Every rank calls `check_together`, with the same settings. The first rank draws Programs and judges; all play; in the
end each rank has the same result, whatever became of one of them. Ranks that are stuck cannot be started again from
here: then the rest is not run, and says so, and `leave` ends the job as a whole.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from allranks.conformance.backend import load_backend, versions_of
from allranks.conformance.checks import UNSEEN_IN_HOST
from allranks.conformance.engine import CASES, Engine
from allranks.conformance.launchers import wire_name
from allranks.conformance.narrowing import contract_of
from allranks.conformance.result import Ran, Result
from allranks.conformance.worlds.crew import WireCrew
from allranks.conformance.worlds.launched import LaunchedWorld, SpentError
from allranks.conformance.worlds.launched_rank import Answer, Play, Progress, player_of, wire_of
from allranks.conformance.worlds.player import Played, Player
from allranks.conformance.worlds.processes.parcel import unpack
from allranks.conformance.worlds.wire import Lane, Wire
from allranks.errors import UsageError

if TYPE_CHECKING:
    from allranks.conformance.settings import Settings


class Member:
    """This process as one rank of the job; there is one of it."""

    found: Member | None = None

    def __init__(self, settings: Settings) -> None:
        wire: Wire = wire_of(wire_name(settings.launcher))
        if wire.size < settings.ranks:
            raise UsageError(f"ranks={settings.ranks}: the launcher has started {wire.size}")
        self.wire = wire
        self.lane: Lane = wire.lane()
        self.backend = load_backend(settings.backend)
        self.player: Player = player_of(wire, self.backend, wire.lane(), settings.deadline_s)
        self.spent = False

    @classmethod
    def of(cls, settings: Settings) -> Member:
        """Give this process's; the first caller makes it."""
        if cls.found is None:
            cls.found = Member(settings)
        return cls.found


def first_rank(settings: Settings) -> bool:
    """Whether this process is the one that reports."""
    return Member.of(settings).wire.rank == 0


def check_together(settings: Settings, sources: Sequence[str], progress: Callable[[Ran], None]) -> Result:
    """Check a backend on Programs of some sources; every rank does, and gets the result.

    Raises
    ------
    allranks.errors.UsageError
        If there are not enough ranks, or something is missing.
    """
    member = Member.of(settings)
    return _lead(member, settings, sources, progress) if member.wire.rank == 0 else _follow(member)


def leave(code: int) -> int:
    """Give the exit code, or end the job with it if some rank is stuck."""
    member = Member.found
    if member is not None and member.spent and member.wire.rank == 0:
        sys.stdout.flush()
        sys.stderr.flush()
        member.wire.abort(code)
    return code


def _lead(member: Member, settings: Settings, sources: Sequence[str], progress: Callable[[Ran], None]) -> Result:
    def own(play: Play, look: Callable[[], None]) -> Played:
        return member.player.play(play.run, *unpack(play.packed), look)

    crew = WireCrew(member.lane, member.wire.size, versions_of(member.backend), member.player.labels)
    world = LaunchedWorld(member.backend, crew, deadline_s=settings.deadline_s, own=own)
    engine = Engine(
        member.backend,
        settings.machine,
        settings.requirements,
        seed=settings.seed,
        max_ranks=settings.ranks,
        progress=progress,
        world=world,
        unseen=UNSEEN_IN_HOST,
        contract=contract_of(member.backend, strict=settings.strict),
    )
    result = engine.result
    world.spent = member.spent
    for source in sources:
        try:
            if source == CASES:
                engine.run_cases(settings.cases())
            else:
                engine.run_family(source, settings.programs)
        except SpentError:
            result.stopped[source] = result.programs
    member.spent = world.spent
    for rank in range(1, member.wire.size):
        member.lane.send(rank, result)  # one that is stuck never takes it
    if not member.spent:
        member.lane.flush()
    return result


def _follow(member: Member) -> Result:
    """Play until the first rank has a result."""
    while True:
        found = member.lane.receive(None)
        assert found is not None
        asked: Any = found[1]
        if isinstance(asked, Result):
            return asked
        assert isinstance(asked, Play)
        changes = [member.player.labels.changes]

        def look(run: int = asked.run, changes: list[int] = changes) -> None:
            if member.player.labels.changes != changes[0]:
                changes[0] = member.player.labels.changes
                member.lane.send(0, Progress(run))

        played = member.player.play(asked.run, *unpack(asked.packed), look)
        member.lane.send(0, Answer(asked.run, played))
        member.spent = member.spent or not played.over
