"""``allranks bench stall``, ``engine`` and ``cases``: how fast the suite itself is."""

from __future__ import annotations

import array
import os
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from allranks import sim
from allranks.conformance.backend import load_backend
from allranks.conformance.cases import shipped
from allranks.conformance.checks import CHECKS, judge
from allranks.conformance.commands.bench import processes as world_processes
from allranks.conformance.commands.bench.shown import drawn_in, emit
from allranks.conformance.commands.options import Parser, add_processes, add_world, machine_for, positive, ranks
from allranks.conformance.plan import planned
from allranks.conformance.program import Program, unrolled
from allranks.conformance.requirements import FAMILIES
from allranks.conformance.settings import settings_of, world_of
from allranks.conformance.strategies import programs
from allranks.conformance.worlds.hardware import check_driver
from allranks.conformance.worlds.ranks import RankThreads
from allranks.conformance.worlds.threads import ThreadsWorld
from allranks.errors import UsageError


def _percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _stall_once(threads: RankThreads, ranks: int) -> int:
    """Let every rank wait for something that never comes; gives the nanoseconds to the verdict."""
    node = sim.Node(sim.machine("tiny", devices=ranks))
    processes = [node.create_process(rank) for rank in range(ranks)]

    def job(process: sim.Process) -> Callable[[], None]:
        def wait_for_ever() -> None:
            process.enter(process.rank)
            sim.wait(lambda: False, call="bench", object="nothing", key=1)
            sim.leave()

        return wait_for_ever

    node.run_begin(ranks)
    threads.start([job(process) for process in processes])
    node.run_wait(60.0)
    verdict = node.verdict_ns
    node.close()
    return verdict


def _resident_kib() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") // 1024


def stall(argv: list[str]) -> int:
    """Measure how long it takes from the last task that could run to the stall verdict."""
    parser = Parser(prog="allranks bench stall", description="From the last task that could run to the stall verdict.")
    parser.add_argument("--ranks", type=positive, default=8)
    parser.add_argument("--stalls", type=positive, default=1000)
    parser.add_argument(
        "--world", choices=("threads", "processes"), default="threads", help="processes: so many stalls, and kills"
    )
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(argv)
    if arguments.world == "processes":
        emit(world_processes.stalls(arguments.stalls), arguments.json)
        return 0
    threads = RankThreads()
    verdicts = array.array("d", [1.0]) * arguments.stalls  # there before memory is looked at
    for _ in range(1000):
        _stall_once(threads, arguments.ranks)
    before = (threading.active_count(), len(os.listdir("/proc/self/fd")), _resident_kib())
    for index in range(arguments.stalls):
        verdicts[index] = _stall_once(threads, arguments.ranks) / 1e6
    after = (threading.active_count(), len(os.listdir("/proc/self/fd")), _resident_kib())
    threads.close()
    emit(
        {
            "benchmark": "stall",
            "ranks": arguments.ranks,
            "stalls": arguments.stalls,
            "p50_ms": round(statistics.median(verdicts), 4),
            "p99_ms": round(_percentile(verdicts, 0.99), 4),
            "worst_ms": round(max(verdicts), 4),
            "threads_left": after[0] - before[0],
            "descriptors_left": after[1] - before[1],
            "resident_growth_kib": after[2] - before[2],
        },
        arguments.json,
    )
    return 0


def engine(argv: list[str]) -> int:
    """Measure how fast Programs are drawn, run and judged."""
    parser = Parser(
        prog="allranks bench engine",
        description="Programs drawn, run and judged. World threads: against drawing a list, by processor time. Worlds "
        "of processes: by the clock, and where the time goes; ranks are started as `check` starts them.",
    )
    add_world(parser)
    parser.add_argument("--programs", type=positive, default=200, help="a family")
    add_processes(parser)
    parser.add_argument("--ranks", type=ranks, default=2, help="worlds of processes: how many (default 2)")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(argv)
    backend = load_backend(arguments.backend)
    world = arguments.world or world_of(backend, arguments.driver)
    check_driver(backend, arguments.driver, world)
    if world != "threads":
        settings = settings_of(
            backend=arguments.backend,
            ranks=arguments.ranks,
            world=world,
            launcher=arguments.launcher,
            nodes=arguments.nodes,
            deadline_s=arguments.deadline,
            driver=arguments.driver,
        )
        if settings.launcher == "none":
            raise UsageError("launcher='none': the benchmark starts its ranks itself")
        rows = world_processes.engine_rows(settings, arguments.programs)
        facts = {"backend": arguments.backend, "world": world}
        emit({"benchmark": "engine", **facts, "rows": rows}, arguments.json)
        return 0
    rows = [_engine_row(arguments, ranks) for ranks in (2, 4, 8, 16, 72)]
    emit({"benchmark": "engine", "backend": arguments.backend, "rows": rows}, arguments.json)
    return 0


