"""``allranks bench corpus``: the evidence that the suite finds every mutant, and flags no right communicator.

Three kinds of units, each kept as a file as soon as it is done, so that a run goes on where it was stopped: how soon a
mutant is found; what the shipped cases show of it (its row in the kill matrix); and the Programs of one source on a
right communicator, judged by every check. A file is used again only if the command and the code are the same.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import allranks
from allranks.conformance.casefile import Case
from allranks.conformance.cases import shipped
from allranks.conformance.checks import judge
from allranks.conformance.commands.bench.detection import figures, searches
from allranks.conformance.commands.bench.shown import environment
from allranks.conformance.commands.options import Parser, folder, machine_for, positive, writable
from allranks.conformance.corpus import MUTANTS, VARIANTS
from allranks.conformance.isolated import run_jobs
from allranks.conformance.kept import keep
from allranks.conformance.settings import DEFAULT_MACHINE, DEFAULT_RANKS, EFFORT, settings_of
from allranks.conformance.worlds.threads import ThreadsWorld
from allranks.processes.ties import end_with_parent

# What is judged beside the variants.
_RIGHT = ("refimpl", "plain")
_KINDS = ("detect", "kills", "right")
_MOST_RANKS = max(case.program.rank_count for case in shipped().values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One thing to be measured: `kind` is "detect", "kills" or "right"."""

    kind: str
    backend: str
    source: str = ""
    seeds: int = 0
    programs: int = 0

    @property
    def name(self) -> str:
        """What its file is called."""
        return "-".join(filter(None, (self.kind, self.backend, self.source)))


def units(seeds: int, programs: int) -> Iterator[Unit]:
    """Give everything there is to measure; what shows a fault of ours soonest comes first."""
    for name in MUTANTS:
        yield Unit(kind="detect", backend=name, seeds=seeds, programs=EFFORT["standard"])
    for name in MUTANTS:
        yield Unit(kind="kills", backend=name)
    for name in (*_RIGHT, *VARIANTS):
        for source in settings_of(backend=name).sources:
            yield Unit(kind="right", backend=name, source=source, programs=programs)


def measure(unit: Unit, case_dir: Path) -> dict[str, Any]:
    """Measure one unit."""
    started = time.monotonic()
    if unit.kind == "detect":
        made = MUTANTS[unit.backend]
        row = figures(made, searches(made, unit.seeds, unit.programs, DEFAULT_RANKS))
    elif unit.kind == "kills":
        row = {"mutant": unit.backend, "cases": kills(unit.backend, shipped())}
    else:
        row = _right(unit, case_dir)
    return {**row, "seconds": round(time.monotonic() - started, 1)}


def kills(name: str, cases: Mapping[str, Case]) -> dict[str, list[str]]:
    """Give a mutant's row in the kill matrix: all that the suite says of it, case by case."""
    made = MUTANTS[name]
    row: dict[str, list[str]] = {}
    with ThreadsWorld(made.make(), machine_for(made.machine, _MOST_RANKS)) as world:
        for case, content in cases.items():
            outcomes = judge(content.program, world.run(content.program))
            said = [
                f"{violation.requirement} rank {violation.rank} step {violation.step}: {violation.evidence}"
                for outcome in outcomes.values()
                for violation in outcome.violations
            ]
            if said:
                row[case] = said
    return row


def _right(unit: Unit, case_dir: Path) -> dict[str, Any]:
    """Run the Programs of a source on a right communicator, in processes of their own."""
    machine = VARIANTS[unit.backend].machine if unit.backend in VARIANTS else DEFAULT_MACHINE
    settings = settings_of(backend=unit.backend, machine=machine, programs=unit.programs)
    ((result, _),) = run_jobs([settings.job(unit.source)])
    findings = [*result.findings.values(), *result.interruptions[:1], *result.nondeterministic[:1]]
    return {
        "backend": unit.backend,
        "source": unit.source,
        "machine": machine,
        "programs": result.programs,
        "evaluated": sum(tally.evaluated for tally in result.tallies.values()),
        "flagged": {
            finding.requirement: {
                "evidence": finding.violation.evidence,
                "case": str(keep(finding, case_dir / unit.source, settings)),
            }
            for finding in findings
        },
        "given_up": dict(result.stopped),
        "draws": result.draws.get(unit.source, ""),
    }


