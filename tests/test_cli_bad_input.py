"""Bad input: one clear line, exit code 2, and nothing run or written before."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest

from allranks import cli
from allranks.conformance import launchers
from allranks.conformance.casefile import dumps
from allranks.conformance.cases import shipped


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Give the one line that a wrong command is answered with."""
    assert cli.main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("allranks: error: ")
    return line.removeprefix("allranks: error: ")


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (
            ["check", "--backend", "nope"],
            "backend='nope': known are mpi, plain, refimpl, torch, torch-local-groups, torch-nccl; unusual: no-cache, ",
        ),
        (["check", "--backend", "no_such_module:Backend"], "backend='no_such_module:Backend': No module named"),
        (["check", "--backend", "allranks.conformance.backend:Nope"], "has no attribute 'Nope'"),
        (["check", "--backend", "tests.conformance.unruly:WithoutOpen"], "class WithoutOpen has no method open"),
        (["check", "--backend", "json:JSONDecoder"], "class JSONDecoder has no method capabilities"),
        (["check", "--backend", "tests.conformance.unruly:NeedsAnArgument"], "NeedsAnArgument() raises TypeError: "),
        (["check", "--backend", ":Class"], "backend=':Class': ValueError: Empty module name"),
        (
            ["check", "--backend", "plain+nothing"],
            "backend='plain+nothing': fault 'nothing': known are drop-call, delay",
        ),
        (["check", "--world", "mpi"], "world='mpi'"),
        (["check", "--launcher", "mpiexec"], "launcher='mpiexec': only for world mpi, and this is world threads"),
        (["check", "--nodes", "2"], "nodes=2: only for world mpi, and this is world threads"),
        (["init", "not-a-name"], "name='not-a-name': wants a module's name, such as mylib"),
        (["check", "--ranks", "0"], "argument --ranks: '0': a whole number from 1 on"),
        (["check", "--ranks", "-2"], "argument --ranks: '-2': a whole number from 1 on"),
        (["check", "--ranks", "9"], "ranks=9: the usual machine has 8 devices; a machine that is named"),
        (["check", "--ranks", "500", "--machine", "h100"], "argument --ranks: '500': at most 128 ranks"),
        (["check", "--machine", "abacus"], "machine='abacus': no such machine; known are h100"),
        (["check", "RDV-77"], "requirement='RDV-77': an id such as RDV-2, or one of the families"),
        (["check", "--effort", "some"], "argument --effort: invalid choice: 'some'"),
        (["check", "--effort", "ci", "--seed", "3"], "seed=3: effort ci draws the same Programs in every run"),
        (["check", "--seed", "x"], "argument --seed: 'x': a whole number from 0 on"),
        (["check", "--programs", "0"], "argument --programs: '0': a whole number from 1 on"),
        (["check", "--quiet-timeout", "nan"], "argument --quiet-timeout: 'nan': seconds, more than 0"),
        (["check", "--json", "no/such/folder.json"], "argument --json: 'no/such/folder.json': cannot be written: No"),
        (["check", "--junit", "."], "argument --junit: '.': cannot be written: Is a directory"),
        (["check", "--expected-failures", "none.toml"], "expected-failures='none.toml': cannot be read"),
        (["replay", "no-such-case"], "case='no-such-case': neither a file nor a shipped case"),
        (["replay", "nvls-two-buffers", "--machine", "abacus"], "machine='abacus': no such machine"),
        (["replay", "nvls-two-buffers", "--backend", "nope"], "backend='nope': known are"),
        (["cases", "no-such-case"], "name='no-such-case': shipped are"),
    ],
)
def test_a_wrong_argument(
    arguments: list[str], wanted: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert wanted in said(capsys, *arguments)
    assert list(tmp_path.iterdir()) == []


def test_a_machine_that_is_named_has_enough_devices(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "COLL-1", "--ranks", "9", "--machine", "h100", "--programs", "1", "--jobs", "1"]) == 0
    assert "up to 9 ranks" in capsys.readouterr().out


