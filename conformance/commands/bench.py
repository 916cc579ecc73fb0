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
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

from allranks import __version__, sim
from allranks.conformance.backend import load_backend
from allranks.conformance.casefile import Case
from allranks.conformance.cases import shipped
from allranks.conformance.checks import CHECKS, judge
from allranks.conformance.commands.options import Parser, add_world, machine_for, positive
from allranks.conformance.corpus import MUTANTS
from allranks.conformance.engine import Engine, draw_values
from allranks.conformance.plan import planned
from allranks.conformance.program import Program, Repeat, Step, is_collective, unrolled
from allranks.conformance.requirements import FAMILIES, REQUIREMENTS
from allranks.conformance.strategies import programs
from allranks.conformance.worlds.ranks import RankThreads
from allranks.conformance.worlds.threads import ThreadsWorld
from allranks.errors import UsageError


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


def _drawn(strategy: st.SearchStrategy[Any], count: int, use: Callable[[Any], None], seed: int = 0) -> float:
    """Draw `count` values; gives the seconds of processor time for drawing and using them."""
    started = time.process_time()
    draw_values(strategy, count, use, seed=seed)
    return time.process_time() - started


def _engine(argv: list[str]) -> int:
    parser = Parser(prog="allranks bench engine", description="Programs drawn, run and judged, against drawing a list.")
    add_world(parser)
    parser.add_argument("--programs", type=positive, default=200, help="a family")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(argv)
    rows = [_engine_row(arguments, ranks) for ranks in (2, 4, 8, 16, 72)]
    _emit({"benchmark": "engine", "backend": arguments.backend, "rows": rows}, arguments.json)
    return 0


def _lists(count: int) -> float:
    """Give the seconds for drawing one list: what the rates are divided by."""
    return _drawn(st.lists(st.integers(0, 100), min_size=48, max_size=48), count, lambda value: None) / count


def _engine_row(arguments: Any, ranks: int) -> dict[str, Any]:
    """Draw, run and judge as the engine does; the yardstick is taken before and after, for machines are not steady.

    Rates are per second of processor time: one task runs at a time, and what else the machine does is not looked for.
    """
    drawn: list[Program] = []
    count = max(5, arguments.programs * 2 // ranks)
    before = _lists(len(FAMILIES) * count)
    draw = sum(_drawn(programs(family, max_ranks=ranks, min_ranks=ranks), count, drawn.append) for family in FAMILIES)
    run = checks = 0.0
    lengths, collective = [], []
    with ThreadsWorld(load_backend(arguments.backend), machine_for(arguments.machine, ranks)) as world:
        world.run(drawn[0])
        for program in drawn:
            started = time.process_time()
            plan = list(planned(program))
            trace = world.run(program, plan=plan)
            ran = time.process_time()
            judge(program, trace, tuple(CHECKS), plan=plan)
            checks += time.process_time() - ran
            run += ran - started
            lengths.append(len(plan))
            collective.append(sum(step.collective and step.applies for step in plan))
    unit = (before + _lists(len(FAMILIES) * count)) / 2 * len(drawn)
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
                "left_in_ledger": len(trace.ledger or ()),
            }
        )
    _emit({"benchmark": "cases", "backend": arguments.backend, "rows": rows}, arguments.json)
    return 0


def _written(program: Program) -> tuple[int, int]:
    """Count (collective, local) steps as they are written: those of a loop once."""
    steps = list(_once(program.steps))
    collective = sum(map(is_collective, steps))
    return collective, len(steps) - collective


def _once(steps: tuple[Step, ...]) -> Iterator[Step]:
    for step in steps:
        if isinstance(step, Repeat):
            yield from _once(step.steps)
        else:
            yield step


def _reduce_row(name: str, seeds: int, ranks: int) -> dict[str, Any]:
    """Find a mutant with each seed and make the finding small.

    Hypothesis begins with the simplest Program whatever the seed is; that one is left out, and no Program is counted
    for two seeds, for else the seeds would say the same thing many times.
    """
    made = MUTANTS[name]
    rows: list[dict[str, int]] = []
    missed = []
    taken: set[str] = set()
    small_ones: set[str] = set()
    for seed in range(seeds):
        engine = Engine(made.make(), machine_for("h100", ranks), (made.requirement,), seed=seed, max_ranks=ranks)
        drawn: list[Program] = []
        _drawn(programs(REQUIREMENTS[made.requirement].family, max_ranks=ranks), 100, drawn.append, seed)
        for program in drawn[1:]:
            if repr(program) in taken:
                continue
            engine.run_case("drawn", Case(program=program))
            if made.requirement in engine.result.findings:
                taken.add(repr(program))
                break
        else:
            missed.append(seed)
            engine.close()
            continue
        runs = engine.world.runs
        started = time.perf_counter()
        small = engine.reduce(engine.result.findings[made.requirement]).program
        seconds = time.perf_counter() - started
        runs = engine.world.runs - runs
        engine.close()
        small_ones.add(repr(small))
        collective, local = _written(small)
        rows.append(
            {
                "examples": engine.result.programs,
                "ranks": small.rank_count,
                "collective": collective,
                "local": local,
                "deviations": len(small.schedule),
                "runs": runs,
                "milliseconds": round(seconds * 1e3),
            }
        )
    figures: dict[str, Any] = {"mutant": name, "kind": made.kind, "seeds": seeds, "missed": missed}
    figures |= {"distinct": len(taken), "distinct_small": len(small_ones)}
    for key in rows[0] if rows else ():
        values = [row[key] for row in rows]
        figures[key] = statistics.median(values)
        figures[f"worst_{key}"] = max(values)
    return figures


def _reduce(argv: list[str]) -> int:
    parser = Parser(prog="allranks bench reduce", description="How small findings get, mutant by mutant.")
    parser.add_argument("mutant", nargs="*", default=["local-key", "first-offset", "kept-handle"])
    parser.add_argument("--seeds", type=positive, default=50, help="findings a mutant (default 50)")
    parser.add_argument("--ranks", type=positive, default=4, help="ranks at most (default 4)")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(argv)
    for name in arguments.mutant:
        if name not in MUTANTS:
            raise UsageError(f"mutant={name!r}: one of {', '.join(sorted(MUTANTS))}")
    rows = [_reduce_row(name, arguments.seeds, arguments.ranks) for name in arguments.mutant]
    _emit({"benchmark": "reduce", "rows": rows}, arguments.json)
    return 0


_BENCHMARKS = {"stall": _stall, "engine": _engine, "reduce": _reduce, "cases": _cases}


def run(argv: list[str]) -> int:
    """Measure how fast the suite itself is."""
    parser = Parser(prog="allranks bench", description="Measure how fast the suite itself is.")
    parser.add_argument("benchmark", choices=sorted(_BENCHMARKS))
    arguments, rest = parser.parse_known_args(argv)
    return _BENCHMARKS[arguments.benchmark](rest)
