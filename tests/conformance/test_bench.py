"""``allranks bench detect`` and ``corpus``: what counts as found, and that a run goes on where it was stopped."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from allranks import cli
from allranks.conformance.backends.plain import PlainBackend
from allranks.conformance.cases import shipped
from allranks.conformance.commands.bench.corpus import Unit, collect, kills, summary
from allranks.conformance.commands.bench.detection import figures, searches
from allranks.conformance.corpus import MUTANTS
from allranks.conformance.draws import draw_programs
from allranks.conformance.program import Program

COUNT = 12


def test_a_mutant_counts_as_found_at_its_own_requirement_and_not_by_the_first_program() -> None:
    drawn: list[Program] = []
    draw_programs("CACHE", COUNT, lambda program, number: drawn.append(program), seed=0, max_ranks=4)
    made = MUTANTS["double-release"]
    (found,) = searches(made, 1, COUNT, 4)
    assert found.found
    assert 1 <= found.examples < len(drawn)
    # The same communicator, looked for at a requirement that it keeps: that it breaks another one is noise.
    elsewhere = dataclasses.replace(made, requirement="CACHE-5")
    (missed,) = searches(elsewhere, 1, COUNT, 4)
    assert not missed.found
    assert missed.examples == len(drawn) - 1
    assert missed.noise["CACHE-6"] >= 1
    row = figures(elsewhere, [missed])
    assert (row["missed"], row["examples"], row["median_examples"]) == ([0], [], None)


def test_a_right_communicator_is_not_found() -> None:
    right = dataclasses.replace(MUTANTS["double-release"], make=PlainBackend)
    assert [(one.found, dict(one.noise)) for one in searches(right, 2, COUNT, 3)] == [(False, {})] * 2


def test_failing_calls_are_enumerated_once_whatever_the_seeds() -> None:
    row = figures(MUTANTS["half-mapped"], searches(MUTANTS["half-mapped"], 5, COUNT, 4))
    assert (row["source"], row["seeds"], row["missed"]) == ("faults", 1, [])


def test_the_command_says_what_it_missed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "detect", "kept-handle", "--seeds", "1", "--programs", "20", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["missed"] == []
    assert told["worst_examples"] == told["rows"][0]["worst_examples"] >= 1
    assert cli.main(["bench", "detect", "kept-handle", "--seeds", "1", "--programs", "1"]) == 1
    assert "missed: ['kept-handle']" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (("detect", "no-such"), "mutant='no-such': one of "),
        (("detect", "--seeds", "0"), "a whole number from 1 on"),
        (("corpus", "here"), "--out"),
        (("no-such",), "no-such"),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[str, ...], rule: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", *arguments]) == 2
    error = capsys.readouterr().err
    assert rule in error
    assert len(error.splitlines()) == 1


def test_a_row_of_the_kill_matrix_has_requirement_and_evidence() -> None:
    cases = {name: shipped()[name] for name in ("life-connect-and-close", "nvls-two-buffers")}
    row = kills("closes-twice", cases)
    assert any(said.startswith("LIFE-7 rank 0") for said in row["life-connect-and-close"])
    assert row != kills("unmaps-twice", cases)
    assert kills("local-key", cases) == {}


def test_units_are_kept_and_used_again_unless_something_else_is_asked_for(tmp_path: Path) -> None:
    unit = Unit(kind="right", backend="plain", source="COLL", programs=2)
    rows = collect([unit], tmp_path, 1)
    assert (rows[unit]["programs"], rows[unit]["flagged"]) == (2, {})
    path = tmp_path / "right-plain-COLL.json"
    kept = json.loads(path.read_text(encoding="utf-8"))
    kept["row"]["programs"] = 7  # what a kept file says is believed
    path.write_text(json.dumps(kept), encoding="utf-8")
    assert collect([unit], tmp_path, 1)[unit]["programs"] == 7
    more = dataclasses.replace(unit, programs=3)
    assert collect([more], tmp_path, 1)[more]["programs"] == 3
    path.write_text("{", encoding="utf-8")  # cut off
    rows = collect([more], tmp_path, 1)
    assert rows[more]["programs"] == 3
    assert summary(rows)["right"] == {"plain": {"machine": "h100", "programs": 3, "flagged": {}}}


def test_nothing_is_left_of_a_run_that_is_killed_and_what_was_done_is_kept(tmp_path: Path) -> None:
    code = "import sys; from allranks.cli import main; sys.exit(main())"
    command = [sys.executable, "-P", "-c", code, "bench", "corpus", "kept", "--out", "figures.json", "--jobs", "2"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = next(line for line in process.stdout if line.startswith("1/"))
        process.kill()
        process.stdout.read()  # ends when nobody is left who could write
    name = said.split()[1].removesuffix(":")
    kept = json.loads((tmp_path / "kept" / f"{name}.json").read_text(encoding="utf-8"))
    assert kept["row"]["mutant"] == kept["key"]["backend"]
    assert not (tmp_path / "figures.json").exists()


HOST = "tests.conformance.worlds.host_communicator:HostBackend"


def test_where_the_time_of_a_world_of_processes_goes(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "engine", "--world", "processes", "--backend", HOST, "--programs", "1", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["programs_are"] for row in rows] == ["short", "usual"]
    for row in rows:
        assert row["programs"] == 4  # one a family, but for that of multicast
        parts = [row[f"{part}_ms"] for part in ("draw", "resolve", "give", "wait", "judge")]
        assert all(part > 0 for part in parts)
        assert row["open_ms"] > 0 < row["communicate_ms"]
        assert sum(parts) == pytest.approx(1e3 / row["programs_per_second"], rel=0.02)  # figures are rounded


def test_the_benchmark_of_a_job_that_is_there_already_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["bench", "engine", "--world", "mpi", "--launcher", "none", "--backend", HOST]
    assert cli.main(line) == 2
    assert "launcher='none': the benchmark starts its ranks itself" in capsys.readouterr().err