@pytest.mark.parametrize(("backend", "package"), [("mpi", "mpi4py"), ("torch", "torch")])
def test_a_library_that_is_missing(
    backend: str, package: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    line = said(capsys, "check", "COLL-1", "--backend", backend)
    assert line.startswith(f"backend={backend!r}: {package} is not installed (pip install ")


@pytest.mark.parametrize(
    ("launcher", "wanted"),
    [
        ("mpiexec", "launcher='mpiexec': none on PATH or beside "),
        ("srun", "launcher='srun': not found on PATH"),
        ("torchrun", "launcher='torchrun': torch is not installed"),
    ],
)
@pytest.mark.parametrize("command", [["check", "COLL-1"], ["replay", "cache-other-offset"]])
def test_a_launcher_that_is_missing(
    command: list[str],
    launcher: str,
    wanted: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launchers, "mpi_library", lambda: "MPICH Version: 4.0.2")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", f"{tmp_path}")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    host = ("--backend", "tests.conformance.worlds.host_communicator:HostBackend", "--world", "mpi")
    assert said(capsys, *command, *host, "--launcher", launcher).startswith(wanted)


def test_more_nodes_than_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    host = ("--backend", "tests.conformance.worlds.host_communicator:HostBackend", "--world", "mpi")
    line = said(capsys, "check", *host, "--ranks", "2", "--nodes", "3")
    assert line == "nodes=3: at most one for each of the 2 ranks"


def test_a_module_that_cannot_be_imported_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_backend.py").write_text("raise RuntimeError('no device')\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    line = said(capsys, "check", "--backend", "broken_backend:Backend")
    assert line == "backend='broken_backend:Backend': RuntimeError: no device"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere; run as another user")
def test_a_folder_that_cannot_be_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert "cannot be written" in said(capsys, "check", "--case-dir", "cases")
    tmp_path.chmod(0o700)


def test_a_file_that_is_there_is_kept_when_nothing_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text("earlier\n", encoding="utf-8")
    said(capsys, "check", "--json", "report.json", "--backend", "nope")
    assert (tmp_path / "report.json").read_text(encoding="utf-8") == "earlier\n"


CASE = dumps(shipped()["nvls-two-buffers"])


def edited(**changes: object) -> str:
    return json.dumps({**json.loads(CASE), **changes})


def program(**changes: object) -> str:
    return edited(program={**json.loads(CASE)["program"], **changes})


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", "line 1 column 1: not JSON, or cut off"),
        (CASE[: len(CASE) // 2], "not JSON, or cut off"),
        ("[]", "no case file (allranks_case is missing)"),
        ('{"steps": []}', "no case file (allranks_case is missing)"),
        (edited(allranks_case=999), "allranks_case=999: this version of allranks reads 1"),
        (edited(colour="red"), "case.colour='red': Case has no such field"),
        (edited(program=None), "case.program=None: wants the fields of Program"),
        (edited(machine="abacus"), "machine='abacus': no such machine"),
        (program(rank_count=0), "program.rank_count=0: from 1 to 1024"),
        (program(rank_count="two"), "case.program.rank_count='two': wants int"),
        (program(rank_count=True), "case.program.rank_count=True: wants int"),
        (program(rank_count=2000), "program.rank_count=2000: from 1 to 1024"),
        (program(steps=[{"step": "Explode"}]), "case.program.steps[0].step='Explode': one of "),
        (
            program(steps=[{"step": "Allocate", "size_bytes": -1}]),
            "case.program.steps[0].size_bytes=-1: is not negative",
        ),
        (program(steps=[{"step": "Allocate", "size_bytes": 0}]), "sizes are at least 1 byte"),
        (program(steps=[{"step": "Allocate", "size_bytes": 1e3}]), "wants int"),
        (program(steps=[{"step": "Allocate", "size_bytes": 10**30}]), "is at most 9223372036854775807"),
        (program(steps=[{"step": "Repeat", "times": 10**12, "steps": [{"step": "CloseGroup"}]}]), "steps in all"),
        (program(steps={"step": "Drop"}), "wants a list"),
        (program(shift_bytes={"default": 0, "except": [1]}), "wants ranks and values"),
        (program(shift_bytes={"default": 0, "except": {"x": 1}}), "keys are ranks"),
        (program(schedule=[[0]]), "wants 2 items"),
        (CASE.replace('"rank_count": 4', '"rank_count": ' + "4" * 5000), "case.json: Exceeds the limit"),
    ],
)
def test_a_wrong_case_file(text: str, wanted: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "case.json").write_text(text, encoding="utf-8")
    assert wanted in said(capsys, "replay", "case.json")


def test_a_case_file_that_is_no_text(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "case.json").write_bytes(b"\xff\xfe\x00")
    assert "case.json: cannot be read" in said(capsys, "replay", "case.json")


def test_a_folder_instead_of_a_case_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "cannot be read" in said(capsys, "replay", str(tmp_path))


def test_deeply_nested_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "case.json").write_text("[" * 100_000, encoding="utf-8")
    assert "case.json: " in said(capsys, "replay", "case.json")
