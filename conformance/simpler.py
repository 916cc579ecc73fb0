"""Simpler Programs: the same steps, with simpler values in them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from allranks.conformance import program as p
from allranks.conformance.program import Operand, Program, Region, Step
from allranks.conformance.shorter import replaced


def _simpler_value(value: Any) -> Iterator[Any]:
    if isinstance(value, Operand):
        for rank in value.exceptions:
            yield Operand(value.default, {r: v for r, v in value.exceptions.items() if r != rank})
        for simpler in _simpler_value(value.default):
            yield Operand(simpler, value.exceptions)
        for rank, other in value.exceptions.items():
            for simpler in _simpler_value(other):
                yield Operand(value.default, {**value.exceptions, rank: simpler})
    elif isinstance(value, Region):
        for name in ("offset_bytes", "buffer", "size_bytes"):
            if getattr(value, name):
                yield dataclasses.replace(value, **{name: 0})


_SIMPLEST: dict[str, tuple[Any, ...]] = {
    "size_bytes": (4096, 2 << 20),
    "capacity_bytes": (2 << 20, 4 << 20, 8 << 20),
    "placement": ("low",),
    "count": (1, 4),
    "dtype": ("int32", "float32"),
    "operation": ("sum",),
    "piece_bytes": (64,),
    "reach": (0,),
    "buffer": (0, 1),
    "binding": (0, 1),
    "group": (0,),
    "channels": (0, 1),
    "source": (0,),
    "index": (0,),
    "ranks": (None, (0,)),
    "kind": ("vmm",),
    "empty_on": ((),),
}


def _simpler_step(step: Step) -> Iterator[Step]:
    if isinstance(step, p.Repeat):
        for index, inner in enumerate(step.steps):
            for simpler in _simpler_step(inner):
                yield dataclasses.replace(step, steps=(*step.steps[:index], simpler, *step.steps[index + 1 :]))
        return
    for field in dataclasses.fields(step):
        value = getattr(step, field.name)
        for simpler in _simpler_value(value):
            yield dataclasses.replace(step, **{field.name: simpler})
        simple = _SIMPLEST.get(field.name, ())
        if not isinstance(value, Operand) and value in simple:
            simple = simple[: simple.index(value)]
        if not isinstance(value, Operand):
            for simpler in simple:
                yield dataclasses.replace(step, **{field.name: simpler})


def _simplest_step(step: Step) -> Step:
    """Give the step with every value as simple as it can be."""
    if isinstance(step, p.Repeat):
        return dataclasses.replace(step, steps=tuple(map(_simplest_step, step.steps)))
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(step):
        value = getattr(step, field.name)
        if isinstance(value, Operand):
            changes[field.name] = Operand(Region() if isinstance(value.default, Region) else 0)
        elif field.name in _SIMPLEST:
            changes[field.name] = _SIMPLEST[field.name][0]
    return dataclasses.replace(step, **changes)


def simplest_values(program: Program) -> Iterator[Program]:
    """All values at once, of all steps but those that say what one rank does alone, of all, and of each."""
    plain = dataclasses.replace(program, seed=0, shift_bytes=Operand(0))
    each = [_simplest_step(step) for step in program.steps]
    yield dataclasses.replace(plain, steps=tuple(each))
    yield dataclasses.replace(
        plain,
        steps=tuple(
            # `new` is of the kind of `old`, which mypy cannot see.
            dataclasses.replace(new, ranks=old.ranks) if isinstance(old, p.LocalStep) else new  # type: ignore[arg-type]
            for old, new in zip(program.steps, each, strict=True)
        ),
    )
    yield plain
    for index, step in enumerate(each):
        yield replaced(program, index, step)


def simpler_values(program: Program) -> Iterator[Program]:
    """Each value, one at a time."""
    if program.seed:
        yield dataclasses.replace(program, seed=0)
    for simpler in _simpler_value(program.shift_bytes):
        yield dataclasses.replace(program, shift_bytes=simpler)
    for index, step in enumerate(program.steps):
        for other in _simpler_step(step):
            yield replaced(program, index, other)
