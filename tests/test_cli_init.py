"""``allranks init``: what it writes passes as it is, and nothing that is there is overwritten."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from allranks import cli
from allranks.conformance.backend import load_backend, spaces_of


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("memory", "where"), [((), "on h100"), (("--memory", "host"), "on host")])
def test_what_it_writes_passes(
    memory: tuple[str, ...], where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["init", "my_lib", *memory]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == ["my_lib_backend.py", "test_my_lib.py"]
    asked = said[2].removeprefix("Run it: allranks ").split()
    assert asked[0] == "check"
    assert asked[-4:] == ["--backend", "my_lib_backend:MyLibBackend", "--effort", "quick"]
    assert len((tmp_path / "my_lib_backend.py").read_text(encoding="utf-8").splitlines()) <= 45
    checked = _run("-c", "import sys; from allranks.cli import main; sys.exit(main(sys.argv[1:]))", *asked)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert where in checked.stdout
    tested = _run("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_my_lib.py")
    assert "1 passed" in tested.stdout, tested.stdout + tested.stderr


def _run(*argv: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run([sys.executable, *argv], capture_output=True, text=True, check=False, env=environment)


def test_both_kinds_of_memory_have_a_template(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["init", "my_lib", "--memory", "disk"]) == 2
    assert "argument --memory: invalid choice: 'disk'" in capsys.readouterr().err
    for memory in ("device", "host"):
        assert cli.main(["init", memory, "--memory", memory]) == 0
        assert load_backend(f"{memory}_backend:{memory.capitalize()}Backend").name == memory
        assert spaces_of(load_backend(f"{memory}_backend:{memory.capitalize()}Backend")) == (memory,)


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