def code_digest() -> str:
    """Give a digest of the installed package: figures of other code are no figures of this one."""
    digest = hashlib.sha256()
    root = Path(allranks.__file__).parent
    for place, folders, names in os.walk(root, followlinks=True):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            path = Path(place, name)
            digest.update(str(path.relative_to(root)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _kept(path: Path, key: dict[str, Any]) -> dict[str, Any] | None:
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return kept["row"] if isinstance(kept, dict) and kept.get("key") == key else None


def collect(wanted: list[Unit], place: Path, jobs: int) -> dict[Unit, dict[str, Any]]:
    """Measure what is not in the folder yet, several units at a time, and give all."""
    place.mkdir(parents=True, exist_ok=True)
    code = code_digest()
    rows: dict[Unit, dict[str, Any]] = {}
    for unit in wanted:
        row = _kept(place / f"{unit.name}.json", {**asdict(unit), "code": code})
        if row is not None:
            rows[unit] = row
    missing = [unit for unit in wanted if unit not in rows]
    sys.stdout.write(f"{len(rows)} of {len(wanted)} units are done already\n")
    spawn = multiprocessing.get_context("spawn")
    # A pool's process waits for work for ever when whoever gives it was killed.
    with ProcessPoolExecutor(jobs, mp_context=spawn, initializer=end_with_parent, initargs=(os.getpid(),)) as pool:
        running = {pool.submit(measure, unit, place / "cases"): unit for unit in missing}
        try:
            for ready in as_completed(running):
                unit = running[ready]
                row = rows[unit] = ready.result()
                path = place / f"{unit.name}.json"
                part = path.with_suffix(".part")
                part.write_text(json.dumps({"key": {**asdict(unit), "code": code}, "row": row}), encoding="utf-8")
                part.replace(path)
                sys.stdout.write(f"{len(rows)}/{len(wanted)} {unit.name}: {row['seconds']} s\n")
                sys.stdout.flush()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    return {unit: rows[unit] for unit in wanted}


def summary(rows: dict[Unit, dict[str, Any]]) -> dict[str, Any]:
    """Give what the goals are about, and the figures that it comes from."""
    detected, matrix, right = ([row for unit, row in rows.items() if unit.kind == kind] for kind in _KINDS)
    found = [row for row in detected if row["examples"] and not row["missed"]]
    said = [json.dumps(row["cases"], sort_keys=True) for row in matrix]
    alike = sorted(row["mutant"] for row, text in zip(matrix, said, strict=True) if said.count(text) > 1)
    backends: dict[str, dict[str, Any]] = {}
    for row in right:
        total = backends.setdefault(row["backend"], {"machine": row["machine"], "programs": 0, "flagged": {}})
        total["programs"] += row["programs"]
        total["flagged"].update(row["flagged"])
    return {
        "recall": f"{len(found)} of {len(detected)}",
        "missed": {row["mutant"]: row["missed"] for row in detected if row["missed"]},
        "median_examples": statistics.median(row["median_examples"] for row in found) if found else None,
        "worst_examples": max((row["worst_examples"] for row in found), default=None),
        "alike_in_the_kill_matrix": alike,
        "silent_in_the_kill_matrix": [row["mutant"] for row in matrix if not row["cases"]],
        "right": backends,
        "detection": detected,
        "kill_matrix": {
            row["mutant"]: {
                case: sorted({one.partition(" ")[0] for one in told}) for case, told in row["cases"].items()
            }
            for row in matrix
        },
        "right_by_source": right,
    }


def _requirements(cases: dict[str, list[str]]) -> dict[str, list[str]]:
    return {case: sorted({said.partition(" ")[0] for said in told}) for case, told in cases.items()}


def corpus(argv: list[str]) -> int:
    """Measure the corpus; the exit code is 1 if a mutant is missed or alike another, or a right one is flagged."""
    parser = Parser(prog="allranks bench corpus", description="Every mutant found, no right communicator flagged.")
    parser.add_argument("folder", type=folder, metavar="FOLDER", help="where units are kept; goes on where it stopped")
    parser.add_argument("--out", type=writable, required=True, metavar="FILE", help="write the figures as JSON")
    parser.add_argument("--jobs", type=positive, default=1, metavar="N", help="units at a time (default 1)")
    parser.add_argument("--seeds", type=positive, default=10, metavar="N", help="seeds a mutant (default 10)")
    parser.add_argument(
        "--programs",
        type=positive,
        default=EFFORT["deep"],
        metavar="N",
        help=f"Programs a family on each right communicator (default {EFFORT['deep']})",
    )
    parser.add_argument("--commit", default="", metavar="TEXT", help="what to note as the commit")
    arguments = parser.parse_args(argv)
    rows = collect(list(units(arguments.seeds, arguments.programs)), arguments.folder, arguments.jobs)
    told = summary(rows)
    head = {
        "what": "How soon Programs find each mutant, what cases show of it, what is flagged of right communicators.",
        "date": time.strftime("%Y-%m-%d"),
        "commit": arguments.commit,
        "command": f"allranks bench corpus FOLDER --seeds {arguments.seeds} --programs {arguments.programs}",
        **environment(),
    }
    arguments.out.write_text(json.dumps({**head, **told}, indent=1) + "\n", encoding="utf-8")
    flagged = sorted(name for name, one in told["right"].items() if one["flagged"])
    sys.stdout.write(
        f"found {told['recall']}, median {told['median_examples']}, worst {told['worst_examples']}; "
        f"alike: {', '.join(told['alike_in_the_kill_matrix']) or 'none'}; "
        f"right ones flagged: {', '.join(flagged) or 'none'}\n"
    )
    wrong = told["missed"] or told["alike_in_the_kill_matrix"] or told["silent_in_the_kill_matrix"] or flagged
    return 1 if wrong else 0
