"""Link sources and built libraries together into one importable package, for development."""

import os
import shutil
import sys
import tomllib
from pathlib import Path


def link(source: Path, target: Path) -> None:
    """Make `target` a symbolic link to `source`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    os.symlink(source, target)


def describe(source: Path, folder: Path) -> None:
    """Write the metadata that an installed wheel has: version and entry points."""
    project = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    metadata = folder / f"{project['name']}-{project['version']}.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n", encoding="utf-8"
    )
    groups = {"console_scripts": project["scripts"], **project["entry-points"]}
    lines = [line for group, entries in groups.items() for line in (f"[{group}]", *map(" = ".join, entries.items()))]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(source: Path, stage: Path, simcuda: Path, native: Path, *run: Path) -> None:
    """Build the package folder `stage` anew; `run`: the libraries that programs under ``sim run`` find."""
    shutil.rmtree(stage, ignore_errors=True)
    package = source / "csrc" / "python" / "allranks"
    for path in package.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            link(path, stage / path.relative_to(package))
    for name in ("refimpl", "conformance", "stress"):
        if (source / name / "__init__.py").is_file():
            link(source / name, stage / name)
    link(simcuda.resolve(), stage / "sim" / "lib" / "libsimcuda.so")
    for library in run:
        link(library.resolve(), stage / "sim" / "run" / library.resolve().name)
    link(native, stage / native.name)
    describe(source, stage.parent)


main(*map(Path, sys.argv[1:]))
