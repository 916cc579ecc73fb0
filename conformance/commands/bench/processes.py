"""``allranks bench ... --world processes``: how fast that world is, and whether it gets over stalls and deaths."""

from __future__ import annotations

import os
import signal
import statistics
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from allranks.conformance import program as p
from allranks.conformance.backend import RankContext
from allranks.conformance.checks import CHECKS, judge
from allranks.conformance.narrowing import contract_of
from allranks.conformance.plan import planned
from allranks.conformance.program import Operand, Program, Region
from allranks.conformance.trace import Trace
from allranks.conformance.worlds.processes.world import ProcessesWorld
from allranks.processes.watch import descendants

_REGION: Final = Operand(Region())
_STEP: Final = 1
_RANKS: Final = 2


class Silent:
    """A communicator whose every all_reduce of two elements or more waits for what nobody sends."""

    name = "silent"
    memory_spaces = ("host",)

    def capabilities(self, context: RankContext) -> frozenset[str]:
        """Say what there is."""
        return frozenset({"all_reduce"})

    def open(self, context: RankContext) -> Silent:
        """Give one rank's side; there is nothing in it."""
        return Silent()

    def close(self) -> None:
        """There is nothing to give back."""

    def all_reduce(self, send: int, receive: int, count: int, dtype: str, operation: str) -> None:
        """Wait for ever, unless there is next to nothing to do."""
        if count > 1:
            source, sink = os.pipe()
            os.read(source, 1)
            os.close(sink)


_SILENT: Final = f"{__name__}:Silent"


def _program(count: int) -> Program:
    return Program(
        rank_count=_RANKS,
        steps=(p.Allocate(size_bytes=4096), p.AllReduce(send=_REGION, receive=_REGION, count=count)),
    )


def _open_files(pids: Sequence[int]) -> int:
    return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids)


def _killed(world: ProcessesWorld, rank: int) -> Trace:
    """Run a Program in which all wait for ever, and kill a rank once all are there."""
    workers = world.workers.of(_RANKS)

    def kill() -> None:
        while any(worker.journal.progress(worker.rank)[1] != _STEP for worker in workers):
            time.sleep(0.0005)
        signal.pidfd_send_signal(workers[rank].handle, signal.SIGKILL)

    for worker in workers:
        worker.journal.clear(worker.rank, 0)
    killer = threading.Thread(target=kill)
    killer.start()
    trace = world.run(_program(8))
    killer.join()
    return trace


def _right(trace: Trace, killed: int | None) -> bool:
    """Whether a Trace says what happened: who was killed in which step, and that the others are blocked in it."""
    at = [events[_STEP] for events in trace.events]
    if not trace.moments or trace.moments[0].get("verdict") != "blocked":
        return False
    return all(
        event.error == "its process ended: SIGKILL"
        if rank == killed
        else event.error == "waits in read on a pipe, without a time-out, for ever"
        for rank, event in enumerate(at)
    )


def _seconds(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        "p50_s": round(statistics.median(ordered), 3),
        "p99_s": round(ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))], 3),
        "worst_s": round(ordered[-1], 3),
    }


def stalls(count: int) -> dict[str, Any]:
    """Stall so many times, then kill a rank so many times; say whether the verdicts are right and what is left."""
    rows = []
    files_at_start = _open_files([os.getpid()])
    with ProcessesWorld(_SILENT) as world:
        world.run(_program(8))
        world.run(_program(1))
        family = [os.getpid(), world.workers._nursery.pid]
        before = (len(descendants(os.getpid())), _open_files(family))
        for what in ("stall", "kill"):
            verdicts, replaced, right, well = [], [], 0, 0
            for number in range(count):
                killed = number % _RANKS if what == "kill" else None
                trace = world.run(_program(8)) if killed is None else _killed(world, killed)
                right += _right(trace, killed)
                verdicts.append(world.verdict_s)
                started = time.perf_counter()
                well += world.run(_program(1)).first_trouble() is None
                replaced.append(time.perf_counter() - started)
            rows += [
                {"what": what, "times": count, "right_verdicts": right, "next_program_well": well},
                {"what": f"{what}: from the last progress to the verdict", **_seconds(verdicts)},
                {"what": f"{what}: workers replaced and a Program run", **_seconds(replaced)},
            ]
        after = (len(descendants(os.getpid())), _open_files(family))
    return {
        "benchmark": "stall",
        "world": "processes",
        "ranks": _RANKS,
        "rows": rows,
        "processes_left": after[0] - before[0],
        "descriptors_left": after[1] - before[1],
        "processes_left_after_close": len(descendants(os.getpid())),
        "descriptors_left_after_close": _open_files([os.getpid()]) - files_at_start,
    }


def engine_row(backend: str, drawn: list[Program], draw_s: float) -> dict[str, Any]:
    """Run and judge Programs, and say how fast that is and where the time goes.

    Parameters
    ----------
    backend : str
        What runs.
    drawn : list of Program
        What is run.
    draw_s : float
        Seconds that drawing them took.
    """
    run, checks, lengths = [], 0.0, []
    started = time.perf_counter()
    with ProcessesWorld(backend) as world:
        contract = contract_of(world.backend)
        drawn = [contract.within(program) for program in drawn]  # beyond it a library may wait until it gives up
        world.run(drawn[0])
        start_s = time.perf_counter() - started
        used = time.process_time()
        for program in drawn:
            began = time.perf_counter()
            plan = list(planned(program))
            trace = world.run(program, plan=plan)
            ran = time.perf_counter()
            judge(program, trace, tuple(CHECKS), plan=plan)
            checks += time.perf_counter() - ran
            run.append(ran - began)
            lengths.append(len(plan))
        used = time.process_time() - used
        workers = [_cpu_s(worker.pid) for worker in world.workers.by_rank.values()]
    count = len(drawn)
    median = statistics.median(lengths)
    typical = [seconds for seconds, length in zip(run, lengths, strict=True) if length == median] or run
    return {
        "ranks": drawn[0].rank_count,
        "programs": count,
        "median_steps": median,
        "programs_per_second": round(count / (draw_s + sum(run) + checks), 1),
        "runs_per_second": round(count / sum(run), 1),
        "runs_per_second_at_median_length": round(1 / statistics.median(typical), 1),
        "run_ms": round(sum(run) / count * 1e3, 2),
        "draw_ms": round(draw_s / count * 1e3, 2),
        "checks_ms": round(checks / count * 1e3, 2),
        "processor_ms_of_supervisor": round(used / count * 1e3, 2),
        "processor_ms_of_workers": round(sum(workers) / count * 1e3, 2),
        "start_s": round(start_s, 2),
    }


def _cpu_s(pid: int) -> float:
    """Give the processor time of a process; what it took to fork it is not in it."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
