"""What goes between a supervisor and its own ranks: a Program, resolved once for all of them, and what they saw.

This goes between processes of one run only, so it may be pickled. A dataclass with slots is slow to unpickle
as it is; here its fields are set one after the other.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import operator
import pickle
from collections.abc import Callable
from typing import Any

from allranks.conformance.plan import Planned
from allranks.conformance.program import Program


@functools.cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


def _made(kind: type, values: tuple[Any, ...]) -> Any:
    made: Any = object.__new__(kind)
    for name, value in zip(_names(kind), values, strict=True):
        object.__setattr__(made, name, value)
    return made


@functools.cache
def _taken_apart(kind: type) -> Callable[[Any], tuple[Any, ...]] | None:
    """Give what takes the values out of such an object, in the order of `_names`; None: it is no dataclass."""
    if not dataclasses.is_dataclass(kind):
        return None
    names = _names(kind)
    if len(names) > 1:
        return operator.attrgetter(*names)  # gives a tuple
    return lambda value: tuple(getattr(value, name) for name in names)


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        """Have dataclasses made by `_made`."""
        kind: type = type(value)
        take = _taken_apart(kind)
        return NotImplemented if take is None else (_made, (kind, take(value)))


def pickled(value: object) -> bytes:
    """Write anything, so that `pickle.loads` gives it back."""
    out = io.BytesIO()
    _Pickler(out, pickle.HIGHEST_PROTOCOL).dump(value)
    return out.getvalue()


def pack(program: Program, plan: list[Planned]) -> bytes:
    """Write a Program with its plan."""
    return pickled((program, plan))


def unpack(data: bytes) -> tuple[Program, list[Planned]]:
    """Give what was packed."""
    program: Program
    plan: list[Planned]
    program, plan = pickle.loads(data)
    return program, plan
