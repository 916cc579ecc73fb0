"""World `threads`: ranks are threads of this process that take turns on the simulated driver. Deterministic.

Every Program gets a fresh node. Nothing of real time enters: a hang is known when nothing can run. The one exception is
a backend that blocks or computes without coming by the driver; after `quiet_timeout_s` its stacks are taken, its
threads are left behind, and the world goes on with new ones.
"""

from __future__ import annotations

import contextlib
import copy
import gc
from collections.abc import Callable, Iterator, MutableSequence
from dataclasses import dataclass
from typing import Final

from allranks import sim
from allranks.conformance.backend import Backend
from allranks.conformance.model import footprints
from allranks.conformance.plan import Planned, planned
from allranks.conformance.program import Program
from allranks.conformance.trace import OPENING, Event, Trace, place_of
from allranks.conformance.worlds import Closing
from allranks.conformance.worlds.meeting import TurnMeeting
from allranks.conformance.worlds.ranks import RankThreads
from allranks.conformance.worlds.session import Context, Session
from allranks.conformance.worlds.sim_site import SimSite
from allranks.conformance.worlds.stacks import Abandoned
from allranks.driver import Driver
from allranks.errors import UsageError

# Deadline of a communicator's blocking calls, in seconds of the simulated clock: it passes only when nothing can run.
DEADLINE_S: Final = 30.0
# Real seconds without a sign of life, after which a backend counts as blocked outside of the driver.
QUIET_TIMEOUT_S: Final = 20.0

