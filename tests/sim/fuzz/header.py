"""What cuda.h declares, as `ctypes` can call it: functions and their parameters, structs, enumerations, handles.

Names and declarations are found by what the stubs are made with (`csrc/simcuda/make_stubs.py`, `make_client.py`), so
that a function which is simulated from now on is known here without more ado.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[3]
SIMCUDA: Final = ROOT / "csrc" / "simcuda"

SCALARS: Final[dict[str, Any]] = {
    "char": ctypes.c_char,
    "signed char": ctypes.c_int8,
    "unsigned char": ctypes.c_uint8,
    "short": ctypes.c_int16,
    "unsigned short": ctypes.c_uint16,
    "int": ctypes.c_int32,
    "unsigned int": ctypes.c_uint32,
    "unsigned": ctypes.c_uint32,
    "long": ctypes.c_int64,
    "unsigned long": ctypes.c_uint64,
    "long long": ctypes.c_int64,
    "unsigned long long": ctypes.c_uint64,
    "size_t": ctypes.c_uint64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    **{f"{sign}int{bits}_t": getattr(ctypes, f"c_{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "cuuint32_t": ctypes.c_uint32,
    "cuuint64_t": ctypes.c_uint64,
    "GLuint": ctypes.c_uint32,
    "GLenum": ctypes.c_uint32,
    "VdpDevice": ctypes.c_uint32,
}
FUNCTION_FIELD: Final = "a function of the program"
DROPPED: Final = frozenset({"const", "struct", "union", "enum", "volatile", "CUDA_CB", "CUDAAPI"})
TOKEN: Final = re.compile(r"[A-Za-z_]\w*|\d\w*|\S")
AGGREGATE: Final = re.compile(r"\btypedef\s+(struct|union)\s+\w*\s*\{")
ENUMERATION: Final = re.compile(r"\btypedef\s+enum\s+\w*\s*\{(?P<body>[^}]*)\}\s*(?P<name>\w+)\s*;")
ALIAS: Final = re.compile(r"\btypedef\s+((?:\w+\s+)*?\w+)\s+(\w+)\s*;")
HANDLE: Final = re.compile(r"\btypedef\s+struct\s+\w+\s*\*\s*(\w+)\s*;")
FUNCTION: Final = re.compile(r"\btypedef\s+\w+\s*\(\s*(?:CUDA_CB\s*)?\*\s*(\w+)\s*\)")
PROTOTYPE: Final = re.compile(r"\bCUresult\s+CUDAAPI\s+cu[A-Z]\w*\s*\([^)]*\)\s*;")
CONSTANT: Final = re.compile(r"^#define\s+(\w+)\s+(\d+|0x[0-9a-fA-F]+)\s*$", re.MULTILINE)


class UnknownTypeError(Exception):
    """Something in the header that is not understood here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Type:
    """The type of a parameter or a field: a name of the header, and how often a pointer to it."""

    name: str
    pointers: int = 0
    constant: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter of a function."""

    name: str
    type: Type


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function, by the name of its symbol."""

    symbol: str
    plain: str
    parameters: tuple[Parameter, ...]
    simulated: bool


@dataclass(slots=True)
class Header:
    """All of it."""

    scalars: dict[str, Any] = field(default_factory=lambda: dict(SCALARS))
    enumerations: dict[str, list[int]] = field(default_factory=dict)
    handles: set[str] = field(default_factory=set)
    functions_of_program: set[str] = field(default_factory=lambda: {FUNCTION_FIELD})
    aggregates: dict[str, type[ctypes.Structure | ctypes.Union]] = field(default_factory=dict)
    fields: dict[type[Any], dict[str, Type]] = field(default_factory=dict)
    constants: dict[str, int] = field(default_factory=dict)

    def plain_name(self, name: str) -> str:
        """Give the name without the version that a typedef puts behind it."""
        return re.sub(r"_v\d$", "", name)

    def value_type(self, of: Type) -> Any:
        """Give the type that `ctypes` passes."""
        if of.pointers or of.name in self.handles or of.name in self.functions_of_program:
            return ctypes.c_void_p
        if of.name in self.enumerations:
            return ctypes.c_int32
        found = self.aggregates.get(of.name) or self.scalars.get(of.name)
        if found is None:
            raise UnknownTypeError(of.name)
        return found


