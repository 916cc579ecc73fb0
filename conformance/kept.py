"""Findings kept as case files, and the line that runs one again."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

from allranks.conformance.casefile import Case, dumps
from allranks.conformance.result import Finding, Ran
from allranks.conformance.settings import Settings


def keep(finding: Finding, directory: Path, settings: Settings) -> Path:
    """Write a finding as a case file, and give its path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{finding.requirement}-{finding.trace.backend}.json"
    case = Case(
        program=finding.program,
        title=finding.violation.evidence.splitlines()[0].removesuffix(":"),
        requirements=(finding.requirement,),
        machine=settings.machine.name,
    )
    path.write_text(dumps(case), encoding="utf-8")
    return path


def kept_at_once(settings: Settings, case_dir: Path | str) -> Callable[[Ran], None]:
    """Write what is found as case files, before anything else is done with it."""

    def progress(ran: Ran) -> None:
        for finding in (*ran.findings, ran.interruption, ran.differs):
            if finding is not None:
                keep(finding, Path(case_dir), settings)

    return progress


def replay_line(path: Path, settings: Settings) -> str:
    """Give the command that runs a case file again."""
    world = [] if settings.world == "threads" else ["--world", settings.world]
    if settings.driver != "sim":
        world += ["--driver", settings.driver]
    return shlex.join(["allranks", "replay", str(path), "--backend", settings.backend, *world])