Schedule = Callable[[int, int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How a Program is run, beside what it says itself.

    Parameters
    ----------
    schedule : callable (decision, runnable) -> choice, optional
        Asked instead of the Program's own list of deviations.
    record_writes : bool
        Whether every write to device memory is recorded.
    """

    schedule: Schedule | None = None
    record_writes: bool = True


class ThreadsWorld(Closing):
    """Runs Programs on a backend.

    Parameters
    ----------
    backend : Backend
        The communicator under test.
    machine : sim.Machine
        What it runs on; rank r has device r.
    quiet_timeout_s : float
        Real seconds that a rank may keep the turn without coming by the driver.
    board : mutable sequence of int, optional
        Where each rank writes the label of what it does, at its own index; in shared memory it outlives the process.
    """

    deterministic: Final = True

    def __init__(
        self,
        backend: Backend,
        machine: sim.Machine,
        *,
        quiet_timeout_s: float = QUIET_TIMEOUT_S,
        board: MutableSequence[int] | None = None,
    ) -> None:
        self.backend = backend
        self.board = board if board is not None else [0] * machine.device_count
        self.machine = machine
        self.quiet_timeout_s = quiet_timeout_s
        self.driver = Driver.load(sim.library_path())
        self.verdict_ns = 0
        self.runs = 0
        self._threads = RankThreads()

    def close(self) -> None:
        """End the threads."""
        self._threads.close()

    def run(self, program: Program, options: RunOptions | None = None, *, plan: list[Planned] | None = None) -> Trace:
        """Run a Program.

        Parameters
        ----------
        program : Program
            What to do.
        options : RunOptions, optional
            How.
        plan : list of Planned, optional
            What `allranks.conformance.plan.planned` gives, for a caller that has it already.

        Raises
        ------
        allranks.errors.UsageError
            If the Program has more ranks than the machine has devices.
        """
        options = options or RunOptions()
        if program.rank_count > self.machine.device_count:
            raise UsageError(
                f"ranks={program.rank_count}: machine {self.machine.name} has {self.machine.device_count} devices"
            )
        self.runs += 1
        with _no_collection():
            return self._run(program, options, plan if plan is not None else list(planned(program)))

    def _run(self, program: Program, options: RunOptions, plan: list[Planned]) -> Trace:
        node = sim.Node(self.machine)
        for rank in range(program.rank_count):
            self.board[rank] = OPENING
        meeting = TurnMeeting(program.rank_count)
        sessions = self._sessions(program, plan, node, meeting)
        node.writes_record(options.record_writes)
        node.run_begin(program.rank_count, options.schedule or program.schedule)
        outside = ""
        self._threads.start([_job(session) for session in sessions])
        if not node.run_wait(self.quiet_timeout_s):
            outside = self._where(sessions)
            self._threads.abandon()
        meeting.end()
        for session in sessions:
            if session.failure is not None:
                raise session.failure
        trace = self._trace(program, node, sessions, options, outside)
        self.verdict_ns = node.verdict_ns
        if trace.stalled or trace.first_trouble() is not None or program.faults:
            # What errors hold on to would be collected in a later run, and call that run's driver.
            for session in sessions:
                session.actions = session.memory = None
            gc.collect(0)
        if not outside:
            node.close()
        return trace

    def _where(self, sessions: list[Session]) -> str:
        """Say where the ranks are, those that do not wait for their turn first."""
        found = self._threads.stacks(len(sessions))
        waiting = {rank for rank, (_, within) in found.items() if within}
        if len(waiting) == len(found):
            waiting = set()  # it is in native code: any of them may be it
        names = {step.number: step.name for step in sessions[0].plan}
        lines = []
        for rank, (stack, _) in sorted(found.items(), key=lambda item: (item[0] in waiting, item[0])):
            place = place_of(self.board[rank], names)
            if rank in waiting:
                lines.append(f"rank {rank} waits for its turn, in {place}")
            else:
                lines.append(f"rank {rank}, in {place}:")
                lines += [f"  {frame}" for frame in stack]
        return "\n".join(lines)

    def _sessions(self, program: Program, plan: list[Planned], node: sim.Node, meeting: TurnMeeting) -> list[Session]:
        ranges = footprints(program, plan)
        owners: dict[int, tuple[int, int, int]] = {}
        sessions = []
        for rank in range(program.rank_count):
            granularity = self.machine.allocation_granularity_bytes
            shift = program.shift_bytes.of(rank) // granularity * granularity
            process = node.create_process(rank, sim.Placement(base_offset_bytes=shift))
            for fault in program.faults:
                if fault.rank == rank:
                    process.fault(fault.call, fault.k, fault.code)
            unit = max(granularity, self.machine.multicast_granularity_minimum_bytes)
            site = SimSite(node, process, self.driver, rank, unit)
            context = Context(
                rank=rank,
                rank_count=program.rank_count,
                device=rank,
                driver=self.driver,
                memory_space=site.memory_space,
                timeout_s=DEADLINE_S,
                meeting=meeting,
            )
            session = Session(
                program=program,
                plan=plan,
                ranges=ranges,
                backend=self.backend,
                context=context,
                site=site,
                owners=owners,
                board=self.board,
            )
            sessions.append(session)
        return sessions

    def _trace(
        self, program: Program, node: sim.Node, sessions: list[Session], options: RunOptions, outside: str
    ) -> Trace:
        report = node.run_report() if not outside else {"moments": []}
        over = not outside and not node.stalled
        if outside:  # their threads may still be at it
            sessions = [_frozen(session) for session in sessions]
        trace = Trace(
            backend=self.backend.name,
            machine=self.machine.name,
            rank_count=program.rank_count,
            capabilities=tuple(sorted(sessions[0].capabilities)),
            events=[session.events or [Event() for _ in session.plan] for session in sessions],
            placed={
                (session.rank, buffer): placed for session in sessions for buffer, placed in session.placed.items()
            },
            usage=tuple(sessions[0].usage),
            contents={
                (session.rank, buffer): held for session in sessions for buffer, held in session.contents.items()
            },
            probes=[session.probes for session in sessions] if any(s.probes for s in sessions) else [],
            after_close=[session.after_close for session in sessions],
            opening=[session.opening for session in sessions],
            closing=[session.closing for session in sessions],
            moments=tuple(report["moments"]),
            granularity_bytes=self.machine.multicast_granularity_minimum_bytes,
            outside=outside,
        )
        if outside:
            return trace
        if options.record_writes:
            trace.written = node.writes()
        if over:
            trace.ledger = tuple(entry._asdict() for entry in node.ledger())
        trace.calls = [calls for session in sessions if (calls := session.site.calls()) is not None]
        trace.incidents = tuple(node.incidents())
        trace.deviations = tuple(node.deviations())
        return trace


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Keep Python from collecting cycles by itself: when it would depends on everything that ran before.

    What was made meanwhile counts as old afterwards: it is mostly the Trace, which there is no use in looking through.
    Where the user has frozen objects that is left: unfreezing would let go of theirs, too.
    """
    was_on, frozen = gc.isenabled(), gc.get_freeze_count()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if not frozen:
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def _frozen(session: Session) -> Session:
    """Give a session as it is now, of which no thread changes anything any more."""
    kept = copy.copy(session)
    kept.events, kept.opening, kept.closing = copy.deepcopy((session.events, session.opening, session.closing))
    kept.placed, kept.usage, kept.contents = dict(session.placed), list(session.usage), dict(session.contents)
    kept.probes = []
    return kept


def _job(session: Session) -> Callable[[], None]:
    def job() -> None:
        session.site.enter(session.rank)
        try:
            session.play()
        except Abandoned:
            raise
        except BaseException as error:  # noqa: BLE001 -- raised by whoever waits for the run; a thread cannot
            session.failure = error
        finally:
            session.site.leave()

    return job
