"""What `make gpu-nccl` does, as far as it needs no GPU: what it refuses, how it reads NCCL's log, what it writes down.

Not verified: what NCCL really writes.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from allranks.conformance.commands import gpu_nccl
from allranks.conformance.commands.check import _parser
from allranks.conformance.worlds.hardware import DISABLING
from allranks.errors import UsageError

PREFIX = "host:4242:4300 [0] NCCL INFO "
SET = f"{PREFIX}NCCL_NVLS_ENABLE set by environment to 0."
CHANNELS = f"{PREFIX}24 coll channels, 24 collnet channels, 0 nvls channels, 32 p2p channels, 32 p2p channels per peer"


@pytest.mark.parametrize("name", DISABLING)
@pytest.mark.parametrize("value", [None, "", "2", "false"])
def test_it_refuses_unless_all_four_are_in_force(name: str, value: str | None) -> None:
    environment = {**DISABLING, **({} if value is None else {name: value})}
    if value is None:
        del environment[name]
    with pytest.raises(UsageError, match=f"^not in force: {name}={DISABLING[name]}; without them"):
        gpu_nccl.check_disabled(environment)


def test_with_all_four_it_goes_on() -> None:
    gpu_nccl.check_disabled(DISABLING)


def test_it_refuses_before_anything_is_asked_or_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in DISABLING:
        monkeypatch.delenv(name, raising=False)  # no driver is loaded in this process
    out = tmp_path / "out"
    with pytest.raises(UsageError, match="not in force: NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 "):
        gpu_nccl.run(["--out", str(out), "--commit", "abc"])
    assert not out.exists()


@pytest.mark.parametrize(
    "log",
    [
        f"{SET}\n{CHANNELS}\n",
        f"noise\n{SET}\n",
        f"{PREFIX}NVLS multicast support is not available on dev 0\n{CHANNELS}",
    ],
)
def test_a_log_that_says_that_it_is_off(log: str) -> None:
    assert gpu_nccl.nvls_lines(log)


@pytest.mark.parametrize(
    "line",
    [
        f"{PREFIX}NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 16)",
        CHANNELS.replace("0 nvls", "16 nvls"),
        f"{PREFIX}Connected NVLS tree",
        f"{PREFIX}NCCL_NVLS_ENABLE set by environment to 2.",
    ],
)
def test_a_log_that_says_that_it_is_on(line: str) -> None:
    with pytest.raises(UsageError, match=r"^NCCL's log says that NVLS is in use: host:4242"):
        gpu_nccl.nvls_lines(f"{SET}\n{line}\n")


@pytest.mark.parametrize("log", ["", CHANNELS, "NCCL version 2.28.9+cuda13.0"])
def test_a_log_that_does_not_say(log: str) -> None:
    with pytest.raises(UsageError, match="does not say that NVLS is off"):
        gpu_nccl.nvls_lines(log)


def stand_in(script: str) -> list[str]:
    """Give a command that stands for a rank of the probe."""
    return [sys.executable, "-c", f"import os, sys; {script}"]


def test_every_rank_of_the_probe_has_to_say_so(tmp_path: Path) -> None:
    told = "print(os.environ['NCCL_DEBUG'], sys.argv[1:3], os.path.isdir(sys.argv[3]))"
    lines = gpu_nccl.probe(tmp_path, stand_in(f"{told}; print({SET!r}); print({CHANNELS!r})"))
    assert lines == [[SET, CHANNELS], [SET, CHANNELS]]
    logs = [(tmp_path / f"nccl-probe-rank-{rank}.log").read_text() for rank in range(2)]
    assert [log.splitlines()[0] for log in logs] == [f"INFO ['{rank}', '2'] True" for rank in range(2)]
    with pytest.raises(UsageError, match="does not say that NVLS is off"):
        gpu_nccl.probe(tmp_path, stand_in(f"print({SET!r}) if sys.argv[1] == '0' else None"))


def test_a_probe_that_fails_is_told_with_its_log(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"rank 1 ends with exit code 3; see .*nccl-probe-rank-1\.log"):
        gpu_nccl.probe(tmp_path, stand_in(f"print({SET!r}); sys.exit(3 * int(sys.argv[1]))"))


def test_a_probe_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_nccl, "_PROBE_S", 0.5)
    pids = f"open({str(tmp_path)!r} + '/pid' + sys.argv[1], 'w').write(str(os.getpid()))"
    with pytest.raises(UsageError, match=r"does not end within 0\.5 s"):
        gpu_nccl.probe(tmp_path, stand_in(f"{pids}; sys.stdin.close(); __import__('signal').pause()"))
    for file in tmp_path.glob("pid*"):
        with pytest.raises(ProcessLookupError):
            os.kill(int(file.read_text()), 0)


def test_the_probe_is_python() -> None:
    compile(gpu_nccl._PROBE, "probe", "exec")


def test_the_command_is_one_that_check_takes(tmp_path: Path) -> None:
    command = gpu_nccl.check_command(7, tmp_path / "cases", tmp_path / "report.json")
    assert command[0] == "check"
    read = _parser().parse_args(command[1:])
    assert read.requirement == ["RDV", "CACHE", "LIFE", "COLL"]
    assert (read.backend, read.driver, read.world, read.ranks) == ("torch-nccl", "cuda", "processes", 2)
    assert (read.programs, read.deadline) == (7, 30)


def test_what_is_written_down() -> None:
    written = gpu_nccl.record(
        commit="abc",
        gpus="2 x NVIDIA H200",
        programs=7,
        command=["check", "COLL"],
        exit_code=0,
        seconds=12.34,
        probed=[[SET], [SET]],
        report={"schema": 1, "draws": {}, "versions": {"library": "PyTorch 2.11.0"}, "requirements": {}},
    )
    assert json.loads(json.dumps(written)) == written
    assert (written["commit"], written["gpus"], written["seconds"]) == ("abc", "2 x NVIDIA H200", 12.3)
    assert written["command"] == "allranks check COLL"
    assert written["multicast"] == {"environment": DISABLING, "nccl_log": [[SET], [SET]]}
    assert written["result"] == {"versions": {"library": "PyTorch 2.11.0"}, "requirements": {}}
    assert len(written["date"].split("-")) == 3
