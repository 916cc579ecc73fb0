"""Findings kept as case files, and the line that runs one again."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

from allranks.conformance.casefile import Case, dumps
from allranks.conformance.result import Finding, Ran
from allranks.conformance.settings import Settings
from allranks.conformance.worlds.processes.world import DEADLINE_S
from allranks.conformance.worlds.threads import QUIET_TIMEOUT_S


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
    """Give the command that runs a case file again, in the same way."""
    line = ["allranks", "replay", str(path), "--backend", settings.backend]
    if settings.world == "threads":
        if settings.quiet_timeout_s != QUIET_TIMEOUT_S:
            line += ["--quiet-timeout", f"{settings.quiet_timeout_s:g}"]
        return shlex.join(line)
    line += ["--world", settings.world]
    if settings.driver != "sim":
        line += ["--driver", settings.driver]
    if settings.world == "mpi" and settings.launcher not in ("mpiexec", "none"):  # by hand it starts the ranks itself
        line += ["--launcher", settings.launcher]
    if settings.nodes > 1:
        line += ["--nodes", str(settings.nodes)]
    if settings.deadline_s != DEADLINE_S:
        line += ["--deadline", f"{settings.deadline_s:g}"]
    return shlex.join(line)
