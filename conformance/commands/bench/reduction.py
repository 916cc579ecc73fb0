"""``allranks bench reduce``: how small findings get, mutant by mutant."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any

from allranks.conformance.casefile import Case
from allranks.conformance.commands.bench.shown import check_mutants, drawn_in, emit
from allranks.conformance.commands.options import Parser, machine_for, positive, ranks
from allranks.conformance.corpus import MUTANTS
from allranks.conformance.engine import Engine
from allranks.conformance.program import Program, Repeat, Step, is_collective
from allranks.conformance.requirements import REQUIREMENTS
from allranks.conformance.strategies import programs


def written(program: Program) -> tuple[int, int]:
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
        drawn_in(programs(REQUIREMENTS[made.requirement].family, max_ranks=ranks), 100, drawn.append, seed)
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
        collective, local = written(small)
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


def reduce(argv: list[str]) -> int:
    """Measure how small findings get."""
    parser = Parser(prog="allranks bench reduce", description="How small findings get, mutant by mutant.")
    parser.add_argument("mutant", nargs="*", default=["local-key", "first-offset", "kept-handle"])
    parser.add_argument("--seeds", type=positive, default=50, help="findings a mutant (default 50)")
    parser.add_argument("--ranks", type=ranks, default=4, help="ranks at most (default 4)")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(argv)
    check_mutants(arguments.mutant)
    rows = [_reduce_row(name, arguments.seeds, arguments.ranks) for name in arguments.mutant]
    emit({"benchmark": "reduce", "rows": rows}, arguments.json)
    return 0 if all(row["distinct"] for row in rows) else 3  # a mutant that no drawn Program shows
