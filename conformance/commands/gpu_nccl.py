"""NCCL under test on real GPUs, as ``make gpu-nccl`` runs it, with what it ran on written down.

Before anything else it is seen to that no multicast object can come to be, which could put GPUs that others share out
of service: all four variables that disable multicast have to be in force, and a first all_reduce of two ranks has to
say in NCCL's own log that NVLS is off. Only then `allranks check` is run.

Run by ``python -m``; no part of the command, for it is of use on one kind of machine only.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from allranks import __version__
from allranks.conformance.commands.options import Parser, positive
from allranks.conformance.worlds.hardware import DISABLING, check_gpus, kernel_module
from allranks.errors import UsageError

RANKS: Final = 2
FAMILIES: Final = ("RDV", "CACHE", "LIFE", "COLL")
_DEADLINE_S: Final = 30  # the first communicator of a process takes seconds
_PROBE_S: Final = 180.0
_COUNT: Final = 1 << 20

# One rank of the first all_reduce: rank, ranks, and a folder to meet in.
_PROBE: Final = f"""
import datetime, sys
import torch
from torch import distributed
rank, ranks = int(sys.argv[1]), int(sys.argv[2])
torch.cuda.set_device(rank)
store = distributed.FileStore(sys.argv[3] + "/store", ranks)
distributed.init_process_group("nccl", store=store, rank=rank, world_size=ranks, device_id=torch.device("cuda", rank),
                               timeout=datetime.timedelta(seconds=60))
