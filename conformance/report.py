"""What is said of a check: the matrix on the terminal, JSON, JUnit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from allranks import __version__
from allranks.conformance.determinism import DETERMINISM
from allranks.conformance.expected import NOTHING_EXPECTED, Expected
from allranks.conformance.requirements import REQUIREMENTS
from allranks.conformance.result import Finding, Result
from allranks.conformance.story import lanes, left_behind, tell

SCHEMA: Final = 1
_STYLES: Final = {"pass": "green", "fail": "bold red", "not supported": "yellow", "not run": "magenta"}


def exit_code(result: Result, expected: Expected = NOTHING_EXPECTED, *, strict: bool = False) -> int:
    """Give 1 for a violation of a *must* or a stale expectation, 3 if something was not evaluated, else 0.

    Strictly, the violation of a *should* counts, too.
    """
    if result.nondeterministic or expected.stale(result):
        return 1
    failing = ("must", "should") if strict else ("must",)
    broken = {*result.findings, *(finding.requirement for finding in result.interruptions)}
    if any(REQUIREMENTS[name].level in failing and not expected.reason(name) for name in broken):
        return 1
    statuses = [result.status(name) for name in result.requirements]
    return 3 if "not run" in statuses or set(statuses) <= {"not supported"} else 0


def folds(result: Result) -> dict[str, list[str]]:
    """Give the requirements that are not supported, by each of those of its family, if there are several."""
    by_family: dict[str, list[str]] = {}
    for name in result.requirements:
        if result.status(name) == "not supported":
            by_family.setdefault(REQUIREMENTS[name].family, []).append(name)
    return {name: names for names in by_family.values() if len(names) > 1 for name in names}


def _how(result: Result, name: str, expected: Expected) -> str:
    """Say what goes with a failure in the matrix."""
    finding = result.findings.get(name)
    known = [" (expected)"] if finding is not None and expected.reason(name) else []
    once = [" (not seen again)"] if finding is not None and finding.vanished else []
    return "".join([*known, *once])


def print_matrix(
    console: Console, result: Result, expected: Expected = NOTHING_EXPECTED, *, verbose: bool = False
) -> None:
    """Print requirement by requirement: what came of it, and how much was looked at.

    What is not supported is one line for each family, unless all is to be said.
    """
    table = Table(title=f"{result.backend} on {result.machine}, up to {result.rank_count} ranks, seed {result.seed}")
    table.add_column("requirement")
    table.add_column("result")
    table.add_column("evaluated", justify="right")
    table.add_column("inconclusive", justify="right")
    table.add_column("what it says", overflow="fold")
    folded = {} if verbose else folds(result)
    for name in result.requirements:
        if name in folded:
            names = folded[name]
            if name == names[0]:
                family, count = REQUIREMENTS[name].family, len(names)
                said = f"[{_STYLES['not supported']}]not supported[/]"
                table.add_row(f"{family}: {count}", said, "", "", ", ".join(names))
            continue
        tally, status = result.tallies[name], result.status(name)
        table.add_row(
            name,
            f"[{_STYLES[status]}]{status}[/]" + _how(result, name, expected),
            str(tally.evaluated),
            str(tally.inconclusive),
            REQUIREMENTS[name].statement + ("" if REQUIREMENTS[name].checks else " (No check yet.)"),
        )
    console.print(table)
    console.print(f"{result.programs} Programs run, {len(result.findings)} requirements broken.")
    if vanished := [name for name, finding in result.findings.items() if finding.vanished]:
        line = f"Not seen again, and kept all the same: {', '.join(vanished)}. The run fails; replay the case files."
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    if result.nondeterministic:
        console.print(f"[bold red]Uncontrolled nondeterminism:[/] {differing(result)}.")
    for line in [*versions(result), *narrowed(result)]:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    for line in [*incomplete(result), *expected.stale(result).values()]:
        console.print(f"[bold red]{escape(line)}[/]", highlight=False, soft_wrap=True)


def differing(result: Result) -> str:
    """Say how many Programs gave another Trace when they were run again."""
    count = len(result.nondeterministic)
    return f"{count} {'Program' if count == 1 else 'Programs'} gave another Trace when run again"


def versions(result: Result) -> list[str]:
    """Give a line of what was under test, if the backend says it."""
    return (
        [f"Under test: {', '.join(f'{name} {said}' for name, said in result.facts.items())}."] if result.facts else []
    )


def narrowed(result: Result) -> list[str]:
    """Give a line for each narrowing of the library's contract that has changed what was run."""
    return [
        f"{one.requirement}, as far as the contract goes: {one.reason} ({one.source}); {steps} steps were changed so, "
        "which --strict leaves as they are."
        for one, steps in result.narrowed.items()
    ]


