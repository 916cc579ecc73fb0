"""Checking in world `processes`: what is found is kept at once, seen again, reduced, and told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from allranks import cli
from allranks.conformance import ConformanceError, run_conformance
from allranks.conformance import program as p
from allranks.conformance.casefile import Case, dumps, load
from allranks.conformance.cases import shipped
from allranks.conformance.over_processes import ProcessesEngine
from allranks.conformance.program import Operand, Program, Region
from allranks.conformance.worlds.processes.native_stacks import tool

HOST = "tests.conformance.worlds.host_communicator:HostBackend"
UNRULY = "tests.conformance.worlds.host_unruly"
REGION = Operand(Region())


@pytest.fixture(autouse=True)
def _few_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a shipped case and one with collectives before what is generated, and not all that are shipped."""
    steps = (
        p.Allocate(size_bytes=4096),
        p.Allocate(size_bytes=4096),
        p.AllReduce(send=REGION, receive=Operand(Region(buffer=1)), count=8),
        p.AllGather(send=REGION, receive=Operand(Region(buffer=1)), count=8),
        p.Free(),
    )
    few = dict(list(shipped().items())[:1]) | {"collectives": Case(program=Program(rank_count=2, steps=steps))}
    monkeypatch.setattr("allranks.conformance.over_processes.shipped", lambda: few)


def checked(name: str, tmp_path: Path, *more: str) -> tuple[int, dict[str, dict[str, object]]]:
    """Run ``allranks check``; gives its exit code, and what it says of each requirement."""
    out = tmp_path / "result.json"
    backend = name if ":" in name else f"{UNRULY}:{name}"
    arguments = ["check", "--world", "processes", "--backend", backend, "--ranks", "2", "--programs", "6"]
    code = cli.main([*arguments, "--case-dir", str(tmp_path), "--json", str(out), *more])
    return code, json.loads(out.read_text(encoding="utf-8"))["requirements"]


def test_a_right_communicator_passes_and_what_cannot_be_seen_is_not_passed(tmp_path: Path) -> None:
    _, said = checked(HOST, tmp_path, "--programs", "12")
    status = {name: one["status"] for name, one in said.items()}
    assert {status[name] for name in ("RDV-1", "RDV-5", "CACHE-1", "CACHE-2", "COLL-1", "COLL-3", "LIFE-7")} == {"pass"}
    unseen = ("LIFE-1", "LIFE-2", "LIFE-3", "LIFE-4", "LIFE-5", "CACHE-6", "CACHE-7", "RDV-3")
    assert {status[name] for name in unseen} == {"not supported"}
    assert all(said[name]["evaluated"] == 0 for name in unseen)


def test_wrong_bytes_are_found_seen_again_and_reduced(tmp_path: Path) -> None:
    code, said = checked("Forgets", tmp_path, "COLL", "--reduce", "20s")
    assert code == 1
    found = said["COLL-1"]
    assert (found["status"], found["shown"], found["run_again"]) == ("fail", 5, 5)
    small = load(Path(str(found["case"]))).program
    assert [type(step) for step in small.steps] == [p.Allocate, p.AllGather]


def test_what_is_not_seen_again_is_kept_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALLRANKS_TEST_MARK", str(tmp_path / "mark"))
    monkeypatch.setenv("COLUMNS", "200")
    code, said = checked("WrongOnce", tmp_path, "COLL-1", "--reduce", "1s")
    assert code == 1
    assert (said["COLL-1"]["status"], said["COLL-1"]["shown"], said["COLL-1"]["run_again"]) == ("fail", 0, 5)
    shown = capsys.readouterr().out
    assert "Not seen again in 5 runs in fresh workers: this was seen once, and fails the run." in shown
    assert "fail (not seen again)" in shown
    assert "Not seen again, and kept all the same: COLL-1. The run fails; replay the case files." in shown
    assert cli.main(["replay", str(said["COLL-1"]["case"]), "--backend", HOST, "--world", "processes"]) == 0


def test_what_is_not_supported_is_a_line_for_each_family_unless_all_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("NVLS", "LIFE", "--programs", "2")
    code, said = checked(HOST, tmp_path, *asked)
    assert code == 0
    short = capsys.readouterr().out
    assert all(name in short for name in said)
    assert "NVLS: " in short
    assert "LIFE: " in short
    checked(HOST, tmp_path, *asked, "--verbose")
    long = capsys.readouterr().out
    assert "NVLS: " not in long
    unseen = sum(one["status"] == "not supported" for one in said.values())
    assert unseen > 8
    assert (short.count("not supported"), long.count("not supported")) == (2, unseen)


def test_a_write_beside_the_output_is_found_without_a_log_of_writes(tmp_path: Path) -> None:
    _, said = checked("WritesBeside", tmp_path, "COLL", "--reduce", "5s")
    assert said["COLL-3"]["status"] == "fail"
    assert "which no step touches, was written: byte " in str(said["COLL-3"]["evidence"])
    assert said["COLL-1"]["status"] == "pass"


