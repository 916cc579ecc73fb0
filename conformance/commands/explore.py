"""``allranks explore``: run one case under every schedule with few preemptions."""

from __future__ import annotations

import dataclasses
import json
import sys
import time

from rich.console import Console

from allranks.conformance import report
from allranks.conformance.backend import load_backend
from allranks.conformance.casefile import dumps
from allranks.conformance.checks import judge
from allranks.conformance.commands.options import Parser, machine_for, positive, writable
from allranks.conformance.commands.replay import find_case
from allranks.conformance.plan import planned
from allranks.conformance.requirements import select
from allranks.conformance.result import Finding
from allranks.conformance.schedules import Schedule, UnsteadyError, explore
from allranks.conformance.worlds.threads import RunOptions, ThreadsWorld
from allranks.errors import UsageError


def _whole(text: str) -> int:
    if not text.isdecimal():
        raise UsageError(f"--preemptions={text!r}: a whole number from 0 on")
    return int(text)


def _parser() -> Parser:
    parser = Parser(prog="allranks explore", description="Run one case under every schedule with few preemptions.")
    parser.add_argument("case", metavar="CASE", help="a case file, or the name of a shipped case")
    parser.add_argument("requirement", nargs="*", metavar="REQUIREMENT", help="ids or families; all by default")
    parser.add_argument("--backend", default="refimpl", metavar="NAME|MODULE:CLASS", help="the communicator under test")
    parser.add_argument("--machine", metavar="M", help="instead of the case's own simulated machine")
    parser.add_argument("--preemptions", type=_whole, default=1, metavar="K", help="at most (default 1)")
    parser.add_argument("--most", type=positive, metavar="N", help="schedules at most; all by default")
    parser.add_argument("--out", type=writable, metavar="FILE", help="write the case with the schedule that fails")
    parser.add_argument("--json", action="store_true", help="the figures as JSON")
    return parser


def run(argv: list[str]) -> int:
    """Run one case under every schedule with few preemptions."""
    arguments = _parser().parse_args(argv)
    requirements = select(arguments.requirement)
    case = find_case(arguments.case)
    program = dataclasses.replace(case.program, schedule=())
    machine = machine_for(arguments.machine or case.machine or "h100", program.rank_count)
    plan = list(planned(program))
    found: list[Finding] = []
    looked = 0
    started = time.perf_counter()
    with ThreadsWorld(load_backend(arguments.backend), machine) as world:

        def once(schedule: Schedule) -> str:
            nonlocal looked
            trace = world.run(program, RunOptions(schedule=schedule), plan=plan)
            for name, outcome in judge(program, trace, requirements, plan=plan).items():
                looked += outcome.evaluated
                if outcome.violations:
                    shown = dataclasses.replace(program, schedule=trace.deviations)
                    found.append(
                        Finding(
                            requirement=name,
                            program=shown,
                            violation=outcome.violations[0],
                            trace=trace,
                            source=arguments.case,
                            examples=1,
                        )
                    )
                    return outcome.violations[0].evidence
            return ""

        try:
            result = explore(once, preemptions=arguments.preemptions, most=arguments.most)
        except UnsteadyError as error:
            sys.stderr.write(f"allranks: uncontrolled nondeterminism on {arguments.backend}: {error}\n")
            return 1
    figures = {
        "case": arguments.case,
        "backend": arguments.backend,
        "preemptions": result.preemptions,
        "schedules": result.explored,
        "complete": result.complete,
        "decisions": result.longest,
        "evaluated": looked,
        "broken": found[0].requirement if found else None,
        "deviations": result.failure.deviations if result.failure else None,
        "seconds": round(time.perf_counter() - started, 1),
    }
    if found and arguments.out is not None:
        kept = dataclasses.replace(case, program=found[0].program, requirements=(found[0].requirement,))
        arguments.out.write_text(dumps(kept), encoding="utf-8")
    if arguments.json:
        sys.stdout.write(json.dumps(figures) + "\n")
    else:
        console = Console()
        if found:
            again = f"allranks replay {arguments.out or 'FILE (see --out)'} --backend {arguments.backend}"
            report.print_finding(console, found[0], again)
        ended = "all" if result.complete else "not all"
        console.print(
            f"{result.explored} schedules explored, {ended} with at most {result.preemptions} preemptions "
            f"in up to {result.longest} decisions; {looked} things evaluated.",
            highlight=False,
        )
    if found:
        return 1
    return 0 if looked and result.complete else 3
