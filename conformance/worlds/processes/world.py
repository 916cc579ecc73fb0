"""World `processes`: runs Programs on a backend whose ranks are processes, and judges what becomes of them."""

from __future__ import annotations

import time
from typing import Final

from allranks.conformance.backend import Backend, load_backend, spaces_of
from allranks.conformance.plan import Planned, planned
from allranks.conformance.program import Program
from allranks.conformance.trace import CUDA, HOST, OPENING, Trace
from allranks.conformance.worlds import Ahead
from allranks.conformance.worlds.hardware import DriverName, check_driver
from allranks.conformance.worlds.processes.parcel import pack
from allranks.conformance.worlds.processes.run import Rank, Run
from allranks.conformance.worlds.processes.verdict import Verdict, event_of, mark, moment, notes, place_of
from allranks.conformance.worlds.processes.wire import Frame, Garbled, Kind
from allranks.conformance.worlds.processes.workers import Workers
from allranks.conformance.worlds.told import Told, Untrue, fill
from allranks.errors import UsageError
from allranks.processes.stillness import Stillness
from allranks.processes.watch import ThreadState, look

DEADLINE_S: Final = 10.0
# A communicator's own deadlines come before the world's, so that what it has to say about them is heard.
_TIMEOUT_SHARE: Final = 0.8
_TICK_S: Final = 0.04


def check_backend(name: str, driver: DriverName = "sim") -> Backend:
    """Give a backend that can run in world `processes`.

    Raises
    ------
    allranks.errors.UsageError
        If there is none of that name, or it does not go with the driver.
    """
    backend = load_backend(name)
    check_driver(backend, driver)
    if driver == "sim" and "host" not in spaces_of(backend):
        raise UsageError(
            f"backend={name!r}: it works on device memory, and across processes the simulated driver executes no "
            "kernels; world processes has host memory (memory_spaces = ('host',) says that a backend works on it)"
        )
    return backend


def _went_wrong(trace: Trace) -> bool:
    ends = [*trace.opening, *trace.closing]
    return trace.first_trouble() is not None or any(event.status == "error" for event in ends)


