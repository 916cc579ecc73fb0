"""``allranks bench detect``: how many Programs it takes until a mutant shows its fault.

A mutant counts as found when a Program that ``allranks check`` would draw breaks the very requirement that the mutant
is there for; what else it breaks is noise. Hypothesis begins with the simplest Program whatever the seed is, so that
one is left out: it would be one find counted once a seed. Failing driver calls are enumerated, not drawn: for the
requirements that judge these the seed changes nothing, and each such mutant is searched for once.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from allranks.conformance.checks import CHECKS, FAULTED, judge
from allranks.conformance.commands.bench.shown import check_mutants, emit
from allranks.conformance.commands.options import Parser, machine_for, positive, ranks
from allranks.conformance.corpus import MUTANTS
from allranks.conformance.corpus.specimen import Specimen
from allranks.conformance.draws import drawn_values
from allranks.conformance.engine import FAULTS, Engine
from allranks.conformance.plan import planned
from allranks.conformance.program import Program
from allranks.conformance.requirements import REQUIREMENTS
from allranks.conformance.settings import DEFAULT_RANKS, EFFORT
from allranks.conformance.strategies import programs as programs_of


@dataclass(slots=True, kw_only=True)
class Search:
    """What the Programs of one seed came to, up to the first that showed the fault.

    Parameters
    ----------
    seed : int
        What they depend on.
    examples : int
        How many were run.
    found : bool
        Whether the last of them broke the mutant's requirement.
    seconds, slowest_seconds : float
        For running and judging all of them, and the longest for one.
    noise : mapping of str to int
        How many broke another requirement, by requirement.
    """

    seed: int
    examples: int = 0
    found: bool = False
    seconds: float = 0.0
    slowest_seconds: float = 0.0
    noise: Counter[str] = field(default_factory=Counter)


def _family(family: str, count: int, seed: int, max_ranks: int) -> Iterator[Program]:
    """Give the Programs of a family as a check draws them, but for the first."""
    return itertools.islice(drawn_values(programs_of(family, max_ranks=max_ranks), count, seed=seed), 1, None)


def search(engine: Engine, requirement: str, programs: Iterable[Program], seed: int) -> Search:
    """Run Programs until one breaks the requirement."""
    searched = Search(seed=seed)
    for program in programs:
        started = time.perf_counter()
        plan = list(planned(program))
        outcomes = judge(program, engine.world.run(program, plan=plan), plan=plan)
        seconds = time.perf_counter() - started
        searched.examples += 1
        searched.seconds += seconds
        searched.slowest_seconds = max(searched.slowest_seconds, seconds)
        searched.noise.update(name for name, outcome in outcomes.items() if outcome.violations and name != requirement)
        if outcomes[requirement].violations:
            searched.found = True
            break
    return searched


def searches(made: Specimen, seeds: int, count: int, max_ranks: int) -> list[Search]:
    """Look for a mutant with every seed; see above for those whose Programs no seed changes."""
    machine = machine_for(made.machine, max_ranks)
    engine = Engine(made.make(), machine, tuple(CHECKS), seed=0, max_ranks=max_ranks)
    try:
        if made.requirement in FAULTED:
            return [search(engine, made.requirement, engine.faulted(), 0)]
        family = REQUIREMENTS[made.requirement].family
        return [
            search(engine, made.requirement, _family(family, count, seed, max_ranks), seed) for seed in range(seeds)
        ]
    finally:
        engine.close()


def figures(made: Specimen, found: list[Search]) -> dict[str, Any]:
    """Give a mutant's row: the examples are of the seeds that found it."""
    examples = [one.examples for one in found if one.found]
    noise = sum((one.noise for one in found), Counter[str]())
    return {
        "mutant": made.name,
        "kind": made.kind,
        "requirement": made.requirement,
        "source": FAULTS if made.requirement in FAULTED else REQUIREMENTS[made.requirement].family,
        "seeds": len(found),
        "missed": [one.seed for one in found if not one.found],
        "median_examples": statistics.median(examples) if examples else None,
        "worst_examples": max(examples, default=None),
        "examples": examples,
        "median_seconds": round(statistics.median(one.seconds for one in found), 3),
        "slowest_program_seconds": round(max(one.slowest_seconds for one in found), 3),
        "noise": dict(sorted(noise.items())),
    }


def detect(argv: list[str]) -> int:
    """Measure how soon mutants are found; the exit code is 1 if one is missed."""
    standard = EFFORT["standard"]
    parser = Parser(prog="allranks bench detect", description="How many Programs it takes until a mutant is found.")
    parser.add_argument("mutant", nargs="*", metavar="MUTANT", help="all by default")
    parser.add_argument("--seeds", type=positive, default=10, metavar="N", help="seeds 0 to N-1 (default 10)")
    parser.add_argument(
        "--programs", type=positive, default=standard, metavar="M", help=f"Programs a seed at most (default {standard})"
    )
    parser.add_argument("--ranks", type=ranks, default=DEFAULT_RANKS, metavar="N", help="ranks at most (default 4)")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(argv)
    check_mutants(arguments.mutant)
    rows = []
    for name in arguments.mutant or MUTANTS:
        made = MUTANTS[name]
        rows.append(figures(made, searches(made, arguments.seeds, arguments.programs, arguments.ranks)))
        if not arguments.json:
            emit({"rows": rows[-1:]}, as_json=False)
            sys.stdout.flush()
    medians = [row["median_examples"] for row in rows if row["median_examples"] is not None]
    total = {
        "benchmark": "detect",
        "mutants": len(rows),
        "missed": sorted(row["mutant"] for row in rows if row["missed"]),
        "median_examples": statistics.median(medians) if medians else None,
        "worst_examples": max((row["worst_examples"] for row in rows if row["examples"]), default=None),
    }
    emit({**total, **({"rows": rows} if arguments.json else {})}, arguments.json)
    return 1 if total["missed"] else 0
