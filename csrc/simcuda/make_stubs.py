"""Generate what the simulated driver needs to know of all of cuda.h.

Writes one C++ file with: a stub for every function of cuda.h that the given sources do not define, under every name
that the header gives it; the names and texts of all error codes; and the table that cuGetProcAddress answers from.

Usage: make_stubs.py CUDA_H OUTPUT SOURCE...
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

DEFINITION = re.compile(r"^CUresult CUDAAPI (cu[A-Z]\w*)\(", re.MULTILINE)
PROTOTYPE = re.compile(r"\bCUresult\s+(?:CUDAAPI\s+)?(cu[A-Z]\w*)\s*\(")
RENAMING = re.compile(r"^\s*#define\s+(cu[A-Z]\w*)\s+(?:__CUDA_API_PT(DS|SZ)\()?(cu[A-Z]\w*)\)?\s*$", re.MULTILINE)
ERROR = r"/\*\*(?P<comment>(?:(?!\*/).)*?)\*/\s*,?\s*(?P<name>{name})\s*=\s*(?P<code>\d+)"
DRIVER_ERROR = r"CUDA_(?:SUCCESS|ERROR_\w+)"
TYPEDEF = re.compile(r"\bCUDAAPI \*PFN_(cu[A-Z]\w*?)_v(\d+)(_ptds|_ptsz)?\)")


# Symbols that old programs are linked to, of functions whose newer version takes the same arguments (and, for
# cuGetProcAddress, one more, which may be null).
# A text that does not begin with a comma is the whole list.
OLD_SYMBOLS = {
    "cuCtxCreate": "a, 0, b, c",
    "cuCtxCreate_v2": "a, 0, b, c",
    "cuCtxDestroy": "",
    "cuCtxPopCurrent": "",
    "cuCtxPushCurrent": "",
    "cuDeviceGetUuid": "",
    "cuDevicePrimaryCtxRelease": "",
    "cuDevicePrimaryCtxReset": "",
    "cuDevicePrimaryCtxSetFlags": "",
    "cuEventDestroy": "",
    "cuEventElapsedTime": "",
    "cuGetProcAddress": ", 0",
    "cuMemHostRegister": "",
    "cuStreamDestroy": "",
}

# Versions between the first and the newest one, which the header no longer renames.
BETWEEN = {"cuCtxCreate_v2": "cuCtxCreate_v4"}


def without_comments(text: str) -> str:
    """Drop comments."""
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)


def names_of(header: str) -> tuple[set[str], dict[str, str]]:
    """Give every function name that the header mentions, and how it renames the plain ones."""
    text = without_comments(header)
    renamed: dict[str, str] = {}
    names = set(PROTOTYPE.findall(text))
    for plain, per_thread, target in RENAMING.findall(text):
        names |= {plain, target}
        if per_thread:
            names.add(f"{target}_pt{per_thread.lower()}")
            renamed.setdefault(plain, target)
        elif not target.endswith(("_ptds", "_ptsz")):
            renamed[plain] = target
    return names, renamed | BETWEEN


def error_rows(header: str, name: str = DRIVER_ERROR) -> list[str]:
    """Give one initializer a code with such a name: number, name, and the first sentence of its comment."""
    rows = []
    for match in re.finditer(ERROR.format(name=name), header, re.DOTALL):
        words = " ".join(line.strip(" *\t") for line in match["comment"].splitlines()).split()
        sentence = " ".join(words).replace("\\", "").replace('"', "'").split(". ")[0].rstrip(".")
        rows.append(f'    {{{match["code"]}, "{match["name"]}", "{sentence}"}},')
    return rows


def symbol_rows(typedefs: str, names: set[str]) -> list[str]:
    """Give one initializer a (plain name, version it came with): the symbol that it means.

    cudaTypedefs.h lists the versions of a function in the order in which their suffixes (none, _v2, _v3) came.
    """
    versions: dict[str, set[int]] = {}
    for plain, version, per_thread in TYPEDEF.findall(without_comments(typedefs)):
        if not per_thread:
            versions.setdefault(plain, set()).add(int(version))
    rows = []
    for plain, came in sorted(versions.items()):
        symbols = [name for name in (plain, f"{plain}_v2", f"{plain}_v3", f"{plain}_v4") if name in names]
        ordered = sorted(came)
        for version, symbol in zip(ordered[-len(symbols) :], symbols[-len(ordered) :], strict=True):
            rows.append(f'    {{"{plain}", {version}, "{symbol}"}},')
    return rows


def forwarder(name: str, target: str, extra: str) -> str:
    """Give the definition of an old symbol that calls the newer one with the same arguments, or as `extra` says."""
    registers = "unsigned long a, unsigned long b, unsigned long c, [[maybe_unused]] unsigned long d"
    one_more = ", unsigned long" if extra.startswith(",") else ""
    arguments = extra if extra and not one_more else f"a, b, c, d{extra}"
    return (
        f"int {target}(unsigned long, unsigned long, unsigned long, unsigned long{one_more});\n"
        f'__attribute__((visibility("default"))) int {name}({registers}) {{ return {target}({arguments}); }}'
    )


def rest_of(cuda_h: Path, defined: set[str]) -> str:
    """Give the C++ text of all of cuda.h but the functions `defined` (in sources, before renaming).

    The tables of error texts and symbols, a stub for each other function, and old symbols of those that are defined.
    """
    header = cuda_h.read_text(encoding="utf-8", errors="replace")
    typedefs = (cuda_h.parent / "cudaTypedefs.h").read_text(encoding="utf-8", errors="replace")
    names, renamed = names_of(header)
    implemented = {renamed.get(name, name) for name in defined}
    old = sorted(name for name in OLD_SYMBOLS if name not in implemented and renamed.get(name) in implemented)
    stubs = sorted(names - implemented - set(old))
    lines = [
        "// Generated from cuda.h; not for editing.",
        '#include "generated.hpp"',
        "",
        "namespace allranks::sim {",
        "const ErrorRow kErrorRows[] = {",
        *error_rows(header),
        "    {-1, nullptr, nullptr}};",
        "const SymbolRow kSymbolRows[] = {",
        *symbol_rows(typedefs, names),
        "    {nullptr, 0, nullptr}};",
        "}  // namespace allranks::sim",
        "",
        'extern "C" {',
        "// Called with the arguments of the real function, which it leaves alone.",
        *(
            f'__attribute__((visibility("default"))) int {name}() '
            f'{{ return allranks::sim::not_supported_call("{name}"); }}'
            for name in stubs
        ),
        "// Pass their arguments, which lie in registers, on as they are.",
        *(forwarder(name, renamed[name], OLD_SYMBOLS[name]) for name in old),
        "}",
        "",
    ]
    return "\n".join(lines)


def main(cuda_h: Path, output: Path, sources: list[Path]) -> None:
    """Write the generated file."""
    defined = {name for source in sources for name in DEFINITION.findall(source.read_text(encoding="utf-8"))}
    output.write_text(rest_of(cuda_h, defined), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), [Path(name) for name in sys.argv[3:]])
