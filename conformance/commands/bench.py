"""``allranks bench``: how fast the suite itself is."""

from __future__ import annotations

import array
import json
import os
import platform
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from allranks import __version__, sim
from allranks.conformance.backend import load_backend
from allranks.conformance.cases import shipped
from allranks.conformance.checks import CHECKS, judge
from allranks.conformance.commands.options import Parser, add_world, machine_for, positive
from allranks.conformance.plan import planned
from allranks.conformance.program import Program, unrolled
from allranks.conformance.requirements import FAMILIES
from allranks.conformance.strategies import programs
from allranks.conformance.worlds.ranks import RankThreads
from allranks.conformance.worlds.threads import ThreadsWorld


def _environment() -> dict[str, Any]:
    return {
        "allranks": __version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processors": os.cpu_count(),
    }


def _emit(result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps({**_environment(), **result}, indent=1) + "\n")
        return
    for name, value in result.items():
        if isinstance(value, list):
            for row in value:
                sys.stdout.write("  ".join(f"{key}={item}" for key, item in row.items()) + "\n")
        else:
            sys.stdout.write(f"{name}: {value}\n")


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


def _stall(argv: list[str]) -> int:
    parser = Parser(prog="allranks bench stall", description="From the last task that could run to the stall verdict.")
    parser.add_argument("--ranks", type=positive, default=8)
    parser.add_argument("--stalls", type=positive, default=1000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(argv)
    threads = RankThreads()
    verdicts = array.array("d", [1.0]) * arguments.stalls  # there before memory is looked at
    for _ in range(1000):
        _stall_once(threads, arguments.ranks)
    before = (threading.active_count(), len(os.listdir("/proc/self/fd")), _resident_kib())
    for index in range(arguments.stalls):
        verdicts[index] = _stall_once(threads, arguments.ranks) / 1e6
    after = (threading.active_count(), len(os.listdir("/proc/self/fd")), _resident_kib())
    threads.close()
    _emit(
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


def _drawn(strategy: st.SearchStrategy[Any], count: int, use: Callable[[Any], None]) -> float:
    """Draw `count` values; gives the seconds for drawing and using them."""

    @hypothesis.seed(0)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(strategy)
    def each(value: Any) -> None:
        use(value)

    started = time.perf_counter()
    each()
    return time.perf_counter() - started


def _engine(argv: list[str]) -> int:
    parser = Parser(prog="allranks bench engine", description="Programs drawn, run and judged, against drawing a list.")
    add_world(parser)
    parser.add_argument("--programs", type=positive, default=200, help="a family")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(argv)
    count = arguments.programs * len(FAMILIES)
    unit = _drawn(st.lists(st.integers(0, 100), min_size=48, max_size=48), count, lambda value: None) / count
    rows = [_engine_row(arguments, ranks, unit) for ranks in (2, 4, 8, 16, 72)]
    _emit(
        {"benchmark": "engine", "backend": arguments.backend, "list_us": round(unit * 1e6, 1), "rows": rows},
        arguments.json,
    )
    return 0


def _engine_row(arguments: Any, ranks: int, unit: float) -> dict[str, Any]:
    drawn: list[Program] = []
    count = max(5, arguments.programs // max(1, ranks // 8))
    seconds = sum(
        _drawn(programs(family, max_ranks=ranks, min_ranks=ranks), count, drawn.append) for family in FAMILIES
    )
    draw = seconds / len(drawn)
    collective = [sum(step.collective and step.applies for step in planned(program)) for program in drawn]
    lengths = [sum(1 for _ in planned(program)) for program in drawn]
    with ThreadsWorld(load_backend(arguments.backend), machine_for(arguments.machine, ranks)) as world:
        world.run(drawn[0])
        started = time.perf_counter()
        traces = [world.run(program) for program in drawn]
        run = (time.perf_counter() - started) / len(drawn)
    started = time.perf_counter()
    for program, trace in zip(drawn, traces, strict=True):
        judge(program, trace, tuple(CHECKS))
    checks = (time.perf_counter() - started) / len(drawn)
    return {
        "ranks": ranks,
        "programs": len(drawn),
        "median_steps": statistics.median(lengths),
        "median_collective_steps": statistics.median(collective),
        "draw": round(unit / draw, 3),
        "run": round(unit / run, 3),
        "checks": round(unit / checks, 3),
        "all": round(unit / (draw + run + checks), 3),
        "programs_per_second": round(1 / (draw + run + checks), 1),
    }


def _cases(argv: list[str]) -> int:
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
                "steps": sum(1 for _ in unrolled(case.program)),
                "seconds": round(seconds, 3),
                "left_in_ledger": len(trace.ledger),
            }
        )
    _emit({"benchmark": "cases", "backend": arguments.backend, "rows": rows}, arguments.json)
    return 0


_BENCHMARKS = {"stall": _stall, "engine": _engine, "cases": _cases}


def run(argv: list[str]) -> int:
    """Measure how fast the suite itself is."""
    parser = Parser(prog="allranks bench", description="Measure how fast the suite itself is.")
    parser.add_argument("benchmark", choices=sorted(_BENCHMARKS))
    arguments, rest = parser.parse_known_args(argv)
    return _BENCHMARKS[arguments.benchmark](rest)