def type_of(tokens: list[str]) -> Type:
    """Read what comes before a declared name."""
    words = [token for token in tokens if token not in DROPPED and token != "*"]
    first = tokens.index("*") if "*" in tokens else len(tokens)
    return Type(name=" ".join(words), pointers=tokens.count("*"), constant="const" in tokens[:first])


class _Members:
    """Reads the members of a struct or union."""

    def __init__(self, header: Header, tokens: Iterator[str]) -> None:
        self._header = header
        self._tokens = tokens
        self._nameless = 0

    def read(self, kind: str) -> type[Any]:
        """Read up to the closing brace."""
        fields: list[tuple[str, Any]] = []
        types: dict[str, Type] = {}
        nameless: list[str] = []
        words: list[str] = []
        for token in self._tokens:
            if token == "}":
                break
            if token == "{":
                inner = self.read("union" if "union" in words else "struct")
                name, count = self._declared(list(self._until(";")))
                if not name:
                    name = f"nameless{self._nameless}"
                    self._nameless += 1
                    nameless.append(name)
                fields.append((name, inner * count if count else inner))
                words = []
            elif token == ";":
                self._member(words, fields, types)
                words = []
            else:
                words.append(token)
        base = ctypes.Union if kind == "union" else ctypes.Structure
        made = type(kind, (base,), {"_anonymous_": tuple(nameless), "_fields_": fields})
        self._header.fields[made] = types
        return made

    def _member(self, words: list[str], fields: list[tuple[str, Any]], types: dict[str, Type]) -> None:
        stop = words.index("[") if "[" in words else len(words)
        if "(" in words[:stop]:
            if "*" not in words:
                raise UnknownTypeError(" ".join(words))
            name = words[words.index("*") + 1]
            fields.append((name, ctypes.c_void_p))
            types[name] = Type(name=FUNCTION_FIELD)
            return
        name, count = self._declared(words[stop - 1 :])
        of = type_of(words[: stop - 1])
        value = self._header.value_type(of)
        fields.append((name, value * count if count else value))
        types[name] = of

    def _until(self, end: str) -> Iterator[str]:
        for token in self._tokens:
            if token == end:
                return
            yield token

    def _declared(self, words: list[str]) -> tuple[str, int]:
        """Give a name and how many elements the array has; 0: none."""
        if not words:
            return "", 0
        if len(words) == 1:
            return words[0], 0
        count = 1
        for size in re.findall(r"\[([^\]]*)\]", " ".join(words)):
            count *= self._number(size)
        return words[0], count

    def _number(self, text: str) -> int:
        known = re.sub(r"sizeof \( (\w+) \)", lambda m: str(self._size(m[1])), text.strip())
        known = re.sub(r"[A-Za-z_]\w*", lambda m: str(self._constant(m[0])), known)
        if not re.fullmatch(r"[\d\s+*()-]+", known):
            raise UnknownTypeError(text)
        return int(eval(known))  # digits and operators only

    def _constant(self, name: str) -> int:
        if name not in self._header.constants:
            raise UnknownTypeError(name)
        return self._header.constants[name]

    def _size(self, name: str) -> int:
        return ctypes.sizeof(self._header.value_type(Type(name=name)))


