"""Machines by name or from a file: TOML or JSON with fields of `Machine`, and ``base``, the machine that it changes."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from pathlib import Path
from typing import Any, Final, get_args

from allranks.errors import UsageError
from allranks.sim.machines import MACHINES, BindingOnFree, Machine, MulticastCharge, machine

_DEFAULT_BASE: Final = "h100"
_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "multicast_charge": get_args(MulticastCharge),
    "binding_on_free": get_args(BindingOnFree),
}


def machine_of(text: str, *, devices: int | None = None) -> Machine:
    """Give the machine that a name or the path of a file stands for.

    Parameters
    ----------
    text : str
        One of `MACHINES`, or a file whose name ends in ``.toml`` or ``.json``.
    devices : int, optional
        How many GPUs it has instead.

    Raises
    ------
    allranks.errors.UsageError
        If there is neither, or the file does not describe a machine.
    """
    if text in MACHINES or Path(text).suffix not in (".toml", ".json"):
        return machine(text, devices=devices)
    fields = _read(Path(text))
    base = fields.pop("base", _DEFAULT_BASE)
    for name, value in fields.items():
        _check(text, name, value)
    found = machine(str(base), **fields)
    return found if devices is None else dataclasses.replace(found, device_count=devices)


def _read(path: Path) -> dict[str, Any]:
    try:
        words = path.read_text(encoding="utf-8")
        fields = tomllib.loads(words) if path.suffix == ".toml" else json.loads(words)
    except OSError as error:
        raise UsageError(f"machine={str(path)!r}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"machine={str(path)!r}: {error}") from None
    if not isinstance(fields, dict):
        raise UsageError(f"machine={str(path)!r}: fields of a machine, as a table")
    return fields


def _check(text: str, name: str, value: object) -> None:
    known = {field.name: str(field.type) for field in dataclasses.fields(Machine)}
    if name not in known:
        raise UsageError(f"machine={text!r}: {name}={value!r}: a machine has no such field")
    wanted = {"int": int, "bool": bool}.get(known[name], str)
    if type(value) is not wanted:
        raise UsageError(f"machine={text!r}: {name}={value!r}: of type {wanted.__name__}")
    choices = _CHOICES.get(name)
    if choices is not None and value not in choices:
        raise UsageError(f"machine={text!r}: {name}={value!r}: one of {', '.join(choices)}")
