"""``allranks check``: run the conformance suite on a communicator."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from allranks.conformance import report
from allranks.conformance.commands.options import (
    Parser,
    add_processes,
    add_quiet_timeout,
    duration,
    folder,
    positive,
    ranks,
    whole,
    writable,
)
from allranks.conformance.kept import keep, kept_at_once, replay_line
from allranks.conformance.result import Ran
from allranks.conformance.running import check, reduce_all
from allranks.conformance.settings import (
    CASE_DIR,
    DEFAULT_EFFORT,
    DEFAULT_MACHINE,
    DEFAULT_RANKS,
    EFFORT,
    REDUCE_S,
    Settings,
    settings_of,
)
from allranks.conformance.worlds.together import first_rank, leave
from allranks.errors import UsageError


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
    parser.add_argument(
        "--verbose", action="store_true", help="a line for every requirement that is not supported, not for families"
    )
    parser.add_argument("--no-reduce", action="store_true", help="leave failing Programs as they were found")
    add_quiet_timeout(parser)
    add_processes(parser)
    parser.add_argument(
        "--reduce",
        type=duration,
        metavar="S",
        help=f"worlds of processes: seconds for making small what is found (default {REDUCE_S:g})",
    )
    parser.add_argument(
        "--strict", action="store_true", help="go beyond the library's contract, too; a broken *should* fails the run"
    )
    return parser


@contextmanager
def _progress(console: Console, settings: Settings, case_dir: Path) -> Iterator[Callable[[Ran], None]]:
    columns = (TextColumn("{task.description:>6}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, refresh_per_second=4) as progress:
        tasks = {
            source: progress.add_task(source, total=settings.total(source), start=False) for source in settings.sources
        }

        kept = kept_at_once(settings, case_dir)

        def advance(ran: Ran) -> None:
            kept(ran)
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
        world=arguments.world,
        deadline_s=arguments.deadline,
        reduce_s=arguments.reduce,
        launcher=arguments.launcher,
        nodes=arguments.nodes,
        driver=arguments.driver,
        strict=arguments.strict,
    )
    if settings.world != "threads":
        if arguments.jobs is not None:
            raise UsageError(f"jobs={arguments.jobs}: world {settings.world} runs one Program at a time")
        settings = replace(settings, reduce_s=0.0) if arguments.no_reduce else settings
    if settings.together and not first_rank(settings):
        return leave(report.exit_code(check(settings), settings.expected, strict=settings.strict))
    processes = arguments.jobs or len(os.sched_getaffinity(0))
    console = Console(stderr=False)
    with _progress(console, settings, arguments.case_dir) as advance:
        result = check(settings, processes=processes, progress=advance)
    if not arguments.no_reduce:
        reduce_all(settings, result, processes=processes)
    others = [*result.interruptions[:1], *result.nondeterministic[:1]]
    shown = {**{finding.requirement: finding for finding in others}, **result.findings}
    kept = {name: keep(finding, arguments.case_dir, settings) for name, finding in shown.items()}
    for name, finding in shown.items():
        report.print_finding(console, finding, replay_line(kept[name], settings))
    report.print_matrix(console, result, settings.expected, verbose=arguments.verbose)
    cases = {name: str(path) for name, path in kept.items()}
    if arguments.json is not None:
        report.write_json(arguments.json, result, cases, settings.expected)
    if arguments.junit is not None:
        report.write_junit(arguments.junit, result, settings.expected)
    sys.stdout.flush()
    code = report.exit_code(result, settings.expected, strict=settings.strict)
    return leave(code) if settings.together else code
