"""Write the type stubs of ``allranks._native`` from the installed module, or check that they are those in the tree.

What pybind11-stubgen reads off the docstrings is made strict: integers are ``int``, bare containers get arguments.

Usage: make_type_stubs.py [--check] PACKAGE_FOLDER
"""

from __future__ import annotations

import difflib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

MODULE = "allranks._native"

# What is written, and what it becomes; in this order.
REPLACEMENTS = (
    (r"typing\.SupportsInt(?: \| typing\.SupportsIndex)?", "int"),
    (r"typing\.SupportsFloat(?: \| typing\.SupportsIndex)?", "float"),
    (r"collections\.abc\.Callable\b(?!\[)", "collections.abc.Callable[..., typing.Any]"),
    (r"numpy\.ndarray\b(?!\[)", "numpy.ndarray[typing.Any, typing.Any]"),
    (r"(?<![\w.])(list|set)\b(?![\[(])", r"\1[typing.Any]"),
    (r"(?<![\w.])dict\b(?![\[(])", "dict[str, typing.Any]"),
    (r"(?<![\w.])tuple\b(?![\[(])", "tuple[typing.Any, ...]"),
    # What a std::string or a buffer of bytes takes.
    (r"\bdata: str\b", "data: bytes"),
    (r"typing_extensions\.Buffer", "bytes | bytearray | memoryview | numpy.ndarray[typing.Any, typing.Any]"),
    # A shared pointer takes None too.
    (r"(?<=: )(ChannelCachePolicy|MulticastPolicy|ReleasePolicy)(?=[,)])", r"\1 | None"),
    # A policy is called with lists, and what it calls takes any sequence.
    (r"mine: collections\.abc\.Sequence\[int\]", "mine: list[int]"),
    (
        r"exchange: collections\.abc\.Callable\[\[list\[int\]\], .*?\]\]\]",
        "exchange: collections.abc.Callable[[collections.abc.Sequence[int]], list[list[int]]]",
    ),
)


def generate(folder: Path) -> dict[str, str]:
    """Give the text of each stub file by its name, made in `folder`."""
    subprocess.run(
        [sys.executable, "-P", "-m", "pybind11_stubgen", MODULE, "--output-dir", str(folder), "--exit-code"], check=True
    )
    made = folder.joinpath(*MODULE.split("."))
    for path in made.glob("*.pyi"):
        text = path.read_text(encoding="utf-8")
        for pattern, replacement in REPLACEMENTS:
            text = re.sub(pattern, replacement, text)
        imports = [name for name in ("numpy", "typing") if f"{name}." in text and f"import {name}\n" not in text]
        text = text.replace("import annotations\n", "import annotations\n" + "".join(f"import {n}\n" for n in imports))
        path.write_text(text, encoding="utf-8")
    subprocess.run(
        [sys.executable, "-P", "-m", "ruff", "format", "--isolated", "--quiet", "--line-length=120", str(made)],
        check=True,
    )
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(made.glob("*.pyi"))}


def differences(wanted: dict[str, str], target: Path) -> str:
    """Show how the files in `target` differ from what is wanted; empty when they do not."""
    present = {path.name: path.read_text(encoding="utf-8") for path in target.glob("*.pyi")}
    lines: list[str] = []
    for name in sorted(wanted.keys() | present.keys()):
        old, new = (texts.get(name, "").splitlines(keepends=True) for texts in (present, wanted))
        lines += difflib.unified_diff(old, new, f"in the tree: {name}", f"of the module: {name}")
    return "".join(lines)


def main(arguments: list[str]) -> int:
    """Write or check; 1 when the check finds a difference."""
    check = "--check" in arguments
    (package,) = (Path(argument) for argument in arguments if argument != "--check")
    target = package / MODULE.rpartition(".")[2]
    with tempfile.TemporaryDirectory() as folder:
        stubs = generate(Path(folder))
    if check:
        difference = differences(stubs, target)
        sys.stderr.write(difference + ("type stubs are out of date: make stubs\n" if difference else ""))
        return 1 if difference else 0
    target.mkdir(exist_ok=True)
    for old in target.glob("*.pyi"):
        old.unlink()
    for name, text in stubs.items():
        (target / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
