"""``allranks check``: what it writes and how it ends."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from allranks import cli
from allranks.conformance.casefile import load
from allranks.conformance.program import AllReduce
from allranks.conformance.settings import EFFORT


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def check(*arguments: str) -> int:
    return cli.main(["check", "--ranks", "2", "--programs", "6", "--jobs", "1", *arguments])


def test_expected_failures_are_told_from_others_and_from_stale_ones(tmp_path: Path) -> None:
    (tmp_path / "known.toml").write_text('"RDV-2" = "ours 17"\n', encoding="utf-8")
    (tmp_path / "stale.toml").write_text('"RDV-2" = "ours 17"\n"COLL-1" = "ours 18"\n', encoding="utf-8")
    mutant = ("RDV-2", "COLL-1", "--backend", "plain-local-key", "--json", "report.json", "--junit", "junit.xml")
    assert check(*mutant, "--no-reduce") == 1
    assert check(*mutant, "--no-reduce", "--expected-failures", "known.toml") == 0
    requirements = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["requirements"]
    assert requirements["RDV-2"]["expected"] == "ours 17"
    assert requirements["RDV-2"]["status"] == "fail"
    assert check(*mutant, "--no-reduce", "--expected-failures", "stale.toml") == 1
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("2", "1", "1")
    (failure,) = suite.iter("failure")
    assert "COLL-1: expected to fail (ours 18), but the result is pass: remove the entry" in failure.get("message", "")


def test_one_process_and_two_come_to_the_same(tmp_path: Path) -> None:
    reports = []
    for jobs in ("1", "2"):
        arguments = ("CACHE-1", "COLL", "--backend", "plain", "--json", "report.json", "--jobs", jobs)
        assert check(*arguments) == 0
        reports.append(json.loads((tmp_path / "report.json").read_text(encoding="utf-8")))
    assert reports[0] == reports[1]


def test_a_backend_that_ends_its_process_fails_whatever_was_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check("COLL-1", "--backend", "tests.conformance.unruly:Exits", "--json", "report.json") == 1
    out = capsys.readouterr().out
    assert "RDV-1 is broken in run: exits" in out
    assert "the backend's process ended: os._exit(7) in rank 1" in out
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert report["interrupted"] >= 1
    case = tmp_path / "allranks-cases" / "RDV-1-exits.json"
    assert cli.main(["replay", str(case), "--backend", "plain"]) == 0
    assert cli.main(["replay", str(case), "--backend", "tests.conformance.unruly:Exits"]) == 1


def test_a_program_that_gives_another_trace_is_kept_and_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moody = ("--backend", "tests.conformance.unruly:Moody")
    assert check("LIFE-7", "COLL-2", *moody, "--json", "report.json", "--junit", "junit.xml") == 1
    out = capsys.readouterr().out
    assert "DETERMINISM is broken in step" in out
    assert "Uncontrolled nondeterminism" in out
    case = Path("allranks-cases") / "DETERMINISM-moody.json"
    assert f"Again: allranks replay {case}" in out
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert report["nondeterministic"] >= 1
    assert report["DETERMINISM"]["case"] == str(case)
    told = report["DETERMINISM"]["evidence"]  # the moods come in either order
    assert "in one run, " in told
    assert {"ok", "error"} <= set(told.replace(",", " ").split())
    failures = [test.get("name") for test in ElementTree.parse(tmp_path / "junit.xml").iter("testcase") if len(test)]
    assert "DETERMINISM" in failures
    kept = load(case)
    assert kept.requirements == ("DETERMINISM",)
    assert sum(isinstance(step, AllReduce) for step in kept.program.steps) == 1  # it was reduced
    assert cli.main(["replay", str(case), *moody]) == 1
    assert "DETERMINISM broken on moody" in capsys.readouterr().out
    assert cli.main(["replay", str(case), "--backend", "plain"]) == 0


def test_a_run_leaves_nothing_behind_when_all_is_well(tmp_path: Path) -> None:
    assert check("COLL-1", "--backend", "plain") == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["Refuses", "RefusesProducts"])
def test_what_is_refused_on_every_rank_is_not_passed(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    backend = ("--backend", f"tests.conformance.unruly:{kind}", "--programs", "20")
    assert check("COLL-1", *backend, "--json", "report.json") == 1
    assert "refused by every rank: LookupError: no kernel for" in capsys.readouterr().out
    found = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["requirements"]["COLL-1"]
    assert found["status"] == "fail"
    kept = load(Path(found["case"]))
    assert sum(isinstance(step, AllReduce) for step in kept.program.steps) == 1  # it was reduced
    assert cli.main(["replay", found["case"], "--backend", "plain"]) == 0
    assert cli.main(["replay", found["case"], *backend[:2]]) == 1


def test_what_a_backend_says_it_refuses_is_not_asked_for(tmp_path: Path) -> None:
    backend = ("--backend", "tests.conformance.unruly:SaysNoProducts", "--programs", "20")
    assert check("COLL-1", *backend, "--json", "report.json") == 0
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert report["narrowings"][0]["steps"] > 0
    assert check("COLL-1", *backend, "--strict") == 1


def test_efforts_grow() -> None:
    assert list(EFFORT.values()) == sorted(set(EFFORT.values()))
