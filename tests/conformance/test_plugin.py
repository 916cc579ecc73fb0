"""The pytest plugin, run as users run it: in processes of its own, in an empty folder."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from allranks import cli
from allranks.conformance import ConformanceError, run_conformance
from allranks.conformance.backends.plain import PlainBackend
from allranks.conformance.expected import load_expected
from allranks.conformance.pytest_plugin import pytest_addoption
from allranks.errors import UsageError
from tests.conformance import unruly


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "pytest", "-p", "no:cacheprovider", "-vv", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_page_names_every_option() -> None:
    page = (Path(__file__).parents[2] / "docs" / "pytest.md").read_text(encoding="utf-8")
    paragraph = page[page.index("Options, all with the prefix") :].partition("\n\n")[0]
    options = pytest.Parser(_ispytest=True)
    pytest_addoption(options)
    names = [name for group in options._groups for option in group.options for name in option.names()]
    assert len(names) > 10
    assert re.findall(r"`([a-z][a-z-]*)`", paragraph) == sorted(
        (name.removeprefix("--allranks-") for name in names), key=lambda name: paragraph.index(f"`{name}`")
    )


def conformance(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_pytest(folder, "--pyargs", "allranks.conformance", *arguments)


def test_a_mutant_on_two_workers_with_expected_failures(tmp_path: Path) -> None:
    (tmp_path / "known.toml").write_text(
        '"RDV-2[cases]" = "ours 17: local keys"\n"COLL-1" = "ours 18: wrong sums"\n', encoding="utf-8"
    )
    done = conformance(
        tmp_path,
        *("--allranks-backend", "plain-local-key", "--allranks-programs", "60", "--allranks-ranks", "3", "-n", "2"),
        *("--allranks-requirements", "RDV-2,COLL-1", "--allranks-expected-failures", "known.toml"),
        *("--junit-xml", "junit.xml"),
    )
    assert done.returncode == 1, done.stdout + done.stderr

    # A test for each requirement and family, those of a family on one worker.
    sources = ("cases", "RDV", "COLL")
    workers: dict[str, set[str]] = {source: set() for source in sources}
    outcome: dict[str, str] = {}
    for worker, word, name, source in re.findall(
        r"\[(gw\d)\] \[ *\d+%\] (\w+) \S*test_requirements\.py::(\S+)\[(\w+)\]", done.stdout
    ):
        workers[source].add(worker)
        outcome[f"{name}[{source}]"] = word
    assert set(outcome) == {f"{name}[{source}]" for name in ("RDV-2", "COLL-1", "DETERMINISM") for source in sources}
    assert [len(used) for used in workers.values()] == [1, 1, 1]

    assert outcome["RDV-2[cases]"] == "XFAIL"
    assert outcome["RDV-2[RDV]"] == "FAILED"
    assert outcome["COLL-1[COLL]"] == "FAILED"
    assert outcome["COLL-1[RDV]"] == outcome["DETERMINISM[RDV]"] == "PASSED"

    # The text of a failure: story, lanes, the line to replay, and nothing of the plugin.
    tests = {case.get("name"): case for case in ElementTree.parse(tmp_path / "junit.xml").iter("testcase")}
    failure = tests["RDV-2[RDV]"].find("failure")
    assert failure is not None
    text = (failure.text or "").splitlines()
    assert re.fullmatch(
        r"RDV-2 is broken in step \d+ \(connect\) on rank \d: plain-local-key, 2 ranks, \d+ steps\.", text[0]
    )
    assert any(line.split()[:3] == ["step", "rank", "0"] for line in text)
    assert "pytest_plugin" not in done.stdout
    again = re.fullmatch(r"Again: allranks (replay \S+RDV-2-plain-local-key\.json --backend plain-local-key)", text[-1])
    assert again is not None
    assert cli.main(again[1].split()) == 1

    stale = tests["COLL-1[COLL]"].find("failure")
    assert stale is not None
    assert "COLL-1[COLL] is expected to fail (ours 18: wrong sums), but the result is pass" in (stale.text or "")
    skipped = tests["RDV-2[cases]"].find("skipped")
    assert skipped is not None
    assert "ours 17: local keys" in skipped.get("message", "")


def test_a_right_communicator_passes_and_what_is_not_looked_at_is_skipped(tmp_path: Path) -> None:
    done = conformance(
        tmp_path,
        *("--allranks-backend", "plain", "--allranks-programs", "5", "--allranks-ranks", "2", "-rs"),
        *("--allranks-requirements", "COLL-1,LIFE-3", "-k", "COLL"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"test_requirements\.py::COLL-1\[COLL\] .*PASSED", done.stdout)
    assert "no Program of COLL has what LIFE-3 looks at; those of LIFE do" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_nothing_evaluated_is_a_failure(tmp_path: Path) -> None:
    done = conformance(
        tmp_path,
        *("--allranks-backend", "tests.conformance.unruly:RefusesToOpen", "--allranks-programs", "1"),
        *("--allranks-requirements", "COLL-2", "-o", f"pythonpath={Path(__file__).parents[2]}", "-k", "COLL-2"),
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "nothing was evaluated: no Program of COLL has what COLL-2 looks at" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--allranks-backend", "nope"), "ERROR: allranks: backend='nope': known are"),
        (("--allranks-backend", "plain", "--allranks-ranks", "0"), "ERROR: allranks: --allranks-ranks: '0': a whole"),
        (("--allranks-backend", "plain", "--allranks-requirements", "RDV-77"), "ERROR: allranks: requirement='RDV-77'"),
    ],
)
def test_bad_input_is_one_line_before_anything_runs(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    done = conformance(tmp_path, *arguments)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert next(line for line in done.stderr.splitlines() if line).startswith(message)
    assert "collected" not in done.stdout


def test_without_a_backend_the_option_is_named(tmp_path: Path) -> None:
    done = conformance(tmp_path)
    assert done.returncode == pytest.ExitCode.INTERRUPTED
    assert "--allranks-backend=NAME|module:Class says which communicator to test" in done.stdout


IMPORTS = """
import sys
sys.modules.update(dict.fromkeys({absent!r}))
before = set(sys.modules)
import {module}
sys.exit(", ".join(sorted({heavy!r} & (set(sys.modules) - before))) or 0)
"""


@pytest.mark.parametrize(
    ("module", "absent", "heavy"),
    [
        ("allranks.conformance.pytest_plugin", (), {"hypothesis", "numpy", "rich", "allranks._native"}),
        ("allranks.conformance.running, allranks.conformance.commands.check", ("pytest", "_pytest", "xdist"), set()),
    ],
)
def test_what_importing_needs(module: str, absent: tuple[str, ...], heavy: set[str]) -> None:
    code = IMPORTS.format(module=module, absent=absent, heavy=heavy)
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


USERS_TESTS = """
from allranks.conformance import run_conformance
from allranks.conformance.corpus import MUTANTS


