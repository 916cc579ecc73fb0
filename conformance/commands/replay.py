"""``allranks replay``: run one case on a backend and say what it shows."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from rich.console import Console

from allranks.conformance import report
from allranks.conformance.backend import load_backend
from allranks.conformance.casefile import Case, load
from allranks.conformance.cases import shipped
from allranks.conformance.checks import CHECKS
from allranks.conformance.commands.options import Parser, add_processes, add_quiet_timeout, machine_for
from allranks.conformance.isolated import run_jobs
from allranks.conformance.over_processes import ProcessesEngine
from allranks.conformance.result import Result
from allranks.conformance.running import make_world
from allranks.conformance.settings import DEFAULT_MACHINE, settings_of, world_of
from allranks.conformance.worker import Job
from allranks.conformance.worlds.hardware import check_driver
from allranks.errors import UsageError


def find_case(name: str) -> Case:
    """Give a case by the name of a file, or of a shipped case.

    Raises
    ------
    allranks.errors.UsageError
        If there is neither.
    """
    path = Path(name)
    if path.exists():
        return load(path)
    cases = shipped()
    if name in cases:
        return cases[name]
    raise UsageError(f"case={name!r}: neither a file nor a shipped case (allranks cases lists these)")


def _in_threads(case: Case, arguments: argparse.Namespace) -> Result:
    if arguments.deadline is not None:
        raise UsageError(f"deadline={arguments.deadline:g}: world threads has none")
    count = case.program.rank_count
    job = Job(
        backend=arguments.backend,
        machine=machine_for(arguments.machine or case.machine or DEFAULT_MACHINE, count),
        requirements=tuple(CHECKS),
        seed=case.program.seed,
        max_ranks=count,
        quiet_timeout_s=arguments.quiet_timeout,
        source=arguments.case,
        case=case,
        strict=True,  # a case is run as it is
    )
    ((result, _),) = run_jobs([job])
    return result


def _in_processes(case: Case, arguments: argparse.Namespace) -> Result:
    settings = settings_of(
        backend=arguments.backend,
        ranks=case.program.rank_count,
        machine=arguments.machine,
        world=arguments.world,
        deadline_s=arguments.deadline,
        launcher=arguments.launcher,
        nodes=arguments.nodes,
        driver=arguments.driver,
    )
    if settings.together:
        raise UsageError("launcher='none': replay starts the ranks of a case itself")
    engine = ProcessesEngine(
        make_world(settings),
        settings.machine,
        tuple(CHECKS),
        seed=case.program.seed,
        max_ranks=settings.ranks,
        strict=True,  # a case is run as it is
    )
    try:
        engine.engine.run_case(arguments.case, case)
        engine.confirm()
        engine.show()
    finally:
        engine.close()
    return engine.result


def run(argv: list[str]) -> int:
    """Run one case on a backend and say what it shows."""
    parser = Parser(prog="allranks replay", description="Run one case on a backend and say what it shows.")
    parser.add_argument("case", metavar="CASE", help="a case file, or the name of a shipped case")
    parser.add_argument("--backend", default="refimpl", metavar="NAME|MODULE:CLASS", help="the communicator under test")
    parser.add_argument("--machine", metavar="M", help="instead of the case's own simulated machine")
    add_quiet_timeout(parser)
    add_processes(parser)
    arguments = parser.parse_args(argv)
    case = find_case(arguments.case)
    backend = load_backend(arguments.backend)
    check_driver(backend, arguments.driver, arguments.world or world_of(backend, arguments.driver))
    threads = (arguments.world or world_of(backend, arguments.driver)) == "threads"
    result = _in_threads(case, arguments) if threads else _in_processes(case, arguments)
    console = Console()
    again = shlex.join(["allranks", "replay", *argv])
    found = [*result.findings.values(), *result.nondeterministic]
    for finding in found:
        report.print_finding(console, finding, again)
    if case.title:
        console.print(f"{case.title}", markup=False)
    missed = [
        name
        for name in case.requirements
        if name in CHECKS
        and not result.tallies[name].evaluated
        and (result.tallies[name].inconclusive or result.status(name) == "not supported")
    ]
    if missed and not found:
        why = "the backend or the machine declines what it needs, or it was inconclusive"
        console.print(f"{', '.join(missed)}: not evaluated here; {why}.", markup=False, highlight=False)
    broken = ", ".join(finding.requirement for finding in found) or "nothing"
    looked = sum(tally.evaluated for tally in result.tallies.values())
    console.print(f"{broken} broken on {backend.name}; {looked} things evaluated.", markup=False, highlight=False)
    if found:
        return 1
    return 3 if missed or not looked else 0
