"""Draw sequences of driver calls, run them on a library, compare two runs.

``python -m tests.driver.differential`` in the repository's root. ``draw`` needs Hypothesis; the others need nothing but
the interpreter, so that ``run`` works on a machine with GPUs where nothing is installed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.driver.differential.abi import RefusedError
from tests.driver.differential.files import read_lines, write_lines


def draw(options: argparse.Namespace) -> int:
    from tests.driver.differential.drawing import draw_sequences

    drawn = list(draw_sequences(options.count, options.seed))
    write_lines(options.out, ({"id": index, "steps": steps} for index, steps in enumerate(drawn)))
    lengths = [len(steps) for steps in drawn]
    print(f"{len(drawn)} sequences, median length {statistics.median(lengths):g}")  # noqa: T201
    return 0


def part_of(text: str) -> tuple[int, int]:
    """Read "1/4": the second of four parts."""
    part, _, parts = text.partition("/")
    if not (part.isdigit() and parts.isdigit() and int(part) < int(parts)):
        raise argparse.ArgumentTypeError(f"{text!r}: two numbers such as 0/4, the first one smaller")
    return int(part), int(parts)


def run(options: argparse.Namespace) -> int:
    from tests.driver.differential.running import run_sequences

    library = options.library
    if library is None:
        from allranks import sim

        library = str(sim.library_path())
    begun, broken = time.monotonic(), list[str]()
    part, parts = options.part

    def chosen() -> Iterator[dict[str, Any]]:
        for index, sequence in enumerate(read_lines(options.input)):
            if time.monotonic() - begun > options.limit_s:
                print(f"stopped after {options.limit_s:g} s, before sequence {sequence['id']}")  # noqa: T201
                return
            if index % parts == part:
                yield {"id": sequence["id"], "steps": sequence["steps"]}

    def watched() -> Iterator[dict[str, Any]]:
        for told in run_sequences(library, chosen(), options.batch):
            if "broken" in told:
                broken.append(f"{told['id']} ({told['broken']})")
            yield told

    count = write_lines(options.out, watched()) - 1
    print(f"{count} sequences in {time.monotonic() - begun:.1f} s, {len(broken)} broke their process")  # noqa: T201
    if broken:
        print("broken: " + ", ".join(broken[:20]))  # noqa: T201
    return 0


def compare(options: argparse.Namespace) -> int:
    from tests.driver.differential.comparing import Comparison, load_explained

    comparison = Comparison(load_explained(options.explained))
    comparison.files(options.reference, options.other)
    print("\n".join(comparison.report(options.show)))  # noqa: T201
    return 1 if comparison.unexplained else 0


def serve(options: argparse.Namespace) -> int:
    from tests.driver.differential.running import serve

    return serve(options.library)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.driver.differential", description=__doc__)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("draw", help="draw sequences")
    one.add_argument("--count", type=int, default=10_000)
    one.add_argument("--seed", type=int, default=0)
    one.add_argument("--out", type=Path, required=True)
    one.set_defaults(do=draw)
    one = commands.add_parser("run", help="execute sequences on a library")
    one.add_argument("--library", help="libcuda.so.1 for the real driver (default: the simulated one)")
    one.add_argument("--in", dest="input", type=Path, required=True)
    one.add_argument("--out", type=Path, required=True)
    one.add_argument("--batch", type=int, default=500, help="sequences in one process")
    one.add_argument("--part", type=part_of, default=(0, 1), help="every n-th sequence only: 0/4, 1/4, 2/4 or 3/4")
    one.add_argument("--limit-s", type=float, default=600.0, help="begin no sequence after so many seconds")
    one.set_defaults(do=run)
    one = commands.add_parser("compare", help="compare a run with another one")
    one.add_argument("reference", type=Path, help="the run on hardware")
    one.add_argument("other", type=Path, help="the run on the simulated driver")
    one.add_argument("--explained", type=Path, default=Path(__file__).with_name("explained.json"))
    one.add_argument("--show", type=int, default=20, help="how many kinds of unexplained differences are shown")
    one.set_defaults(do=compare)
    one = commands.add_parser("serve", help=argparse.SUPPRESS)
    one.add_argument("--library", required=True)
    one.set_defaults(do=serve)
    options = parser.parse_args()
    try:
        code: int = options.do(options)
    except (RefusedError, OSError) as error:
        print(f"allranks: {error}", file=sys.stderr)  # noqa: T201
        return 2
    return code


if __name__ == "__main__":
    sys.exit(main())