tensor = torch.full(({_COUNT},), float(rank + 1), device="cuda")
distributed.all_reduce(tensor)
torch.cuda.synchronize()
wanted = float(ranks * (ranks + 1) // 2)
assert bool((tensor == wanted).all()), tensor
distributed.destroy_process_group()
print("probe: sum", wanted)
"""
# What NCCL's log says of NVLS. Source: NVIDIA/nccl v2.28, src/transport/nvls.cc, src/init.cc, src/misc/param.cc.
_DISABLED: Final = (
    re.compile(r"NCCL_NVLS_ENABLE set by environment to 0\b"),
    re.compile(r"NVLS multicast support is not available"),
)
_ENABLED: Final = (
    re.compile(r"NVLS multicast support is available"),
    re.compile(r"\b[1-9]\d* nvls channels"),
    re.compile(r"Connected NVLS tree"),
    re.compile(r"NCCL_NVLS_ENABLE set by environment to (?!0\b)"),
)


def check_disabled(environment: Mapping[str, str]) -> None:
    """Check that multicast is disabled in an environment, by the words that every library knows.

    Raises
    ------
    allranks.errors.UsageError
        If it is not.
    """
    missing = [f"{name}={value}" for name, value in DISABLING.items() if environment.get(name) != value]
    if missing:
        raise UsageError(f"not in force: {' '.join(missing)}; without them multicast objects could come to be")


def nvls_lines(log: str) -> list[str]:
    """Give the lines of one rank's log that say that NVLS is off.

    Raises
    ------
    allranks.errors.UsageError
        If none does, or some line says that it is on.
    """
    lines = [line.strip() for line in log.splitlines()]
    for line in lines:
        if any(mark.search(line) for mark in _ENABLED):
            raise UsageError(f"NCCL's log says that NVLS is in use: {line}")
    off = [line for line in lines if any(mark.search(line) for mark in _DISABLED)]
    if not off:
        raise UsageError("NCCL's log does not say that NVLS is off; nothing more is run")
    return off + [line for line in lines if "nvls channels" in line][:1]


def probe(log_folder: Path, command: Sequence[str] = (sys.executable, "-P", "-c", _PROBE)) -> list[list[str]]:
    """Run the first all_reduce, and give what each rank's log says of NVLS.

    Parameters
    ----------
    log_folder : Path
        Where the logs go.
    command : sequence of str
        What each rank runs; rank, ranks and a folder to meet in come after it.

    Raises
    ------
    allranks.errors.UsageError
        If it does not end well, or NVLS is not off.
    """
    environment = {**os.environ, "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,BOOTSTRAP,ENV,NVLS"}
    environment.pop("NCCL_DEBUG_FILE", None)
    environment.setdefault("NCCL_SOCKET_IFNAME", "lo")
    logs = [log_folder / f"nccl-probe-rank-{rank}.log" for rank in range(RANKS)]
    with tempfile.TemporaryDirectory() as meeting:
        running: list[subprocess.Popen[bytes]] = []
        try:
            for rank, log in enumerate(logs):
                with log.open("wb") as file:
                    arguments = [*command, str(rank), str(RANKS), meeting]
                    running.append(
                        subprocess.Popen(arguments, stdout=file, stderr=file, stdin=subprocess.DEVNULL, env=environment)
                    )
            until = time.monotonic() + _PROBE_S
            codes = [process.wait(max(0.1, until - time.monotonic())) for process in running]
        except subprocess.TimeoutExpired:
            raise UsageError(f"the first all_reduce does not end within {_PROBE_S:g} s; see {logs[0]}") from None
        finally:
            for process in running:
                process.kill()
                process.wait()
    said = [nvls_lines(log.read_text(encoding="utf-8", errors="replace")) for log in logs]
    for rank, code in enumerate(codes):
        if code:
            raise UsageError(f"the first all_reduce: rank {rank} ends with exit code {code}; see {logs[rank]}")
    return said


def check_command(programs: int, case_dir: Path, report: Path) -> list[str]:
    """Give the arguments of `allranks` that put NCCL under test."""
    return [
        "check",
        *FAMILIES,
        *("--backend", "torch-nccl", "--driver", "cuda", "--world", "processes", "--ranks", str(RANKS)),
        *("--programs", str(programs), "--deadline", str(_DEADLINE_S)),
        *("--case-dir", str(case_dir), "--json", str(report)),
    ]


def record(
    *,
    commit: str,
    gpus: str,
    programs: int,
    command: Sequence[str],
    exit_code: int,
    seconds: float,
    probed: Sequence[Sequence[str]],
    report: Mapping[str, Any],
) -> dict[str, Any]:
    """Give what is written down of a run."""
    shown = {name: found for name, found in report.items() if name not in ("schema", "draws", "allranks")}
    return {
        "what": f"torch.distributed with NCCL under test on real GPUs, {RANKS} ranks, {programs} Programs a family; "
        "multicast was disabled, and nothing here is about it.",
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "commit": commit,
        "allranks": __version__,
        "gpus": gpus,
        "driver": kernel_module() or "unknown",
        "python": platform.python_version(),
        "multicast": {"environment": dict(DISABLING), "nccl_log": [list(lines) for lines in probed]},
        "command": shlex.join(["allranks", *command]),
        "exit_code": exit_code,
        "seconds": round(seconds, 1),
        "result": shown,
    }


def run(argv: Sequence[str]) -> int:
    """Make sure that multicast is off, run the check, and write down what came of it.

    Raises
    ------
    allranks.errors.UsageError
        If something is missing, or multicast is not off.
    """
    parser = Parser(prog="gpu_nccl", description="NCCL under test on two real GPUs.")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where results and logs go")
    parser.add_argument("--commit", required=True, metavar="ID", help="of the sources that are installed")
    parser.add_argument("--programs", type=positive, default=20, metavar="N", help="a family (default 20)")
    arguments = parser.parse_args(list(argv))
    check_disabled(os.environ)
    if not arguments.commit.strip():
        raise UsageError("commit='': wants the id of the sources that are installed")
    found = check_gpus(RANKS)
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    probed = probe(out)
    report = out / "nccl-check.json"
    command = check_command(arguments.programs, out / "cases", report)
    started = time.monotonic()
    code = _check(command, out / "nccl-check.txt")
    written = record(
        commit=arguments.commit,
        gpus=found.described,
        programs=arguments.programs,
        command=[argument.replace(str(out), "OUT") for argument in command],
        exit_code=code,
        seconds=time.monotonic() - started,
        probed=probed,
        report=json.loads(report.read_text(encoding="utf-8")) if report.exists() else {},
    )
    (out / "nccl-gpus.json").write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    return code


def _check(command: Sequence[str], text: Path) -> int:
    """Run `allranks`; what it prints is shown, and kept."""
    start = "import sys; from allranks.cli import main; sys.exit(main())"
    with (
        text.open("wb") as kept,
        subprocess.Popen(
            [sys.executable, "-P", "-c", start, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            kept.write(line)
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
    return process.returncode


if __name__ == "__main__":
    try:
        sys.exit(run(sys.argv[1:]))
    except UsageError as error:
        sys.stderr.write(f"gpu_nccl: error: {error}\n")
        sys.exit(2)
