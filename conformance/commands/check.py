"""``allranks check``: run the conformance suite on a communicator."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from allranks.conformance import report
from allranks.conformance.backend import load_backend
from allranks.conformance.casefile import Case, dumps
from allranks.conformance.cases import shipped
from allranks.conformance.commands.options import Parser, add_world, folder, machine_for, positive, ranks
from allranks.conformance.engine import Engine, Finding
from allranks.conformance.requirements import select

# Generated Programs a family.
EFFORT: Final = {"quick": 40, "standard": 400, "deep": 4000}


def _parser() -> Parser:
    parser = Parser(prog="allranks check", description="Run the conformance suite on a communicator.")
    parser.add_argument("requirement", nargs="*", metavar="REQUIREMENT", help="ids or families; all by default")
    add_world(parser)
    parser.add_argument("--ranks", type=ranks, default=4, metavar="N", help="ranks at most (default 4)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="what the Programs depend on (default 0)")
    parser.add_argument("--effort", choices=sorted(EFFORT), default="standard", help="how long (default standard)")
    parser.add_argument("--programs", type=positive, metavar="N", help="Programs a family, instead of --effort")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result as JSON")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write the result as JUnit XML")
    parser.add_argument(
        "--case-dir", type=folder, default=Path("allranks-cases"), metavar="DIR", help="where failing cases go"
    )
    parser.add_argument("--no-reduce", action="store_true", help="leave failing Programs as they were found")
    return parser


@contextmanager
def _progress(console: Console, engine: Engine, totals: dict[str, int]) -> Iterator[Progress]:
    columns = (TextColumn("{task.description:>6}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, refresh_per_second=4) as progress:
        tasks = {name: progress.add_task(name, total=total, start=False) for name, total in totals.items()}

        def advance(source: str, count: int) -> None:
            task = tasks[source if source in tasks else "cases"]
            progress.start_task(task)
            progress.advance(task, count)

        engine.progress = advance
        yield progress


def _keep(finding: Finding, directory: Path, machine: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{finding.requirement}-{finding.trace.backend}.json"
    case = Case(
        program=finding.program,
        title=finding.violation.evidence.splitlines()[0],
        requirements=(finding.requirement,),
        machine=machine,
    )
    path.write_text(dumps(case), encoding="utf-8")
    return path


def run(argv: list[str]) -> int:
    """Run the conformance suite on a communicator."""
    arguments = _parser().parse_args(argv)
    requirements = select(arguments.requirement)
    backend = load_backend(arguments.backend)
    machine = machine_for(arguments.machine, arguments.ranks)
    count = arguments.programs or EFFORT[arguments.effort]
    console = Console(stderr=False)
    engine = Engine(backend, machine, requirements, seed=arguments.seed, max_ranks=arguments.ranks)
    cases = shipped()
    families = engine.families()
    try:
        with _progress(console, engine, {"cases": len(cases), **dict.fromkeys(families, count)}):
            engine.run_cases(cases.items())
            for family in families:
                engine.run_family(family, count)
        kept: dict[str, str] = {}
        for name, found in list(engine.result.findings.items()):
            _keep(found, arguments.case_dir, arguments.machine)  # at once: reducing may be interrupted
            finding = found if arguments.no_reduce else engine.reduce(found)
            engine.result.findings[name] = finding
            kept[name] = str(_keep(finding, arguments.case_dir, arguments.machine))
    finally:
        engine.close()
    for name, finding in engine.result.findings.items():
        report.print_finding(console, finding, f"allranks replay {kept[name]} --backend {arguments.backend}")
    report.print_matrix(console, engine.result)
    if arguments.json is not None:
        report.write_json(arguments.json, engine.result, kept)
    if arguments.junit is not None:
        report.write_junit(arguments.junit, engine.result)
    sys.stdout.flush()
    return report.exit_code(engine.result)