def test_a_stall_is_told_with_where_the_ranks_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = checked("Speaks", tmp_path, "RDV-1", "--reduce", "3")
    assert code == 1
    shown = capsys.readouterr().out
    for line in (
        "without a time-out, for ever",
        "Nothing can go on:",
        "Seen again 5 of 5 times in fresh workers.",
        "rank 1 printed:",
        "no way out",
        "rank 1 was in:",
        "--world processes",
    ):
        assert line in shown
    assert ("rank 1 was, natively, in:" in shown) == (tool() is not None)
    assert (
        cli.main(["replay", str(said["RDV-1"]["case"]), "--backend", f"{UNRULY}:Speaks", "--world", "processes"]) == 1
    )
    assert cli.main(["replay", str(said["RDV-1"]["case"]), "--backend", HOST, "--world", "processes"]) == 0


def test_a_death_is_a_finding_that_names_the_rank(tmp_path: Path) -> None:
    _, said = checked("Dies", tmp_path, "RDV-1", "--reduce", "2")
    assert str(said["RDV-1"]["evidence"]).startswith("its process ended: SIGKILL")


def test_what_never_ends_is_given_up_after_some_programs(tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    arguments = ["check", "COLL", "--world", "processes", "--backend", f"{UNRULY}:Sleeps", "--ranks", "2"]
    more = ["--programs", "40", "--deadline", "0.2s", "--reduce", "1", "--case-dir", str(tmp_path)]
    assert cli.main([*arguments, *more, "--json", str(out)]) == 1
    said = json.loads(out.read_text(encoding="utf-8"))
    assert said["interrupted"] >= 3
    assert said["given_up"]


def test_what_is_found_is_written_before_it_is_reduced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(engine: ProcessesEngine) -> None:
        assert engine.result.findings
        raise KeyboardInterrupt

    monkeypatch.setattr("allranks.conformance.over_processes.ProcessesEngine.confirm", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_conformance(
            f"{UNRULY}:Forgets", ranks=2, programs=3, requirements=("COLL-1",), world="processes", case_dir=tmp_path
        )
    assert load(tmp_path / "COLL-1-Forgets.json").requirements == ("COLL-1",)


def test_a_test_of_ones_own_can_ask_for_it(tmp_path: Path) -> None:
    result = run_conformance(HOST, ranks=2, programs=5, requirements=("COLL-1",), world="processes")
    assert (result.machine, result.status("COLL-1")) == ("host", "pass")
    with pytest.raises(ConformanceError, match=r"COLL-1 is broken in step \d+ \(all_gather\) on rank 1"):
        run_conformance(
            f"{UNRULY}:Forgets",
            ranks=2,
            programs=5,
            requirements=("COLL-1",),
            world="processes",
            case_dir=tmp_path,
            reduce_s=1,
        )


def test_faults_of_the_driver_are_not_evaluated_where_there_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = Program(
        rank_count=2,
        steps=(p.Allocate(size_bytes=4096), p.Connect(region=REGION)),
        faults=(p.Fault(rank=0, call="cuMemMap", k=0, code=999),),
    )
    case = tmp_path / "fault.json"
    case.write_text(dumps(Case(program=program, requirements=("LIFE-4",))), encoding="utf-8")
    assert cli.main(["replay", str(case), "--backend", HOST, "--world", "processes"]) == 3
    assert "LIFE-4: not evaluated here" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (
            ["check", "--world", "processes"],
            "world='processes': backend refimpl works on device memory; across processes the simulated driver",
        ),
        (["check", "--world", "processes", "--backend", "plain"], "executes no kernels"),
        (["check", "--world", "moon"], "argument --world: invalid choice: 'moon'"),
        (["check", "--world", "processes", "--backend", HOST, "--machine", "h100"], "machine='h100': world processes"),
        (["check", "--world", "processes", "--backend", HOST, "--jobs", "2"], "jobs=2: world processes runs one"),
        (
            ["check", "--world", "processes", "--backend", HOST, "--deadline", "0"],
            "--deadline: '0': seconds, more than",
        ),
        (["check", "--world", "processes", "--backend", HOST, "--reduce", "soon"], "'soon': seconds, more than 0"),
        (["check", "--deadline", "3"], "deadline=3: world threads knows at once"),
        (["check", "--reduce", "60s"], "reduce=60: world threads reduces by a number of runs"),
        (["replay", "nvls-two-buffers", "--world", "processes"], "across processes the simulated driver"),
        (["replay", "nvls-two-buffers", "--deadline", "1"], "deadline=1: world threads has none"),
        (["bench", "engine", "--world", "processes"], "across processes the simulated driver"),
    ],
)
def test_what_the_world_cannot_do_is_said_in_one_line(
    arguments: list[str],
    wanted: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(Path(__file__).parents[3])
    assert cli.main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert wanted in line
