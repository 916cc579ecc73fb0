"""World `mpi`: ranks are processes that a launcher has started, on this machine or on several.

Programs come one by one. Every rank that has come no further for the deadline says where it is, and so do all once they
are blocked for good; one that says nothing at all, or has ended, is noted as such. After any of this the ranks are
started anew, where that can be done.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, Literal

from allranks.conformance.backend import Backend
from allranks.conformance.plan import Planned, planned
from allranks.conformance.program import Program
from allranks.conformance.trace import HOST, OPENING, Event, Trace, place_of
from allranks.conformance.worlds import Ahead
from allranks.conformance.worlds.crew import GONE, Crew, Lost
from allranks.conformance.worlds.launched_rank import Answer, Halt, Play, Progress
from allranks.conformance.worlds.player import Played, halted, waiting
from allranks.conformance.worlds.processes.parcel import pack
from allranks.conformance.worlds.told import Told, fill
from allranks.errors import UsageError, WorldError

DEADLINE_S: Final = 10.0
# How much longer than the deadline a rank may say nothing: it is then asked for no more.
_GRACE_S: Final = 2.0
# When one rank is gone, its launcher ends the others: what they still say comes soon.
_AFTER_LOSS_S: Final = 0.5
# How long ranks may take that are blocked for good to say how far they came.
_AFTER_HALT_S: Final = 2.0
_LOOK_S: Final = 0.05

Verdict = Literal["", "blocked", "waiting", "died"]  # of ranks that did not come to the end


class SpentError(WorldError):
    """The ranks are stuck, and nobody can start them again."""


class LaunchedWorld(Ahead):
    """Runs Programs on ranks that a launcher has started.

    Parameters
    ----------
    backend : Backend
        The communicator under test, as the ranks have it.
    crew : Crew
        The ranks.
    deadline_s : float
        How long a rank may come no further.
    beat : callable
        Called again and again during a run.
    own : callable (Play, look) -> Played, optional
        Plays rank 0 here; without one rank 0 is of the crew.
    """

    deterministic: Final = False
    machine_name: Final = HOST

    def __init__(
        self,
        backend: Backend,
        crew: Crew,
        *,
        deadline_s: float = DEADLINE_S,
        beat: Callable[[], None] = lambda: None,
        own: Callable[[Play, Callable[[], None]], Played] | None = None,
    ) -> None:
        self.backend = backend
        self.crew = crew
        self.deadline_s = deadline_s
        self.own = own
        self.beat = beat
        self.runs = 0
        self.spent = False
        self.verdict_s = 0.0  # from the last progress to the verdict, of the last run that needed one
        self.native_stacks = False  # as of `ProcessesWorld`; not taken here
        self._begun: tuple[Program, list[Planned], Play] | None = None

    @property
    def facts(self) -> dict[str, str]:
        """Versions of what runs on the ranks."""
        return self.crew.facts

    @property
    def pids(self) -> list[int]:
        """Processes of the ranks that are on this machine, as far as they are known."""
        return self.crew.pids

    def renew(self) -> None:
        """Have the next run begin on new ranks, if there can be any."""
        self.crew.again()

    def close(self) -> None:
        """End the ranks."""
        self.crew.close()

    def begin(self, program: Program, *, plan: list[Planned] | None = None) -> None:
        """Give a Program to the ranks.

        Raises
        ------
        allranks.errors.UsageError
            If it has more ranks than there are.
        SpentError
            If an earlier Program has left ranks stuck that cannot be started again.
        """
        if self._begun is not None:
            raise RuntimeError("a Program begins before the end of another one")
        if program.rank_count > self.crew.size:
            raise UsageError(f"ranks={program.rank_count}: {self.crew.size} were started")
        if self.spent:
            raise SpentError("an earlier Program has left ranks stuck, and they cannot be started again from here")
        steps = plan if plan is not None else list(planned(program))
        self.runs += 1
        for rank in range(program.rank_count):
            self.crew.board[rank] = OPENING
        self._begun = (program, steps, Play(self.runs, pack(program, steps)))
        if self.own is None:  # else all begin when this rank does: until then they could only wait for it
            for rank in range(program.rank_count):
                self.crew.send(rank, self._begun[2])

    def end(self) -> Trace:
        """Give what became of the Program.

        Raises
        ------
        allranks.errors.UsageError
            If the ranks cannot be started again.
        RuntimeError
            If something of this package's own went wrong in a rank.
        """
        begun, self._begun = self._begun, None
        if begun is None:
            raise RuntimeError("no Program has begun")
        program, steps, play = begun
        if self.own is not None:
            for rank in range(1, program.rank_count):
                self.crew.send(rank, play)
        told, lost, verdict = self._hear(play, program.rank_count)
        trace = self._trace(program, steps, told, lost, verdict)
        silent = len(told) < program.rank_count
        if lost or silent or not all(played.over for played in told.values()):
            self.spent = not self.crew.again()
        for played in told.values():
            if played.failure:
                raise RuntimeError(f"rank {played.rank}: {played.failure}")
        return trace

    def _hear(self, play: Play, rank_count: int) -> tuple[dict[int, Played], dict[int, str], Verdict]:
        """Take what the ranks tell, until all have, or one is gone, or the others have said nothing for too long."""
        told: dict[int, Played] = {}
        lost: dict[int, str] = {}
        ranks = range(rank_count)

        def take(timeout_s: float) -> str:
            found = self.crew.receive(timeout_s)
            if found is None:
                return ""
            rank, message = found
            if isinstance(message, Lost):
                lost[rank] = message.how
            elif isinstance(message, Answer) and message.run == play.run and message.played.rank == rank:
                told[rank] = message.played
            elif not isinstance(message, Progress | Answer) or message.run > play.run:
                lost[rank] = f"what it says is not what it was asked: {type(message).__name__}"
            return "progress" if isinstance(message, Progress) else "told"

        if self.own is not None:
            told[0] = self.own(play, self.beat)
        rest = self.crew.rest(len(ranks))
        verdict: Verdict = ""
        labels, since, until = [int(at) for at in self.crew.board[: len(ranks)]], time.monotonic(), 0.0
        while any(rank not in told and rank not in lost for rank in ranks):
            heard, now = take(_LOOK_S), time.monotonic()
            self.beat()
            seen = [int(at) for at in self.crew.board[: len(ranks)]]
            if seen != labels or heard == "progress":
                labels, since = seen, now
                rest.forget()
            if lost:
                verdict, until = "died", until or now + _AFTER_LOSS_S
            elif not verdict and not all(played.over for played in told.values()):
                verdict = "waiting"
            elif not verdict and not heard and rest.reached(now, told) and not take(0.0):
                verdict, until, self.verdict_s = "blocked", now + _AFTER_HALT_S, now - since
                for rank in ranks:
                    if rank not in told:
                        self.crew.send(rank, Halt(play.run, rest.event(rank)))
            if now > (until or since + self.deadline_s + _GRACE_S):
                break
        return told, lost, verdict or "waiting"

    def _trace(
        self,
        program: Program,
        plan: list[Planned],
        told: dict[int, Played],
        lost: dict[int, str],
        verdict: Verdict,
    ) -> Trace:
        ranks = range(program.rank_count)
        all_of_them = [told[rank] if rank in told else self._silent(rank, plan, lost, verdict) for rank in ranks]
        stuck = [played for played in all_of_them if not played.over]
        trace = Trace(backend=self.backend.name, machine=self.machine_name, rank_count=program.rank_count)
        fill(trace, [played.told for played in all_of_them], len(plan))
        if stuck:
            trace.contents, trace.probes = {}, []
            trace.moments = (_moment(plan, all_of_them, verdict),)
        return trace

    def _silent(self, rank: int, plan: list[Planned], lost: dict[int, str], verdict: Verdict) -> Played:
        """Say what can be known of a rank that has told nothing."""
        at = int(self.crew.board[rank])
        events = [Event(status="ok" if number < at < OPENING else "not_reached") for number in range(len(plan))]
        for event, step in zip(events, plan, strict=True):
            if event.status == "ok":  # it got past it; how that ended is not known
                event.status = "not_reached" if step.applies and rank in step.ranks else "skipped"
        event = waiting(self.crew.state(rank) or "its process says nothing any more")
        if verdict == "blocked":
            event.error_type = "Blocked"
        if rank in lost:
            event = Event(status="error", error_type="Garbled", error=f"what its process says cannot be: {lost[rank]}")
        if lost.get(rank) == GONE:
            event = Event(status="error", error_type="Died", error="its process ended")
            first = next(other for other in lost if lost[other] == GONE)
            if rank != first:
                event = waiting(f"ended by the launcher, after the process of rank {first} had ended")
        opening = Event(status="ok" if at != OPENING else "not_reached")
        return halted(Played(rank=rank, over=False, at=at, told=Told(events=events, opening=opening)), event)


def _moment(plan: list[Planned], played: list[Played], verdict: Verdict) -> dict[str, Any]:
    """Say where the ranks are that came no further, as the other worlds do it."""
    names = {step.number: step.operation for step in plan}
    waits, others = [], []
    for one in played:
        operation = names.get(one.at, place_of(one.at, names))
        at = {"rank": one.rank, "step": one.at, "operation": operation}
        if one.over:
            others.append({**at, "state": "left"})
        elif one.stack:
            waits.append({**at, "call": one.stack[-1], "object": "the communicator under test", "waits_for": []})
        elif one.told.capabilities:
            waits.append({**at, "call": "exchange", "object": "a barrier of the world's own", "waits_for": []})
        else:
            others.append({**at, "state": "says nothing"})
    return {"kind": "end" if verdict == "died" else "stall", "verdict": verdict, "waits": waits, "others": others}