def incomplete(result: Result) -> list[str]:
    """Give a line for what never ended, and for what was not run."""
    lines = []
    if result.interruptions:
        what = result.interruptions[0].violation.evidence.splitlines()[0].removesuffix(":")
        lines.append(f"{len(result.interruptions)} Programs never came to their end; the first: {what}")
    lines += [
        f"{source}: given up after {count} Programs, for too many of them did not end, or took too long to fail"
        for source, count in result.stopped.items()
    ]
    if unseen := [name for name in result.requirements if result.status(name) == "not run"]:
        lines.append(f"Nothing was evaluated for {', '.join(unseen)}: the run is incomplete")
    return lines


def print_finding(console: Console, finding: Finding, replay: str) -> None:
    """Print a failure: the story, and the lanes."""
    for line in ["", *describe(finding, replay)]:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def describe(finding: Finding, replay: str = "") -> list[str]:
    """Give a failure as lines: the story, the lanes, and last the command that shows it again."""
    story = "\n".join(tell(finding.program, finding.trace, finding.violation)).splitlines()
    drawn = [f"    {line}".rstrip() for line in lanes(finding.program, finding.trace)]
    seen = []
    if finding.shown is not None:
        times, of = finding.shown
        seen = [f"Seen again {times} of {of} times in fresh workers."]
        if finding.vanished:
            seen = [f"Not seen again in {of} runs in fresh workers: this was seen once, and fails the run."]
    left = left_behind(finding.trace)
    return [*story, *seen, "", *drawn, *(["", *left] if left else []), *(["", f"Again: {replay}"] if replay else [])]


def as_json(result: Result, cases: dict[str, str], expected: Expected = NOTHING_EXPECTED) -> dict[str, Any]:
    """Give a result as plain data; `cases` are the case files of the findings, `draws` digests of the Programs."""
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
        **(
            {DETERMINISM: _finding(result.nondeterministic[0], cases.get(DETERMINISM))}
            if result.nondeterministic
            else {}
        ),
        "interrupted": len(result.interruptions),
        "given_up": dict(result.stopped),
        "draws": dict(result.draws),
        "versions": dict(result.facts),
        "narrowings": [
            {"requirement": one.requirement, "reason": one.reason, "source": one.source, "steps": steps}
            for one, steps in result.narrowed.items()
        ],
        "requirements": {
            name: {
                "status": result.status(name),
                "level": REQUIREMENTS[name].level,
                "evaluated": result.tallies[name].evaluated,
                "inconclusive": result.tallies[name].inconclusive,
                "violations": result.tallies[name].violations,
                **({"expected": expected.reason(name)} if expected.reason(name) else {}),
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
        **({"shown": finding.shown[0], "run_again": finding.shown[1]} if finding.shown else {}),
    }


def write_json(path: Path, result: Result, cases: dict[str, str], expected: Expected) -> None:
    """Write a result as JSON."""
    path.write_text(json.dumps(as_json(result, cases, expected), indent=1) + "\n", encoding="utf-8")


def write_junit(path: Path, result: Result, expected: Expected) -> None:
    """Write a result as JUnit XML: one test case a requirement."""
    statuses = {name: result.status(name) for name in result.requirements}
    reasons = {name: expected.reason(name) for name, status in statuses.items() if status == "fail"}
    stale = expected.stale(result)
    suite = ElementTree.Element(
        "testsuite",
        name=f"allranks {result.backend}",
        tests=str(len(statuses) + bool(result.nondeterministic)),
        failures=str(sum(not reason for reason in reasons.values()) + len(stale) + bool(result.nondeterministic)),
        skipped=str(
            sum(status in ("not supported", "not run") or bool(reasons.get(name)) for name, status in statuses.items())
        ),
    )
    for name, status in statuses.items():
        case = ElementTree.SubElement(suite, "testcase", classname=f"allranks.{result.backend}", name=name)
        if reasons.get(name):
            ElementTree.SubElement(case, "skipped", message=f"expected failure: {reasons[name]}")
        elif status == "fail":
            finding = result.findings[name]
            failure = ElementTree.SubElement(case, "failure", message=finding.violation.evidence)
            failure.text = "\n".join(describe(finding))
        elif status != "pass":
            ElementTree.SubElement(case, "skipped", message=status)
        if name in stale:
            ElementTree.SubElement(case, "failure", message=stale[name])
    for finding in result.nondeterministic[:1]:
        case = ElementTree.SubElement(suite, "testcase", classname=f"allranks.{result.backend}", name=DETERMINISM)
        failure = ElementTree.SubElement(case, "failure", message=finding.violation.evidence)
        failure.text = "\n".join(describe(finding))
    ElementTree.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)
