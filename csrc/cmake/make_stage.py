"""Link sources and built libraries together into one importable package, for development."""

import os
import shutil
import sys
from pathlib import Path


def link(source: Path, target: Path) -> None:
    """Make `target` a symbolic link to `source`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    os.symlink(source, target)


def main(source: Path, stage: Path, simcuda: Path, native: Path) -> None:
    """Build the package folder `stage` anew."""
    shutil.rmtree(stage, ignore_errors=True)
    package = source / "csrc" / "python" / "allranks"
    for path in package.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            link(path, stage / path.relative_to(package))
    for name in ("refimpl", "conformance", "stress"):
        if (source / name / "__init__.py").is_file():
            link(source / name, stage / name)
    link(simcuda.resolve(), stage / "sim" / "lib" / "libsimcuda.so")
    link(native, stage / native.name)


main(*map(Path, sys.argv[1:5]))