def _enumerators(body: str) -> list[int]:
    values: list[int] = []
    following = 0
    for part in filter(None, map(str.strip, body.split(","))):
        _, given, text = part.partition("=")
        if given:
            number = re.fullmatch(r"\(?(-?(?:0x)?[0-9a-fA-F]+)[uU]?\)?", text.strip())
            shift = re.fullmatch(r"\(?\s*(\d+)[uU]?\s*<<\s*(\d+)\s*\)?", text.strip())
            if number:
                following = int(number[1], 0)
            elif shift:
                following = int(shift[1]) << int(shift[2])
            else:
                continue
        values.append(following)
        following += 1
    return sorted({value for value in values if -(1 << 31) <= value < 1 << 32})


def read_types(text: str) -> Header:
    """Read the typedefs of a header without comments."""
    header = Header(constants={name: int(value, 0) for name, value in CONSTANT.findall(text)})
    header.enumerations = {match["name"]: _enumerators(match["body"]) for match in ENUMERATION.finditer(text)}
    header.handles = set(HANDLE.findall(text))
    header.functions_of_program |= set(FUNCTION.findall(text))
    text = re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE)
    starts = [(match.start(), match) for match in AGGREGATE.finditer(text)]
    starts += [(match.start(), match) for match in ALIAS.finditer(text)]
    for _, match in sorted(starts, key=lambda start: start[0]):
        with contextlib.suppress(UnknownTypeError):
            if match.re is AGGREGATE:
                tokens = (token[0] for token in TOKEN.finditer(text, match.end()))
                made = _Members(header, tokens).read(match[1])
                header.aggregates[next(tokens)] = made
            else:
                target = type_of(match[1].split()).name
                everything: tuple[dict[str, Any], ...] = (header.scalars, header.aggregates, header.enumerations)
                for known in everything:
                    if target in known:
                        known.setdefault(match[2], known[target])  # what follows is for other machines
    return header


def _tool(name: str) -> Any:
    sys.path.insert(0, str(SIMCUDA))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(SIMCUDA))


def cuda_h() -> Path:
    """Find the header that the build finds."""
    finder = [sys.executable, str(ROOT / "csrc" / "cmake" / "find_cuda_headers.py")]
    folder = subprocess.run(finder, capture_output=True, text=True, check=True).stdout
    return Path(folder) / "cuda.h"


def read() -> tuple[Header, list[Function]]:
    """Read cuda.h: its types, and every function that the simulated driver exports."""
    stubs, client = _tool("make_stubs"), _tool("make_client")
    whole = cuda_h().read_text(encoding="utf-8", errors="replace")
    text: str = stubs.without_comments(whole)
    names, renamed = stubs.names_of(whole)
    sources = sorted((SIMCUDA / "entry").glob("*.cpp"))
    defined = {name for source in sources for name in stubs.DEFINITION.findall(source.read_text(encoding="utf-8"))}
    simulated = {renamed.get(name, name) for name in defined}
    plain_of = {renamed[plain]: plain for plain in sorted(renamed, key=len, reverse=True)}  # without a version, if any
    header = read_types(text)
    text = "\n".join(PROTOTYPE.findall(text))  # shorter to search, again and again
    functions = []
    for symbol in sorted(names):
        base = re.sub(r"_pt(ds|sz)$", "", symbol)
        plain = plain_of.get(symbol) or plain_of.get(base) or base
        try:
            declared = client.parameters_of(text, plain)
        except SystemExit:
            declared = client.parameters_of(text, re.sub(r"_v\d$", "", plain))
        parameters = tuple(_parameter(part, client.argument_name(part)) for part in declared)
        with contextlib.suppress(UnknownTypeError):
            for parameter in parameters:
                header.value_type(parameter.type)
            functions.append(Function(symbol=symbol, plain=plain, parameters=parameters, simulated=symbol in simulated))
    return header, functions


def _parameter(declared: str, name: str) -> Parameter:
    tokens = TOKEN.findall(declared.replace("[]", ""))
    of = type_of(tokens[:-1])
    array = 1 if declared.rstrip().endswith("[]") else 0
    return Parameter(name=name, type=Type(name=of.name, pointers=of.pointers + array, constant=of.constant))