def test_conforms():
    run_conformance(type(MUTANTS["plain-local-key"].make()), ranks=2, programs=10, requirements=("RDV-2",))
"""


def test_a_users_own_test_shows_the_story_and_no_frame_of_ours(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(USERS_TESTS, encoding="utf-8")
    done = run_pytest(tmp_path, "test_mine.py")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "test_mine.py:7" in done.stdout
    assert "RDV-2 is broken in step" in done.stdout
    assert "Again: allranks replay allranks-cases/RDV-2-plain-local-key.json --backend allranks.conf" in done.stdout
    assert "running.py" not in done.stdout


def test_run_conformance_gives_how_much_was_looked_at(tmp_path: Path) -> None:
    result = run_conformance(PlainBackend(), ranks=2, programs=4, requirements=("COLL-1",), case_dir=tmp_path)
    assert result.status("COLL-1") == "pass"
    assert result.tallies["COLL-1"].evaluated


def test_run_conformance_by_name_outlives_a_backend_that_ends_its_process(tmp_path: Path) -> None:
    with pytest.raises(ConformanceError, match=r"os\._exit\(7\) in rank 1") as caught:
        run_conformance(
            "tests.conformance.unruly:Exits", ranks=2, programs=4, requirements=("COLL-1",), case_dir=tmp_path
        )
    assert "Again: allranks replay" in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ranks": 0}, "ranks=0: from 1 to 128"),
        ({"ranks": 9}, "ranks=9: the usual machine has 8 devices"),
        ({"effort": "some"}, "effort='some': one of quick, ci, standard, deep"),
        ({"effort": "ci", "seed": 3}, "seed=3: effort ci draws the same Programs in every run"),
        ({"programs": 0}, "programs=0"),
        ({"machine": "abacus"}, "machine='abacus'"),
        ({"requirements": ("COLL-77",)}, "requirement='COLL-77'"),
    ],
)
def test_run_conformance_checks_its_arguments(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        run_conformance(PlainBackend, **arguments)  # type: ignore[arg-type]


def test_run_conformance_wants_the_protocol() -> None:
    with pytest.raises(UsageError, match="class WithoutOpen has no method open"):
        run_conformance(unruly.WithoutOpen)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('"RDV-77" = "x"', "'RDV-77': no requirement"),
        ('"RDV-1[XYZ]" = "x"', "'RDV-1[XYZ]': no family with Programs"),
        ('"RDV-1" = ""', "RDV-1='': wants a reason"),
        ('"RDV-1" = 3', "RDV-1=3: wants a reason"),
        ('"RDV-1" "x"', "no TOML"),
    ],
)
def test_a_wrong_file_of_expected_failures_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "known.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=re.escape(message)):
        load_expected(path)
