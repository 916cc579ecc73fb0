"""``allranks init``: what it writes passes as it is, and nothing that is there is overwritten."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from allranks import cli


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_what_it_writes_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["init", "my_lib"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == ["my_lib_backend.py", "test_my_lib.py"]
    assert said[2].endswith("allranks check --backend my_lib_backend:MyLibBackend --effort quick")
    assert len((tmp_path / "my_lib_backend.py").read_text(encoding="utf-8").splitlines()) <= 42
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_my_lib.py"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert "1 passed" in ran.stdout, ran.stdout + ran.stderr


@pytest.mark.parametrize("there", ["my_lib_backend.py", "test_my_lib.py"])
def test_nothing_is_overwritten(there: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / there).write_text("mine\n", encoding="utf-8")
    assert cli.main(["init", "my_lib"]) == 2
    assert capsys.readouterr().err == f"allranks: error: {there}: is there already, and is left as it is\n"
    assert [path.name for path in tmp_path.iterdir()] == [there]
    assert (tmp_path / there).read_text(encoding="utf-8") == "mine\n"


@pytest.mark.parametrize("name", ["3d", "My", "my-lib", "class", "a.b", "../x"])
def test_a_name_that_is_no_modules(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["init", name]) == 2
    assert f"name={name!r}: wants a module's name" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
