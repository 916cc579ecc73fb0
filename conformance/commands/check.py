"""``allranks check``: run the conformance suite on a communicator."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from allranks.conformance import report
from allranks.conformance.backend import load_backend
from allranks.conformance.commands.options import Parser, add_quiet_timeout, folder, positive, ranks, whole, writable
from allranks.conformance.engine import Ran
from allranks.conformance.running import (
    CASE_DIR,
    DEFAULT_EFFORT,
    DEFAULT_MACHINE,
    DEFAULT_RANKS,
    EFFORT,
    Settings,
    check,
    keep,
    reduce_all,
    replay_line,
    settings_of,
)


def _parser() -> Parser:
    efforts = ", ".join(f"{name} {count}" for name, count in EFFORT.items())
    parser = Parser(prog="allranks check", description="Run the conformance suite on a communicator.")
    parser.add_argument("requirement", nargs="*", metavar="REQUIREMENT", help="ids or families; all by default")
    parser.add_argument("--backend", default="refimpl", metavar="NAME|MODULE:CLASS", help="the communicator under test")
    parser.add_argument(
        "--machine",
        metavar="M",
        help=f"the simulated machine (default {DEFAULT_MACHINE} with 8 devices; one that is named has enough of them)",
    )
    parser.add_argument(
        "--ranks", type=ranks, default=DEFAULT_RANKS, metavar="N", help=f"ranks at most (default {DEFAULT_RANKS})"
    )
    parser.add_argument("--seed", type=whole, metavar="S", help="what the Programs depend on (default 0)")
    parser.add_argument(
        "--effort",
        choices=sorted(EFFORT),
        default=DEFAULT_EFFORT,
        help=f"how many Programs a family: {efforts} (default {DEFAULT_EFFORT}); ci takes no seed",
    )
    parser.add_argument("--programs", type=positive, metavar="N", help="Programs a family, instead of --effort")
    parser.add_argument(
        "--jobs", type=positive, metavar="N", help="processes at a time (default: one for each processor)"
    )
    parser.add_argument("--json", type=writable, metavar="FILE", help="write the result as JSON")
    parser.add_argument("--junit", type=writable, metavar="FILE", help="write the result as JUnit XML")
    parser.add_argument(
        "--expected-failures", type=Path, metavar="FILE", help="TOML file: requirement = reason; one that passes fails"
    )
    parser.add_argument("--case-dir", type=folder, default=CASE_DIR, metavar="DIR", help="where failing cases go")
    parser.add_argument("--no-reduce", action="store_true", help="leave failing Programs as they were found")
    add_quiet_timeout(parser)
    return parser


@contextmanager
def _progress(console: Console, settings: Settings) -> Iterator[Callable[[Ran], None]]:
    columns = (TextColumn("{task.description:>6}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, refresh_per_second=4) as progress:
        tasks = {
            source: progress.add_task(source, total=settings.total(source), start=False) for source in settings.sources
        }

        def advance(ran: Ran) -> None:
            progress.start_task(tasks[ran.source])
            progress.advance(tasks[ran.source])

        yield advance


def run(argv: list[str]) -> int:
    """Run the conformance suite on a communicator."""
    arguments = _parser().parse_args(argv)
    settings = settings_of(
        backend=arguments.backend,
        ranks=arguments.ranks,
        machine=arguments.machine,
        seed=arguments.seed,
        effort=arguments.effort,
        programs=arguments.programs,
        requirements=tuple(arguments.requirement),
        expected_failures=arguments.expected_failures,
        quiet_timeout_s=arguments.quiet_timeout,
    )
    load_backend(settings.backend)
    processes = arguments.jobs or len(os.sched_getaffinity(0))
    console = Console(stderr=False)
    with _progress(console, settings) as advance:
        result = check(settings, processes=processes, progress=advance)
    found = [*result.findings.values(), *result.interruptions[:1], *result.nondeterministic[:1]]
    for finding in {id(finding): finding for finding in found}.values():
        keep(finding, arguments.case_dir, settings)  # at once: reducing may be interrupted
    if not arguments.no_reduce:
        reduce_all(settings, result, processes=processes)
    others = [*result.interruptions[:1], *result.nondeterministic[:1]]
    shown = {**{finding.requirement: finding for finding in others}, **result.findings}
    kept = {name: keep(finding, arguments.case_dir, settings) for name, finding in shown.items()}
    for name, finding in shown.items():
        report.print_finding(console, finding, replay_line(kept[name], settings))
    report.print_matrix(console, result, settings.expected)
    cases = {name: str(path) for name, path in kept.items()}
    if arguments.json is not None:
        report.write_json(arguments.json, result, cases, settings.expected)
    if arguments.junit is not None:
        report.write_junit(arguments.junit, result, settings.expected)
    sys.stdout.flush()
    return report.exit_code(result, settings.expected)
