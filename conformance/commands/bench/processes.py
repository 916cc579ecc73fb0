"""``allranks bench ... --world processes`` or ``mpi``: how fast those worlds are, and what stalls and deaths do."""

from __future__ import annotations

import os
import signal
import statistics
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from allranks.conformance import program as p
from allranks.conformance.backend import RankContext
from allranks.conformance.checks import CHECKS, UNSEEN_IN_HOST, judge
from allranks.conformance.commands.bench.timed import watched
from allranks.conformance.drawer import Drawer, Draws
from allranks.conformance.narrowing import Contract, contract_of
from allranks.conformance.plan import Planned, planned
from allranks.conformance.program import Operand, Program, Region
from allranks.conformance.requirements import FAMILIES
from allranks.conformance.running import make_world
from allranks.conformance.settings import Settings
from allranks.conformance.trace import Trace
from allranks.conformance.worlds import few_collected
from allranks.conformance.worlds.launched import LaunchedWorld
from allranks.conformance.worlds.processes.world import ProcessesWorld
from allranks.processes.watch import descendants

_REGION: Final = Operand(Region())
_STEP: Final = 1
_RANKS: Final = 2
_SEEN: Final = tuple(name for name in CHECKS if name not in UNSEEN_IN_HOST)
# How many steps and situations the shortest Programs of a family have that say much, at least and at most.
_SHORT: Final = {"RDV": (3, 4), "CACHE": (1, 2), "NVLS": (3, 6), "LIFE": (2, 3), "COLL": (5, 6)}


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
    files_at_start, processes_at_start = _open_files([os.getpid()]), set(descendants(os.getpid()))
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
        "processes_left_after_close": len(set(descendants(os.getpid())) - processes_at_start),
        "descriptors_left_after_close": _open_files([os.getpid()]) - files_at_start,
    }


def engine_rows(settings: Settings, count: int) -> list[dict[str, Any]]:
    """Draw, run and judge Programs as `check` does; say how fast that is by the clock, and where the time goes.

    Parameters
    ----------
    settings : Settings
        Of a world of processes, started as `check` starts it.
    count : int
        Programs a family.

    Returns
    -------
    list of dict
        A row for short Programs, in the median of 8 steps, 4 of them collective, and one for those that `check` draws,
        of the families that the backend has something for. Milliseconds are for one Program. What the supervisor does
        one after the other is ``draw_ms`` (waiting for a Program that another process draws), ``resolve_ms``,
        ``give_ms`` (to the ranks), ``wait_ms`` (for their answers) and ``judge_ms``. ``open_ms``, ``communicate_ms``
        and ``close_ms`` are what a rank spends in the communicator under test, on average over ranks.
    """
    rows = []
    with watched(settings.backend) as (backend, times), Drawer() as drawer:
        began = time.perf_counter()
        with make_world(replace(settings, backend=backend)) as world, few_collected():
            known = world.run(_program(1)).capabilities
            families = [family for family in FAMILIES if family != "NVLS" or "multicast" in known]
            for family in families:  # with what Hypothesis does only once
                list(drawer.drawn(Draws(family=family, max_ranks=settings.ranks, count=8, seed=0)))
            start_s = time.perf_counter() - began
            for name, lengths in (("short", _SHORT), ("usual", {})):
                spent, parts = _spent(world, drawer), times.mean(settings.ranks)
                runs = _Runs(world, contract_of(world.backend))  # beyond it a library may wait until it gives up
                for family in families:
                    least, most = lengths.get(family, (None, None))
                    draws = Draws(
                        family=family,
                        count=count,
                        seed=settings.seed,
                        min_ranks=settings.ranks,
                        max_ranks=settings.ranks,
                        min_steps=least,
                        max_steps=most,
                    )
                    runs.play(drawer.drawn(draws))
                spent = {who: seconds - spent[who] for who, seconds in _spent(world, drawer).items()}
                parts = {part: seconds - parts[part] for part, seconds in times.mean(settings.ranks).items()}
                rows.append(
                    {"programs_are": name, **runs.row(settings.ranks, spent, parts), "start_s": round(start_s, 2)}
                )
    return rows


