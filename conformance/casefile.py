"""Case files: Programs as JSON, to be kept, sent and replayed.

The format has a version. Reading is strict: a file that was cut off, is of another version, or was edited into
something that no Program is, gives one error that names the place and the rule.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from allranks import sim
from allranks.conformance import program as program_module
from allranks.conformance.program import STEP_TYPES, Operand, Program
from allranks.errors import UsageError

VERSION: Final = 1
_MOST: Final = 2**63 - 1
_MOST_STEPS: Final = 100_000
_MOST_DIGITS: Final = 4  # of a rank
_MOST_SHIFT: Final = 1 << 47
_MOST_CODES: Final = 1 << 31  # a CUresult is an int

_BY_NAME: Final = {kind.__name__: kind for kind in STEP_TYPES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A Program with what it is about.

    Parameters
    ----------
    program : Program
        What to run.
    title : str
        One line.
    origins : tuple of str
        Public reports that it comes from, as ``owner/repo#number``.
    requirements : tuple of str
        Requirements that a communicator with the fault breaks.
    machine : str
        Simulated machine that it wants, by name; empty for any.
    """

    program: Program
    title: str = ""
    origins: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()
    machine: str = ""


def _encode(value: Any) -> Any:
    if isinstance(value, Operand):
        out: dict[str, Any] = {"default": _encode(value.default)}
        if value.exceptions:
            out["except"] = {str(rank): _encode(other) for rank, other in sorted(value.exceptions.items())}
        return out
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {
            field.name: _encode(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if not _is_default(field, getattr(value, field.name))
        }
        return {"step": type(value).__name__, **fields} if type(value) in STEP_TYPES else fields
    if isinstance(value, tuple):
        return [_encode(item) for item in value]
    return value


def _is_default(field: dataclasses.Field[Any], value: Any) -> bool:
    if field.default is not dataclasses.MISSING:
        return bool(value == field.default)
    return field.default_factory is not dataclasses.MISSING and bool(value == field.default_factory())


def dumps(case: Case) -> str:
    """Write a case as JSON text."""
    fields = {name: value for name, value in _encode(case).items() if name != "program"}
    return json.dumps({"allranks_case": VERSION, **fields, "program": _encode(case.program)}, indent=1) + "\n"


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind, vars(program_module))


