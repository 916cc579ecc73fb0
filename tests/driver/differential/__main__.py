"""Draw sequences of driver calls, run them on a library, compare two runs.

``python -m tests.driver.differential`` in the repository's root. ``draw`` needs Hypothesis; the others need nothing but
the interpreter, so that ``run`` works on a machine with GPUs where nothing is installed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.driver.differential.abi import RefusedError
from tests.driver.differential.files import Lines, read_lines, write_lines


def say(*lines: str) -> None:
    """Print lines."""
    sys.stdout.write("\n".join(lines) + "\n")


def simulated(library: str | None) -> str:
    """Give the library, by default the simulated one."""
    if library is not None:
        return library
    from allranks import sim

    return str(sim.library_path())


def draw(options: argparse.Namespace) -> int:
    from tests.driver.differential.drawing import draw_sequences
    from tests.driver.differential.running import AtOnce, run_sequences
    from tests.driver.differential.tallies import Tally

    sequences = [
        {"id": index, "steps": steps} for index, steps in enumerate(draw_sequences(options.count, options.seed))
    ]
    write_lines(options.out, sequences)
    tally = Tally()
    for told in run_sequences(simulated(options.library), sequences, AtOnce(jobs=options.jobs)):
        if told["id"] != "end":
            tally.add(told)
    say(f"{len(sequences)} sequences, median length {tally.median}; on the simulated driver:", *tally.report())
    rare = list(tally.short_of())
    say("too rare: " + ("; ".join(rare) or "nothing"))
    return 1 if rare else 0


def recorded(path: Path, wanted: dict[Any, Any]) -> dict[Any, dict[str, Any]]:
    """Give the transcripts that a run has left there before, of sequences that are wanted as they are."""
    if not path.exists():
        return {}
    return {told["id"]: told for told in read_lines(path) if wanted.get(told["id"]) == told.get("steps", ())}


def run(options: argparse.Namespace) -> int:
    from tests.driver.differential.running import AtOnce, run_sequences

    begun, ended = time.monotonic(), Counter[str]()
    sequences = {one["id"]: one["steps"] for one in read_lines(options.input)}
    kept = recorded(options.out, sequences)

    def chosen() -> Iterator[dict[str, Any]]:
        for name, steps in sequences.items():
            if time.monotonic() - begun > options.limit_s:
                return
            if name not in kept:
                yield {"id": name, "steps": steps}

    with Lines(options.out, kept.values()) as out:
        at_once = AtOnce(jobs=options.jobs, batch=options.batch, deadline_s=options.deadline_s)
        for told in run_sequences(simulated(options.library), chosen(), at_once):
            out.write(told)
            ended[told.get("broken", "whole") if told["id"] != "end" else "end"] += 1
    del ended["end"]
    done = f"{ended.total()} sequences in {time.monotonic() - begun:.1f} s"
    say(f"{done}, {len(kept)} from before, {len(sequences) - len(kept) - ended.total()} left: {dict(ended)}")
    return 0


def compare(options: argparse.Namespace) -> int:
    from tests.driver.differential.comparing import Comparison, load_explained

    comparison = Comparison(load_explained(options.explained))
    comparison.files(options.reference, options.other)
    say(*comparison.report(options.show))
    if options.json is not None:
        options.json.write_text(json.dumps(comparison.summary(), indent=1) + "\n", encoding="utf-8")
    return 1 if comparison.unexplained else 0


def serve(options: argparse.Namespace) -> int:
    from tests.driver.differential.lending import serve_lender
    from tests.driver.differential.running import end_with, serve

    if not end_with(options.parent):
        return 2
    return serve_lender(options.library) if options.lent is None else serve(options.library, options.lent)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.driver.differential", description=__doc__)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("draw", help="draw sequences")
    one.add_argument("--count", type=int, default=10_000)
    one.add_argument("--seed", type=int, default=0)
    one.add_argument("--out", type=Path, required=True)
    one.add_argument("--library", help="where they are counted (default: the simulated one)")
    one.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at once")
    one.set_defaults(do=draw)
    one = commands.add_parser("run", help="execute sequences on a library")
    one.add_argument("--library", help="libcuda.so.1 for the real driver (default: the simulated one)")
    one.add_argument("--in", dest="input", type=Path, required=True)
    one.add_argument("--out", type=Path, required=True, help="what is there of these sequences is not run again")
    one.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at once")
    one.add_argument("--batch", type=int, default=500, help="sequences in one process")
    one.add_argument(
        "--deadline-s", type=float, default=30.0, help="end a sequence that takes longer, with its process"
    )
    one.add_argument("--limit-s", type=float, default=600.0, help="begin no sequence after so many seconds")
    one.set_defaults(do=run)
    one = commands.add_parser("compare", help="compare a run with another one")
    one.add_argument("reference", type=Path, help="the run on hardware")
    one.add_argument("other", type=Path, help="the run on the simulated driver")
    one.add_argument("--explained", type=Path, default=Path(__file__).with_name("explained.json"))
    one.add_argument("--show", type=int, default=20, help="how many kinds of unexplained differences are shown")
    one.add_argument("--json", type=Path, help="write the figures and all differences there")
    one.set_defaults(do=compare)
    for name in ("serve", "lend"):
        one = commands.add_parser(name, help=argparse.SUPPRESS)
        one.add_argument("--library", required=True)
        one.add_argument("--parent", type=int, required=True)
        if name == "serve":
            one.add_argument("--lent", required=True)
        one.set_defaults(do=serve, lent=None)
    options = parser.parse_args()
    try:
        code: int = options.do(options)
    except (RefusedError, OSError) as error:
        sys.stderr.write(f"allranks: {error}\n")
        return 2
    return code


if __name__ == "__main__":
    sys.exit(main())