_Ended = tuple[Program, list[Planned], Trace]


class _Runs:
    """Programs drawn, run and judged, and how long that took.

    Parameters
    ----------
    world : ProcessesWorld or LaunchedWorld
        Where they run.
    contract : Contract
        What they are brought within.
    """

    def __init__(self, world: ProcessesWorld | LaunchedWorld, contract: Contract) -> None:
        self._world = world
        self._contract = contract
        self._seconds = dict.fromkeys(("draw", "resolve", "give", "wait", "judge"), 0.0)
        self._taken: list[float] = []  # by each Program, from the end of the one before to its own
        self._lengths: list[int] = []
        self._collective: list[int] = []
        self._at_work: list[tuple[Program, list[Planned]]] = []
        self._since = self._ended = 0.0

    def _spend(self, part: str) -> None:
        now = time.perf_counter()
        self._seconds[part] += now - self._since
        self._since = now

    def play(self, drawn: Iterable[Program]) -> None:
        """Run Programs; what each came to is judged while the ranks play the next."""
        self._since = self._ended = time.perf_counter()
        for program in drawn:
            self._use(program)
        self._spend("draw")
        self._judge(self._ended_before())

    def _use(self, drawn: Program) -> None:
        self._spend("draw")
        before = self._ended_before()  # judged once the ranks are at work again, as the engine does
        program = self._contract.within(drawn)
        plan = list(planned(program))
        self._spend("resolve")
        self._world.begin(program, plan=plan)
        self._at_work.append((program, plan))
        steps = [step for step in plan if not step.follows]  # a compound step is one
        self._lengths.append(len(steps))
        self._collective.append(sum(step.collective and step.applies for step in steps))
        self._spend("give")
        self._judge(before)

    def _ended_before(self) -> _Ended | None:
        if not self._at_work:
            return None
        program, plan = self._at_work.pop()
        trace = self._world.end()
        self._spend("wait")
        return program, plan, trace

    def _judge(self, ended: _Ended | None) -> None:
        if ended is None:
            return
        program, plan, trace = ended
        judge(program, trace, _SEEN, plan=plan)
        self._spend("judge")
        self._taken.append(self._since - self._ended)
        self._ended = self._since

    def row(self, ranks: int, spent: dict[str, float], parts: dict[str, float]) -> dict[str, Any]:
        """Give the figures; `spent` and `parts` are seconds of processes, and of ranks in the communicator."""
        done, length = len(self._taken), statistics.median(self._lengths)
        typical = [taken for taken, steps in zip(self._taken, self._lengths, strict=True) if steps == length]
        return {
            "ranks": ranks,
            "programs": done,
            "median_steps": length,
            "median_collective_steps": statistics.median(self._collective),
            "programs_per_second": round(done / sum(self._seconds.values()), 1),
            "at_median_length": round(1 / statistics.median(typical or self._taken), 1),
            **{f"{part}_ms": round(taken / done * 1e3, 2) for part, taken in {**self._seconds, **parts}.items()},
            **{f"processor_ms_of_{who}": round(taken / done * 1e3, 2) for who, taken in spent.items()},
            "load": round(os.getloadavg()[0], 1),
        }


def _spent(world: ProcessesWorld | LaunchedWorld, drawer: Drawer) -> dict[str, float]:
    """Give the processor time so far of who gives ranks their Programs, who draws them, and the ranks of now."""
    pids = world.pids if isinstance(world, LaunchedWorld) else [one.pid for one in world.workers.by_rank.values()]
    return {
        "supervisor": time.process_time(),
        "drawer": _cpu_s(drawer.pid),
        "ranks": sum(_cpu_s(pid) for pid in pids),
    }


def _cpu_s(pid: int) -> float:
    """Give the processor time of a process; what it took to fork it is not in it."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