def _programs_of(ranks: int, count: int) -> tuple[list[Program], float]:
    """Give `count` Programs of each family, and the seconds for drawing them."""
    drawn: list[Program] = []
    draw = sum(drawn_in(programs(family, max_ranks=ranks, min_ranks=ranks), count, drawn.append) for family in FAMILIES)
    return drawn, draw


def _lists(count: int = 1000) -> float:
    """Give the seconds for drawing one list, as Hypothesis draws by itself: what the rates are divided by.

    It takes the longer for each the more there are, so there are as many for each row.
    """
    drawn = 0

    @hypothesis.seed(0)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(st.lists(st.integers(0, 100), min_size=48, max_size=48))
    def each(value: list[int]) -> None:
        nonlocal drawn
        drawn += len(value) == 48

    started = time.process_time()
    each()
    return (time.process_time() - started) / drawn


def _engine_row(arguments: Any, ranks: int) -> dict[str, Any]:
    """Draw, run and judge as the engine does; the yardstick is taken three times: machines are not steady.

    Rates are per second of processor time: one task runs at a time, and what else the machine does is not looked for.
    """
    count = max(5, arguments.programs * 2 // ranks)
    lists = _lists()
    drawn, draw = _programs_of(ranks, count)
    run = checks = 0.0
    lengths, collective = [], []
    with ThreadsWorld(load_backend(arguments.backend), machine_for(arguments.machine, ranks)) as world:
        world.run(drawn[0])
        for number, program in enumerate(drawn):
            if number == len(drawn) // 2:
                lists += _lists()
            started = time.process_time()
            plan = list(planned(program))
            trace = world.run(program, plan=plan)
            ran = time.process_time()
            judge(program, trace, tuple(CHECKS), plan=plan)
            checks += time.process_time() - ran
            run += ran - started
            steps = [step for step in plan if not step.follows]  # a compound step is one
            lengths.append(len(steps))
            collective.append(sum(step.collective and step.applies for step in steps))
    unit = (lists + _lists()) / 3 * len(drawn)
    every = draw + run + checks
    return {
        "ranks": ranks,
        "programs": len(drawn),
        "median_steps": statistics.median(lengths),
        "median_collective_steps": statistics.median(collective),
        "draw": round(unit / draw, 3),
        "run": round(unit / run, 3),
        "checks": round(unit / checks, 3),
        "all": round(unit / every, 3),
        "list_us": round(unit / len(drawn) * 1e6, 1),
        "programs_per_second": round(len(drawn) / every, 1),
    }


def cases(argv: list[str]) -> int:
    """Measure each shipped case file."""
    parser = Parser(prog="allranks bench cases", description="Each shipped case file: seconds, and what it leaves.")
    add_world(parser)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(argv)
    rows = []
    for name, case in shipped().items():
        with ThreadsWorld(load_backend(arguments.backend), machine_for(arguments.machine, 8)) as world:
            started = time.perf_counter()
            trace = world.run(case.program)
            seconds = time.perf_counter() - started
        rows.append(
            {
                "case": name,
                "ranks": case.program.rank_count,
                "steps": sum(not numbered.follows for numbered in unrolled(case.program)),
                "seconds": round(seconds, 3),
                "left_in_ledger": len(trace.ledger or ()),
            }
        )
    emit({"benchmark": "cases", "backend": arguments.backend, "rows": rows}, arguments.json)
    return 0
