"""``allranks sim``: other people's programs on a simulated node.

``allranks sim run -n 4 -- COMMAND`` starts COMMAND as 4 processes whose ``libcuda.so.1`` is the simulated driver, and
says at the end what each of them left, did wrong, or waited for.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Final

from allranks.errors import UsageError, WorldError
from allranks.options import Parser, positive, seconds, writable
from allranks.sim.broker import FAULTS_VARIABLE, Broker, client_folder
from allranks.sim.findings import as_json, findings_of, lines
from allranks.sim.job import Job
from allranks.sim.machine_file import machine_of

_MOST: Final = 1024
_INTERRUPTED: Final = 130


def _parser() -> Parser:
    parser = Parser(prog="allranks sim run", description="Run a program on a simulated node, as several processes.")
    parser.add_argument("-n", "--processes", type=positive, default=1, metavar="N", help="how many (default 1)")
    parser.add_argument("--devices", type=positive, metavar="D", help="GPUs of the node (default: 8, or one a process)")
    parser.add_argument("--machine", default="h100", metavar="NAME|FILE", help="the simulated machine (default h100)")
    parser.add_argument("--json", type=writable, metavar="FILE", help="write the report as JSON")
    parser.add_argument("--timeout", type=seconds, metavar="S", help="seconds after which the job is ended")
    parser.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar="RANK:CALL:K=ACTION",
        help="the K-th CALL (from 0) of a rank fails with an error of cuda.h, or: delay:MS, kill, kill-after; * for "
        f"any rank or call; again for more (default: ${FAULTS_VARIABLE}, separated by semicolons)",
    )
    parser.add_argument("command", nargs="+", metavar="-- COMMAND", help="the program, and its arguments")
    return parser


def run(argv: list[str]) -> int:
    """Run other people's programs on a simulated node."""
    if argv[:1] != ["run"]:
        what = "there is one subcommand: allranks sim run [OPTION...] -- COMMAND"
        if argv[:1] in (["-h"], ["--help"]):
            sys.stdout.write(f"{what}\n")
            return 0
        raise UsageError(f"sim {argv[0] if argv else ''}: {what}")
    options, command = _split(argv[1:])
    arguments = _parser().parse_args([*options, "--", *command] if command else options)
    size: int = arguments.processes
    if size > _MOST:
        raise UsageError(f"processes={size}: at most {_MOST}")
    if shutil.which(command[0]) is None:
        raise UsageError(f"command={command[0]!r}: no such program")
    if not (client_folder() / "libcuda.so.1").is_file():
        raise UsageError(f"{client_folder()}: the client library is missing; install allranks anew")
    machine = machine_of(arguments.machine, devices=arguments.devices)
    if arguments.devices is None and machine.device_count < size <= 128 and not Path(arguments.machine).suffix:
        machine = machine_of(arguments.machine, devices=size)
    faults = arguments.fault or list(filter(None, os.environ.get(FAULTS_VARIABLE, "").split(";")))
    for fault in faults:
        rank = fault.partition(":")[0]
        if rank.isdecimal() and int(rank) >= size:
            raise UsageError(f"fault={fault}: a rank below {size}")
    with Broker(machine, faults=faults) as broker:
        return _run(broker, command, size, arguments.timeout, arguments.json)


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    """Part the options from the command: at ``--``, which is needed."""
    if "--" not in argv:
        if "-h" in argv or "--help" in argv:
            return argv, []
        raise UsageError("sim run: the command comes after --: allranks sim run -n 4 -- COMMAND")
    place = argv.index("--")
    if not argv[place + 1 :]:
        raise UsageError("sim run: no command after --")
    return argv[:place], argv[place + 1 :]


def _run(broker: Broker, command: list[str], size: int, timeout_s: float | None, file: Path | None) -> int:
    job = Job(broker, command, size)
    interrupted = False
    try:
        try:
            ended = job.run(timeout_s)
        except KeyboardInterrupt:
            interrupted = True
            job.end("interrupted")
            ended = job.run()
    except BaseException:
        job.close()
        raise
    broker.stop()
    report = broker.report()
    if report["broken"] is not None:
        raise WorldError(f"the node's books do not agree: {report['broken']}")
    found = findings_of(ended, report)
    sys.stdout.flush()
    sys.stderr.write("".join(f"allranks: {line}\n" for line in lines(ended, report, found)))
    if file is not None:
        file.write_text(json.dumps(as_json(ended, report, found, command), indent=1) + "\n", encoding="utf-8")
    if interrupted:
        return _INTERRUPTED
    return 1 if found else 0
