"""Switch each rule of multicast off in the simulated driver, and see that the rows which hold it fail.

``python -m tests.sim.switched_off BUILD OUT``: `BUILD` is a folder in which CMake has built the target ``simcuda``.
Writes one line of JSON a rule to `OUT` as soon as it is known, and passes over those that are there already. A rule
that no row misses ends it with exit code 1.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import allranks
from tests.sim.switched_off.rules import RULES, Off
from tests.sim.test_driver_rows import child

ROOT: Final = Path(__file__).resolve().parents[3]
SOURCES: Final = ROOT / "csrc" / "simcuda"
LIMIT_S: Final = 30.0


def named_rows() -> dict[str, list[str]]:
    """Give the rows that ``docs/multicast.md`` names, by what its line begins with."""
    named: dict[str, list[str]] = {}
    before: list[str] = []
    for line in (ROOT / "docs" / "multicast.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("| ") and not line.startswith(("| rule", "| field", "| ---")):
            cells = line.strip("| ").split(" | ")
            rows = [row for part in cells[-1].split(":")[1:] for row in re.findall(r"`(\w+)`", part)]
            before = rows if cells[-1] != "the same" else before
            named[cells[0]] = before
    return named


def rows_of(off: Off) -> list[str]:
    """Give the rows that hold a rule."""
    (rows,) = (rows for rule, rows in named_rows().items() if rule.startswith(off.rule))
    return rows


def switched_off(off: Off) -> str:
    """Give the source with the rule switched off."""
    source = (SOURCES / off.file).read_text(encoding="utf-8")
    if source.count(off.old) != 1:
        raise ValueError(f"{off.file}: {off.old!r} is there {source.count(off.old)} times; it has to be there once")
    return source.replace(off.old, off.new)


def library(off: Off, build: Path, folder: Path) -> Path:
    """Compile the one source, and link it with the others as they were built."""
    original = SOURCES / off.file
    changed, compiled = folder / original.name, folder / "changed.o"
    changed.write_text(switched_off(off), encoding="utf-8")
    commands = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    (words,) = (
        shlex.split(one["command"])
        for one in commands
        if one["file"] == str(original) and "/simcuda.dir/" in one["command"]
    )
    at = words.index("-o")
    replaced = (build / words[at + 1]).resolve()
    quoted = ["-iquote", str(original.parent), "-iquote", str(SOURCES)]
    words[at : at + 2] = ["-o", str(compiled), *quoted, "-w"]
    words[words.index(str(original))] = str(changed)
    subprocess.run(words, cwd=build, check=True)
    objects = [path for path in (build / "CMakeFiles" / "simcuda.dir").rglob("*.o") if path.resolve() != replaced]
    made = folder / "libsimcuda.so"
    options = ["-shared", "-pthread", "-Wl,-Bsymbolic", f"-Wl,--version-script={SOURCES / 'exports.map'}"]
    compiler = next(word for word in words if word.endswith("++"))  # a cache of compiled files may stand before it
    subprocess.run([compiler, *options, "-o", str(made), str(compiled), *map(str, objects)], check=True)
    return made


def package(made: Path, folder: Path) -> Path:
    """Give a folder with the package as it is installed, on another simulated driver."""
    installed = Path(allranks.__file__).parent
    for place, _, names in os.walk(installed, followlinks=True):
        target = folder / "package" / "allranks" / Path(place).relative_to(installed)
        target.mkdir(parents=True)
        for name in names:
            (target / name).symlink_to(made if name == "libsimcuda.so" else Path(place, name).resolve())
    for path in installed.parent.glob("allranks-*.dist-info"):
        (folder / "package" / path.name).symlink_to(path)
    return folder / "package"


def failed_rows(off: Off, build: Path) -> tuple[list[str], str]:
    """Run the rows of a rule that is switched off; give those that fail, and what the child said."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = library(off, build, folder)
        os.environ["PYTHONPATH"] = os.pathsep.join([str(package(made, folder)), *sys.path])
        libraries = folder / "libraries"
        libraries.mkdir()
        (libraries / "libcuda.so.1").symlink_to(made.resolve())
        rows = [f"test_{row}" for row in rows_of(off)]
        try:
            ran = child(libraries, "-k", " or ".join(rows), "-rfE", "--tb=no", limit_s=LIMIT_S)
        except subprocess.TimeoutExpired:
            return ["a row waits for ever"], ""
        if ran.returncode < 0:
            return [f"the process of the rows ends: signal {-ran.returncode}"], ""
        failed = re.findall(r"^(?:FAILED|ERROR) \S+::test_(\w+)", ran.stdout, re.MULTILINE)
        return sorted(set(failed)), ran.stdout[-2000:]


def main(build: Path, out: Path) -> int:
    """Switch off what is not done yet."""
    done: list[dict[str, Any]] = []
    if out.exists():
        done = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    known = {(one["rule"], one["file"], one["old"], one["new"]) for one in done}
    missed = [one["rule"] for one in done if not one["failed"]]
    with out.open("a", encoding="utf-8") as stream:
        for off in RULES:
            if (off.rule, off.file, off.old, off.new) in known:
                continue
            failed, said = failed_rows(off, build)
            told = {"rule": off.rule, "file": off.file, "old": off.old, "new": off.new}
            stream.write(json.dumps({**told, "rows": rows_of(off), "failed": failed}) + "\n")
            stream.flush()
            sys.stdout.write(f"{'missed' if not failed else 'noticed'}: {off.rule}: {', '.join(failed) or said}\n")
            sys.stdout.flush()
            missed += [off.rule] if not failed else []
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), Path(sys.argv[2])))
