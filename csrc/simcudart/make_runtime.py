"""Generate what the simulated runtime library needs to know of all of cuda_runtime_api.h.

Writes OUTPUT: the names and texts of all error codes, and the functions for programs that have a default stream for
each thread (``_ptsz``, ``_ptds``), by those of the given sources. And beside it a file ``_stubs``: a stub for every
function that the headers declare and the sources do not define.

Usage: make_runtime.py INCLUDE_FOLDER OUTPUT SOURCE...
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from make_client import argument_name
from make_stubs import error_rows, without_comments

DEFINITION = re.compile(r"\bCUDARTAPI\s+(cuda[A-Z]\w*)\(")
DECLARATION = re.compile(r"\bCUDARTAPI\s+(cuda[A-Z]\w*)\s*\(([^;]*?)\)\s*;")
PER_THREAD = re.compile(r"^\s*#define\s+(cuda[A-Z]\w*)\s+__CUDART_API_PT(DS|SZ)\(", re.MULTILINE)
RUNTIME_ERROR = r"cuda(?:Success|Error\w+)"
# Of cuda_profiler_api.h, which the packages that this is built with do not have.
ELSEWHERE = ("cudaProfilerStart", "cudaProfilerStop")


def declarations_of(header: str) -> dict[str, list[str]]:
    """Give the parameters that each function is first declared with, without default values."""
    found: dict[str, list[str]] = {}
    for name, words in DECLARATION.findall(header):
        plain = re.sub(r"__dv\([^)]*\)|=\s*\w+", "", " ".join(words.split()))
        found.setdefault(name, [] if plain.strip() == "void" else [part.strip() for part in plain.split(",")])
    return found


def in_own_stream(name: str, parameters: list[str]) -> str:
    """Define the variant that takes stream 0 for the thread's own."""
    names = [argument_name(parameter) for parameter in parameters]
    streams = [argument_name(parameter) for parameter in parameters if parameter.startswith("cudaStream_t ")]
    arguments = ", ".join(f"per_thread({name})" if name in streams else name for name in names)
    return f"EXPORTED cudaError_t {name}_ptsz({', '.join(parameters)}) {{ return {name}({arguments}); }}"


def on_own_stream(name: str, parameters: list[str]) -> str:
    """Define the variant that works on the thread's own stream, and waits for it."""
    arguments = ", ".join(argument_name(parameter) for parameter in parameters)
    return (
        f"EXPORTED cudaError_t {name}_ptds({', '.join(parameters)}) {{\n"
        f"  const cudaError_t error = {name}Async({arguments}, cudaStreamPerThread);\n"
        "  return error != cudaSuccess ? error : cudaStreamSynchronize(cudaStreamPerThread);\n}"
    )


def main(include: Path, output: Path, sources: list[Path]) -> None:
    """Write both files."""
    whole = (include / "cuda_runtime_api.h").read_text(encoding="utf-8", errors="replace")
    errors = (include / "driver_types.h").read_text(encoding="utf-8", errors="replace")
    header = without_comments(whole)
    declared = declarations_of(header)
    interop = " ".join(
        without_comments(path.read_text(encoding="utf-8", errors="replace"))
        for path in sorted(include.glob("cuda_*_interop.h"))
    )
    defined = {name for source in sources for name in DEFINITION.findall(source.read_text(encoding="utf-8"))}
    variants: dict[str, str] = {}
    for name, kind in PER_THREAD.findall(header):
        variant = f"{name}_pt{kind.lower()}"
        if variant in defined:
            continue
        parameters = declared.get(name, [])
        text = ""
        if kind == "SZ" and name in defined and any(part.startswith("cudaStream_t ") for part in parameters):
            text = in_own_stream(name, parameters)
        elif kind == "DS" and {name, f"{name}Async"} <= defined:
            text = on_own_stream(name, parameters)
        variants[variant] = text
    known = {*declared, *declarations_of(interop), *ELSEWHERE, *variants}
    stubs = sorted(known - defined - {name for name, text in variants.items() if text})
    lines = [
        "// Generated from cuda_runtime_api.h; not for editing.",
        '#include "call.hpp"',
        "",
        "namespace allranks::cudart {",
        "const ErrorRow kErrorRows[] = {",
        *error_rows(errors, RUNTIME_ERROR),
        "    {-1, nullptr, nullptr}};",
        "}  // namespace allranks::cudart",
        "",
        '#define EXPORTED __attribute__((visibility("default")))',
        "namespace {",
        "cudaStream_t per_thread(cudaStream_t stream) { return stream == nullptr ? cudaStreamPerThread : stream; }",
        "}  // namespace",
        "",
        'extern "C" {',
        *(text for _, text in sorted(variants.items()) if text),
        "}",
        "",
    ]
    output.write_text("\n".join(lines), encoding="utf-8")
    lines = [
        "// Generated from cuda_runtime_api.h; not for editing.",
        '#include "generated.hpp"',
        "",
        'extern "C" {',
        "// Called with the arguments of the real function, which it leaves alone.",
        *(
            f'__attribute__((visibility("default"))) int {name}() '
            f'{{ return allranks::cudart::not_supported("{name}"); }}'
            for name in stubs
        ),
        "}",
        "",
    ]
    output.with_name(f"{output.stem}_stubs.cpp").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), [Path(name) for name in sys.argv[3:]])
