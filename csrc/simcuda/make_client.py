"""Generate what the client library and the broker need to know of the entry points that are simulated.

Writes LIST, by which both sides number the calls; OUTPUT, which defines each of them to be carried out by the broker;
and beside OUTPUT a file ``_rest``: old symbols of theirs, a stub for every other function of cuda.h, and the tables
that error texts and cuGetProcAddress answer from.

Usage: make_client.py CUDA_H LIST OUTPUT SOURCE...
The SOURCEs are the files of entry/; those that the client library is built with itself have ``client:`` before them.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from make_stubs import DEFINITION, names_of, rest_of, without_comments

PREFIX = "client:"
NAME = re.compile(r"(\w+)\s*(?:\[\])?$")


def parameters_of(header: str, plain: str) -> list[str]:
    """Give the parameters that cuda.h declares a function with; the first declaration is the newest version's."""
    match = re.search(rf"\bCUresult\s+CUDAAPI\s+{plain}\s*\(([^)]*)\)\s*;", header)
    if match is None:
        raise SystemExit(f"{plain}: not declared in cuda.h")
    words = " ".join(match[1].split())
    return [] if words == "void" else [part.strip() for part in words.split(",")]


def argument_name(parameter: str) -> str:
    """Give the name in a declaration such as ``const CUmemAccessDesc *desc``."""
    match = NAME.search(parameter)
    if match is None:
        raise SystemExit(f"{parameter}: has no name")
    return match[1]


def carried(header: str, plain: str, symbol: str) -> str:
    """Define an entry point of the client library."""
    parameters = parameters_of(header, plain)
    arguments = ", ".join(argument_name(parameter) for parameter in parameters)
    return (
        f"CUresult CUDAAPI {plain}({', '.join(parameters) or 'void'}) {{\n"
        f'  return carry<&{plain}>(Remote::k{symbol}, "{plain}"{", " if arguments else ""}{arguments});\n}}'
    )


def main(cuda_h: Path, listing: Path, output: Path, sources: list[str]) -> None:
    """Write both files."""
    whole = cuda_h.read_text(encoding="utf-8", errors="replace")
    header = without_comments(whole)
    _, renamed = names_of(whole)
    defined: dict[bool, set[str]] = {True: set(), False: set()}
    for source in sources:
        text = Path(source.removeprefix(PREFIX)).read_text(encoding="utf-8")
        defined[source.startswith(PREFIX)] |= set(DEFINITION.findall(text))
    remote = sorted((plain, renamed.get(plain, plain)) for plain in defined[False])
    listing.write_text("".join(f"ALLRANKS_REMOTE({plain}, {symbol})\n" for plain, symbol in remote), encoding="utf-8")
    calls = [
        "// Generated from cuda.h and entry/; not for editing.",
        "#pragma GCC visibility push(default)",
        "#include <cuda.h>",
        "#pragma GCC visibility pop",
        "",
        '#include "client/carry.hpp"',
        "",
        "using allranks::sim::client::carry;",
        "using allranks::sim::wire::Remote;",
        "",
        'extern "C" {',
        *(carried(header, plain, symbol) for plain, symbol in remote),
        "}",
        "",
    ]
    output.write_text("\n".join(calls), encoding="utf-8")
    output.with_name(f"{output.stem}_rest.cpp").write_text(
        rest_of(cuda_h, defined[True] | defined[False]), encoding="utf-8"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