class _Reader:
    """Decodes JSON values by the type annotations of the dataclasses."""

    def __init__(self, source: str) -> None:
        self.source = source

    def fail(self, place: str, value: Any, rule: str) -> UsageError:
        shown = repr(value)
        return UsageError(f"{self.source}: {place}={shown if len(shown) < 80 else shown[:77] + '...'}: {rule}")

    def read(self, hint: Any, value: Any, place: str) -> Any:
        origin = typing.get_origin(hint)
        arguments = typing.get_args(hint)
        if origin is Operand:
            return self.operand(arguments[0], value, place)
        if origin is tuple:
            return self.sequence(arguments, value, place)
        if origin is typing.Literal:
            if value not in arguments:
                raise self.fail(place, value, f"one of {', '.join(map(str, arguments))}")
            return value
        if origin in (typing.Union, types.UnionType):
            return self.union(arguments, value, place)
        if hint in (int, str):
            if type(value) is not hint:
                raise self.fail(place, value, f"wants {hint.__name__}")
            if hint is int and value < 0:
                raise self.fail(place, value, "is not negative")
            if hint is int and value > _MOST:
                raise self.fail(place, value, f"is at most {_MOST}")
            return value
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            return self.record(hint, value, place)
        raise self.fail(place, value, f"cannot be read as {hint}")

    def operand(self, hint: Any, value: Any, place: str) -> Operand[Any]:
        if not isinstance(value, Mapping) or not set(value) <= {"default", "except"} or "default" not in value:
            raise self.fail(place, value, "wants default, and except if some ranks differ")
        exceptions = {}
        differing = value.get("except", {})
        if not isinstance(differing, Mapping):
            raise self.fail(f"{place}.except", differing, "wants ranks and values")
        for rank, other in differing.items():
            if not rank.isdecimal() or len(rank) > _MOST_DIGITS:
                raise self.fail(f"{place}.except", rank, "keys are ranks")
            exceptions[int(rank)] = self.read(hint, other, f"{place}.except.{rank}")
        return Operand(self.read(hint, value["default"], f"{place}.default"), exceptions)

    def sequence(self, arguments: tuple[Any, ...], value: Any, place: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise self.fail(place, value, "wants a list")
        if arguments[-1] is Ellipsis:
            return tuple(self.read(arguments[0], item, f"{place}[{i}]") for i, item in enumerate(value))
        if len(value) != len(arguments):
            raise self.fail(place, value, f"wants {len(arguments)} items")
        return tuple(
            self.read(hint, item, f"{place}[{i}]") for i, (hint, item) in enumerate(zip(arguments, value, strict=True))
        )

    def union(self, arguments: tuple[Any, ...], value: Any, place: str) -> Any:
        if value is None and type(None) in arguments:
            return None
        others = [hint for hint in arguments if hint is not type(None)]
        if len(others) == 1:
            return self.read(others[0], value, place)
        name = value.get("step") if isinstance(value, Mapping) else None
        kind = _BY_NAME.get(name) if isinstance(name, str) else None
        if kind is None:
            raise self.fail(f"{place}.step", name, f"one of {', '.join(_BY_NAME)}")
        return self.record(kind, {key: item for key, item in value.items() if key != "step"}, place)

    def record(self, kind: type, value: Any, place: str) -> Any:
        if not isinstance(value, Mapping):
            raise self.fail(place, value, f"wants the fields of {kind.__name__}")
        hints = _hints(kind)
        fields = {field.name: field for field in dataclasses.fields(kind)}
        for name in value:
            if name not in fields:
                raise self.fail(f"{place}.{name}", value[name], f"{kind.__name__} has no such field")
        for name, field in fields.items():
            needed = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
            if needed and name not in value:
                raise self.fail(f"{place}.{name}", None, f"{kind.__name__} needs it")
        return kind(**{name: self.read(hints[name], item, f"{place}.{name}") for name, item in value.items()})


def _count(steps: tuple[program_module.Step, ...]) -> int:
    """Give how many steps are run, with every `Repeat` and compound step written out."""
    return sum(
        step.times * max(1, _count(step.steps))
        if isinstance(step, program_module.Repeat)
        else len(program_module.parts_of(step))
        for step in steps
    )


@functools.cache
def _calls() -> frozenset[str]:
    """Give the names of the driver calls that can be made to fail."""
    names: set[str] = set()
    with contextlib.suppress(ValueError):
        for number in itertools.count(1):
            names.add(sim.call_name(number))
    return frozenset(names)


def _check(reader: _Reader, program: Program) -> None:
    """Check what types do not say."""
    if not 1 <= program.rank_count <= 1024:
        raise reader.fail("program.rank_count", program.rank_count, "from 1 to 1024")
    for shift in (program.shift_bytes.default, *program.shift_bytes.exceptions.values()):
        if shift >= _MOST_SHIFT:
            raise reader.fail("program.shift_bytes", shift, f"is below {_MOST_SHIFT}, the end of a process's addresses")
    for index, fault in enumerate(program.faults):
        if fault.rank >= program.rank_count:
            raise reader.fail(f"program.faults[{index}].rank", fault.rank, f"there are {program.rank_count} ranks")
        if fault.call not in _calls():
            raise reader.fail(f"program.faults[{index}].call", fault.call, "no driver call of that name is simulated")
        if not 1 <= fault.code < _MOST_CODES:
            raise reader.fail(f"program.faults[{index}].code", fault.code, f"from 1 to {_MOST_CODES - 1}")
    count = _count(program.steps)
    if count > _MOST_STEPS:
        raise reader.fail("program.steps", count, f"at most {_MOST_STEPS} steps in all, with every Repeat written out")
    for numbered in program_module.unrolled(program):
        step = numbered.step
        place = f"step {numbered.number}"
        dtype = getattr(step, "dtype", None)
        if dtype is not None and dtype not in program_module.DTYPES:
            raise reader.fail(f"{place}.dtype", dtype, f"one of {', '.join(program_module.DTYPES)}")
        operation = getattr(step, "operation", None)
        if operation is not None and operation not in program_module.OPERATIONS:
            raise reader.fail(f"{place}.operation", operation, f"one of {', '.join(program_module.OPERATIONS)}")
        if getattr(step, "size_bytes", 1) < 1 or getattr(step, "capacity_bytes", 1) < 1:
            raise reader.fail(f"{place}", type(step).__name__, "sizes are at least 1 byte")


def loads(text: str, source: str = "case") -> Case:
    """Read a case from JSON text.

    Parameters
    ----------
    text : str
        What `dumps` wrote.
    source : str
        Where it comes from, for errors.

    Raises
    ------
    allranks.errors.UsageError
        If the text is no case of this version; the message names the place and the rule.
    """
    reader = _Reader(source)
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise UsageError(f"{source}: line {error.lineno} column {error.colno}: not JSON, or cut off") from None
    except RecursionError:
        raise UsageError(f"{source}: nested too deeply") from None
    except ValueError as error:
        raise UsageError(f"{source}: {error}") from None
    if not isinstance(value, dict) or "allranks_case" not in value:
        raise UsageError(f"{source}: no case file (allranks_case is missing)")
    version = value.pop("allranks_case")
    if type(version) is not int or version != VERSION:
        raise UsageError(f"{source}: allranks_case={version!r}: this version of allranks reads {VERSION}")
    try:
        case: Case = reader.record(Case, value, "case")
        _check(reader, case.program)
    except RecursionError:
        raise UsageError(f"{source}: nested too deeply") from None
    return case


def load(path: Path) -> Case:
    """Read a case file.

    Raises
    ------
    allranks.errors.UsageError
        If it cannot be read, or is no case.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None
    return loads(text, str(path))
