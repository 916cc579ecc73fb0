"""What is said of a check: the matrix on the terminal, JSON, JUnit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

from rich.console import Console
from rich.table import Table

from allranks import __version__
from allranks.conformance.engine import Finding, Result
from allranks.conformance.requirements import REQUIREMENTS
from allranks.conformance.story import lanes, tell

SCHEMA: Final = 1
_STYLES: Final = {"pass": "green", "fail": "bold red", "not supported": "yellow", "not run": "magenta"}


def exit_code(result: Result) -> int:
    """Give 1 for a violation of a *must*, 3 if something asked for was not evaluated, else 0."""
    if result.nondeterministic:
        return 1
    if any(REQUIREMENTS[name].level == "must" for name in result.findings):
        return 1
    statuses = [result.status(name) for name in result.requirements]
    return 3 if "not run" in statuses or set(statuses) <= {"not supported"} else 0


def print_matrix(console: Console, result: Result) -> None:
    """Print requirement by requirement: what came of it, and how much was looked at."""
    table = Table(title=f"{result.backend} on {result.machine}, up to {result.rank_count} ranks, seed {result.seed}")
    table.add_column("requirement")
    table.add_column("result")
    table.add_column("evaluated", justify="right")
    table.add_column("inconclusive", justify="right")
    table.add_column("what it says", overflow="fold")
    for name in result.requirements:
        tally, status = result.tallies[name], result.status(name)
        table.add_row(
            name,
            f"[{_STYLES[status]}]{status}[/]",
            str(tally.evaluated),
            str(tally.inconclusive),
            REQUIREMENTS[name].statement + ("" if REQUIREMENTS[name].checks else " (No check yet.)"),
        )
    console.print(table)
    console.print(f"{result.programs} Programs run, {len(result.findings)} requirements broken.")
    if result.nondeterministic:
        console.print(
            f"[bold red]Uncontrolled nondeterminism:[/] {len(result.nondeterministic)} Programs gave another Trace "
            "when they were run again."
        )


def print_finding(console: Console, finding: Finding, replay: str) -> None:
    """Print a failure: the story, and the lanes."""
    console.print()
    for line in tell(finding.program, finding.trace, finding.violation, replay):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print()
    for line in lanes(finding.program, finding.trace):
        console.print(f"    {line}", markup=False, highlight=False, soft_wrap=True)


def as_json(result: Result, cases: dict[str, str]) -> dict[str, Any]:
    """Give a result as plain data; `cases` are the case files of the findings."""
    return {
        "schema": SCHEMA,
        "allranks": __version__,
        "backend": result.backend,
        "machine": result.machine,
        "seed": result.seed,
        "ranks": result.rank_count,
        "capabilities": list(result.capabilities),
        "programs": result.programs,
        "nondeterministic": len(result.nondeterministic),
        "requirements": {
            name: {
                "status": result.status(name),
                "level": REQUIREMENTS[name].level,
                "evaluated": result.tallies[name].evaluated,
                "inconclusive": result.tallies[name].inconclusive,
                "violations": result.tallies[name].violations,
                **(_finding(result.findings[name], cases.get(name)) if name in result.findings else {}),
            }
            for name in result.requirements
        },
    }


def _finding(finding: Finding, case: str | None) -> dict[str, Any]:
    return {
        "found_in": finding.source,
        "found_after": finding.examples,
        "evidence": finding.violation.evidence,
        "story": tell(finding.program, finding.trace, finding.violation),
        "case": case,
    }


def write_json(path: Path, result: Result, cases: dict[str, str]) -> None:
    """Write a result as JSON."""
    path.write_text(json.dumps(as_json(result, cases), indent=1) + "\n", encoding="utf-8")


def write_junit(path: Path, result: Result) -> None:
    """Write a result as JUnit XML: one test case a requirement."""
    statuses = {name: result.status(name) for name in result.requirements}
    suite = ElementTree.Element(
        "testsuite",
        name=f"allranks {result.backend}",
        tests=str(len(statuses)),
        failures=str(sum(status == "fail" for status in statuses.values())),
        skipped=str(sum(status in ("not supported", "not run") for status in statuses.values())),
    )
    for name, status in statuses.items():
        case = ElementTree.SubElement(suite, "testcase", classname=f"allranks.{result.backend}", name=name)
        if status == "fail":
            finding = result.findings[name]
            failure = ElementTree.SubElement(case, "failure", message=finding.violation.evidence)
            failure.text = "\n".join(
                [*tell(finding.program, finding.trace, finding.violation), "", *lanes(finding.program, finding.trace)]
            )
        elif status != "pass":
            ElementTree.SubElement(case, "skipped", message=status)
    ElementTree.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)
