"""The command ``allranks``: how it finds subcommands, and what each way of ending is reported as."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from allranks import cli
from allranks.conformance.cases import shipped
from allranks.errors import UsageError


def well(argv: list[str]) -> int:
    """Say what was given.

    Not part of the help.
    """
    sys.stdout.write(f"given {argv}\n")
    return 0


def violation(_argv: list[str]) -> int:
    """Find one violation."""
    return 1


def wrong_usage(_argv: list[str]) -> int:
    """Refuse its argument."""
    raise UsageError("ranks=0: must be\nat least 1")


def interrupted(_argv: list[str]) -> int:
    """Be interrupted."""
    raise KeyboardInterrupt


def broken(_argv: list[str]) -> int:
    """Fail by itself."""
    raise RuntimeError("the oracle is lost")


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Install a subcommand: its name, and where it is found."""
    installed: dict[str, metadata.EntryPoint] = {}
    monkeypatch.setattr(cli, "find_commands", lambda: installed)

    def add(name: str, value: str) -> None:
        installed[name] = metadata.EntryPoint(name=name, value=value, group=cli.GROUP)

    here = sys.modules[__name__]
    monkeypatch.setitem(sys.modules, "allranks_test_commands", here)
    for command in (well, violation, wrong_usage, interrupted, broken):
        add(command.__name__.replace("_", "-"), f"allranks_test_commands:{command.__name__}")
    return add


@pytest.mark.usefixtures("install")
class TestEndings:
    def test_arguments_after_the_name_reach_the_subcommand(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["well", "COLL-1", "--help"]) == 0
        assert capsys.readouterr().out == "given ['COLL-1', '--help']\n"

    def test_exit_code_of_the_subcommand_is_handed_on(self) -> None:
        assert cli.main(["violation"]) == 1

    def test_unknown_subcommand_is_one_line(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["chekc"]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.splitlines() == [
            "allranks: error: no subcommand 'chekc'; there are: broken, interrupted, violation, well, wrong-usage"
        ]

    def test_wrong_usage_is_one_line(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["wrong-usage"]) == 2
        assert capsys.readouterr().err == "allranks: error: ranks=0: must be at least 1\n"

    def test_interruption(self) -> None:
        assert cli.main(["interrupted"]) == 130

    def test_own_failure_names_type_message_and_place(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["broken", "--seed", "7"]) == 4
        error = capsys.readouterr().err
        assert "RuntimeError: the oracle is lost" in error
        assert "in broken" in error
        assert "to run it again: allranks broken --seed 7" in error

    def test_nothing_given_is_wrong_usage(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main([]) == 2
        assert capsys.readouterr().err.startswith("usage: allranks SUBCOMMAND")


def test_help_lists_first_lines_and_exit_codes(
    install: Callable[[str, str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    install("missing", "allranks_no_such_module:run")
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert "  well         Say what was given.\n" in text
    assert "Not part of the help" not in text
    assert "  missing      (cannot be loaded: ModuleNotFoundError: " in text
    assert "130 interrupted" in text


def test_only_the_subcommand_asked_for_is_imported(
    install: Callable[[str, str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "allranks_loud_module.py").write_text("raise RuntimeError('imported')\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    install("loud", "allranks_loud_module:run")
    assert cli.main(["well"]) == 0
    assert "allranks_loud_module" not in sys.modules
    assert cli.main(["loud"]) == 4


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"allranks {metadata.version('allranks')}\n"


def test_installed_subcommands_are_found() -> None:
    assert {"check", "replay", "cases"} <= set(cli.find_commands())


def test_names_of_cases_can_be_copied_at_any_width(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main(["cases"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in shipped())


@pytest.mark.parametrize(
    ("case", "machine"), [("nvls-two-buffers", "no-multicast"), ("life-binding-group-memory", "tiny")]
)
def test_a_case_whose_subject_was_not_run_is_not_passed(
    case: str, machine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["replay", case, "--machine", machine]) == 3
    assert "not evaluated here" in capsys.readouterr().out
