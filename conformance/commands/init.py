"""``allranks init``: write a backend for a library, and a test of it, into the current folder."""

from __future__ import annotations

import keyword
import sys
import typing
from importlib import resources
from pathlib import Path
from typing import Final

from allranks.conformance.backend import MemorySpace
from allranks.conformance.commands.options import Parser
from allranks.errors import UsageError

# What the templates are evaluated for; asked for everything, a run of one is incomplete.
_EVALUATED: Final = "COLL RDV-1 RDV-5 LIFE-7"


def run(argv: list[str]) -> int:
    """Write a backend for a library, and a test of it, into the current folder."""
    parser = Parser(
        prog="allranks init",
        description="Write a commented backend and a pytest file into the current folder. The backend passes as it is: "
        "change it, call by call, until it is the library.",
    )
    parser.add_argument("name", metavar="NAME", help="of the library, as a module's: mylib")
    parser.add_argument(
        "--memory",
        choices=typing.get_args(MemorySpace),
        default="device",
        help="what the library's addresses are of: a GPU's memory (the default), or the process's own",
    )
    arguments = parser.parse_args(argv)
    name: str = arguments.name
    if not name.isidentifier() or keyword.iskeyword(name) or name != name.lower():
        raise UsageError(f"name={name!r}: wants a module's name, such as mylib")
    made = {f"{arguments.memory}.txt": Path(f"{name}_backend.py"), "test.txt": Path(f"test_{name}.py")}
    for path in made.values():
        if path.exists():
            raise UsageError(f"{path}: is there already, and is left as it is")
    folder = resources.files("allranks.conformance.templates")
    for template, path in made.items():
        text = folder.joinpath(template).read_text(encoding="utf-8")
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(filled(text, name))
        except OSError as error:
            raise UsageError(f"{path}: cannot be written: {error.strerror}") from None
        sys.stdout.write(f"{path}\n")
    backend = f"{name}_backend:{_class_name(name)}Backend"
    sys.stdout.write(f"Run it: allranks check {_EVALUATED} --backend {backend} --effort quick\n")
    return 0


def filled(template: str, name: str) -> str:
    """Give a template for the library of that name: NAME and Name stand for it."""
    return template.replace("NAME", name).replace("Name", _class_name(name))


def _class_name(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))
