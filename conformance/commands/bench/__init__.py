"""``allranks bench``: how fast the suite itself is, and how soon and how small it shows a fault."""

from __future__ import annotations

from allranks.conformance.commands.bench import corpus, detection, reduction, speed
from allranks.conformance.commands.options import Parser

_BENCHMARKS = {
    "stall": speed.stall,
    "engine": speed.engine,
    "cases": speed.cases,
    "reduce": reduction.reduce,
    "detect": detection.detect,
    "corpus": corpus.corpus,
}


def run(argv: list[str]) -> int:
    """Measure the suite itself."""
    parser = Parser(prog="allranks bench", description="Measure the suite itself: `allranks bench NAME --help`.")
    parser.add_argument("benchmark", choices=sorted(_BENCHMARKS))
    arguments = parser.parse_args(argv[:1])  # what follows is the benchmark's own, its --help too
    return _BENCHMARKS[arguments.benchmark](argv[1:])