class ProcessesWorld(Ahead):
    """Runs Programs on a backend, each rank in a process that lives from run to run.

    Parameters
    ----------
    backend : str
        Name of the backend, or ``module:Class``; it is imported where ranks are forked from.
    deadline_s : float
        Seconds without progress of any rank, after which a run is given up in which something still moves.
    native_stacks : bool
        Whether native stacks are taken too, if a tool for it is installed; that takes seconds.
    driver : {"sim", "cuda"}
        "cuda": buffers are memory of real GPUs, one for each rank; else they are host memory.

    Raises
    ------
    allranks.errors.UsageError
        If the backend cannot run here.
    """

    deterministic: Final = False

    def __init__(
        self,
        backend: str,
        *,
        deadline_s: float = DEADLINE_S,
        native_stacks: bool = False,
        driver: DriverName = "sim",
    ) -> None:
        self.backend = check_backend(backend, driver)
        self.machine_name = CUDA if driver == "cuda" else HOST
        self.deadline_s = deadline_s
        self.native_stacks = native_stacks
        self.runs = 0
        self.verdict_s = 0.0  # from the last progress to the verdict, of the last run that needed one
        self.workers = Workers(backend, driver)
        self._begun: tuple[Program, list[Planned], Run] | None = None

    def close(self) -> None:
        """End all processes."""
        if self._begun is not None:
            self.renew()
        self.workers.close()

    def renew(self) -> None:
        """Have the next run begin in new workers."""
        self.workers.replace(self.workers.by_rank.values())

    def begin(self, program: Program, *, plan: list[Planned] | None = None) -> None:
        """Give a Program to the workers."""
        if self._begun is not None:
            raise RuntimeError("a Program begins before the end of another one")
        plan = plan if plan is not None else list(planned(program))
        self.runs += 1
        run = Run(self.runs, [Rank(worker) for worker in self.workers.of(program.rank_count)])
        frame = Frame(Kind.RUN, self.runs, (self.deadline_s * _TIMEOUT_SHARE, pack(program, plan)))
        self._listen(run, 0)  # for workers that have ended since
        for number, rank in enumerate(run.ranks):
            if rank.worker.exited is not None:
                run.lost(rank)
                rank.word += ", between two runs"
            rank.worker.said.clear()
            rank.worker.journal.clear(number, OPENING)
            rank.worker.send(frame)  # one that is gone is noticed as every other is
        self._begun = (program, plan, run)

    def end(self) -> Trace:
        """Give what became of the Program; ranks that did not come to its end are replaced, and all that ran with them.

        Raises
        ------
        RuntimeError
            If something of this package's own went wrong in a worker; the text has the traceback.
        """
        program, plan, run = self._taken()
        try:
            verdict = self._follow(run)
        except BaseException:
            self.renew()
            raise
        if run.failure:
            self.renew()
            raise RuntimeError(f"a worker failed:\n{run.failure}")
        trace = self._trace(program, plan, run, verdict)
        if run.well and self.machine_name == CUDA and _went_wrong(trace):
            self.workers.replace([rank.worker for rank in run.ranks])  # after an error a context may be of no use
        return trace

    def _taken(self) -> tuple[Program, list[Planned], Run]:
        begun, self._begun = self._begun, None
        if begun is None:
            raise RuntimeError("no Program has begun")
        return begun

    def _follow(self, run: Run) -> Verdict | None:
        """Take in what ranks say until all are through, or it is clear that they will not be."""
        stillness = Stillness()
        moved = time.monotonic()
        progress = self._progress(run)
        while not run.over:
            heard = self._listen(run, _TICK_S)
            now = time.monotonic()
            came = self._progress(run) if not heard else progress
            if heard or run.late(now) or came != progress:
                moved, progress = now, came
                stillness.forget()
            verdict: Verdict | None = None
            if run.hopeless:
                verdict = "blocked"
            elif not heard and not self._meets_with_deadline(run) and stillness.reached(now, self._alive(run)):
                # What was sent before they came to rest is there by now.
                verdict = None if self._listen(run, 0) else "blocked"
            if verdict is None and now - moved >= self.deadline_s:
                verdict = "waiting"
            if verdict is not None:
                self.verdict_s = time.monotonic() - moved
                return verdict
        return None

    @staticmethod
    def _meets_with_deadline(run: Run) -> bool:
        return any(rank.state == "meets" and rank.until is not None for rank in run.ranks)

    @staticmethod
    def _alive(run: Run) -> list[int]:
        return [rank.worker.pid for rank in run.ranks if rank.worker.exited is None]

    @staticmethod
    def _progress(run: Run) -> list[tuple[int, int]]:
        return [rank.worker.journal.progress(number) for number, rank in enumerate(run.ranks)]

    def _listen(self, run: Run, timeout_s: float) -> bool:
        """Take in whatever comes within that time; whether it was more than output."""
        heard = False
        by_worker = {id(rank.worker): rank for rank in run.ranks}
        for key, _ in self.workers.selector.select(timeout_s):
            worker = key.data
            if worker is None:
                self.workers.hear()
                heard = True
                for rank in run.ranks:
                    if rank.worker.exited is not None:
                        self._last_words(run, rank)
            elif key.fileobj == worker.output:
                worker.listen()
            elif id(worker) in by_worker:
                heard |= self._take(run, by_worker[id(worker)])
            elif not worker.receive():  # of a rank that this Program has not: it is gone, or will be found out
                self.workers.deaf(worker)
        return heard

    def _take(self, run: Run, rank: Rank) -> bool:
        """Take in what a worker says; whether it said anything."""
        data = rank.worker.receive()
        if data is None:
            return False
        if data:
            run.take(rank, data, time.monotonic())
        else:
            self.workers.deaf(rank.worker)
            if rank.worker.exited is not None or self.workers.ends(rank.worker):
                run.lost(rank)
            else:
                run.lied(rank, "it has closed its link to the world")
        if rank.state == "lied":
            self.workers.deaf(rank.worker)
            self.workers.put_down(rank.worker)
        return bool(data)

    def _last_words(self, run: Run, rank: Rank) -> None:
        """Take in what a worker said before it ended."""
        while self._take(run, rank):
            pass
        run.lost(rank)

    def _trace(self, program: Program, plan: list[Planned], run: Run, verdict: Verdict | None) -> Trace:
        trace = Trace(
            backend=self.backend.name, machine=self.machine_name, rank_count=program.rank_count, granularity_bytes=1
        )
        workers = [rank.worker for rank in run.ranks]
        threads: list[list[ThreadState]] = [[] for _ in workers]
        if not run.well:
            threads = [look(rank.worker.pid) if rank.left else [] for rank in run.ranks]
            trace.notes = notes(run, threads, native=self.native_stacks)
            self.workers.end(workers)  # before what they told is read: it changes no more
        told = [self._told(rank, len(plan)) for rank in run.ranks]
        if not run.well:
            self._mark(run, verdict, plan, told, threads, trace)
            self.workers.replace(workers)
        fill(trace, told, len(plan))
        return trace

    @staticmethod
    def _told(rank: Rank, steps: int) -> Told:
        """Give what a rank told, and note when it cannot be."""
        told = Told()
        try:
            told.read(rank.worker.journal.records(), steps)
            if rank.state == "done" and told.closing is None:
                raise Untrue("its results are missing")
        except (Untrue, Garbled) as error:
            if rank.state != "died":
                rank.state, rank.word = "lied", str(error)
        return told

    def _mark(
        self,
        run: Run,
        verdict: Verdict | None,
        plan: list[Planned],
        told: list[Told],
        threads: list[list[ThreadState]],
        trace: Trace,
    ) -> None:
        """Add to what was told, and to a Trace, how ranks ended that did not end well."""
        operations = {step.number: step.operation for step in plan}
        labels = [
            rank.worker.journal.board[number] if rank.state != "lied" else None for number, rank in enumerate(run.ranks)
        ]
        places = [place_of(one, label, operations) for one, label in zip(told, labels, strict=True)]
        for number, rank in enumerate(run.ranks):
            if rank.state != "done":
                mark(told[number], places[number], event_of(run, rank, verdict, threads[number], self.deadline_s))
        trace.moments = (moment(run, verdict, places, threads),)
