"""Making a failing Program small: delta debugging on its steps, then on what they say.

Greedy and deterministic: a change is kept if the failure is still there. Schedules are reduced last, so that what is
left of them is needed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from allranks.conformance import program as p
from allranks.conformance.program import Operand, Program, Region, Step

StillFails = Callable[[Program], bool]


def _without(steps: tuple[Step, ...], start: int, count: int) -> tuple[Step, ...]:
    return steps[:start] + steps[start + count :]


def _fewer_steps(program: Program) -> Iterator[Program]:
    size = len(program.steps)
    count = max(1, size // 2)
    while count >= 1:
        for start in range(size - count, -1, -count):
            yield dataclasses.replace(program, steps=_without(program.steps, start, count))
        if count == 1:
            return
        count //= 2


def _flatter(program: Program) -> Iterator[Program]:
    """Loops with fewer rounds and fewer steps, or written out."""
    for index, step in enumerate(program.steps):
        if not isinstance(step, p.Repeat):
            continue
        options: list[tuple[Step, ...]] = [step.steps]
        options += [
            (dataclasses.replace(step, times=t),)
            for t in (1, 2, 3, step.times // 2, step.times - 1)
            if 0 < t < step.times
        ]
        options += [
            (dataclasses.replace(step, steps=_without(step.steps, inner, 1)),)
            for inner in range(len(step.steps))
            if len(step.steps) > 1
        ]
        for option in options:
            yield dataclasses.replace(program, steps=(*program.steps[:index], *option, *program.steps[index + 1 :]))


def _fewer_ranks(program: Program) -> Iterator[Program]:
    for count in range(1, program.rank_count):
        yield dataclasses.replace(program, rank_count=count)


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


def _simpler(program: Program) -> Iterator[Program]:
    if program.seed:
        yield dataclasses.replace(program, seed=0)
    for simpler in _simpler_value(program.shift_bytes):
        yield dataclasses.replace(program, shift_bytes=simpler)
    for index, step in enumerate(program.steps):
        for other in _simpler_step(step):
            yield dataclasses.replace(program, steps=(*program.steps[:index], other, *program.steps[index + 1 :]))
    for index in range(len(program.schedule)):
        yield dataclasses.replace(program, schedule=program.schedule[:index] + program.schedule[index + 1 :])


def reduce_program(program: Program, still_fails: StillFails, *, max_runs: int = 2000) -> Program:
    """Give a small Program that still fails.

    Parameters
    ----------
    program : Program
        One that fails.
    still_fails : callable
        Whether a Program shows the failure that is meant.
    max_runs : int
        How many Programs to try at most.
    """
    runs = 0
    seen: set[str] = set()
    changed = True
    while changed:
        changed = False
        for candidates in (_fewer_ranks, _fewer_steps, _flatter, _simpler):
            progress = True
            while progress:
                progress = False
                for candidate in candidates(program):
                    if _known(seen, candidate):
                        continue
                    runs += 1
                    if runs > max_runs:
                        return program
                    if still_fails(candidate):
                        program = candidate
                        progress = changed = True
                        break
    return program


def _known(seen: set[str], program: Program) -> bool:
    key = repr(program)
    if key in seen:
        return True
    seen.add(key)
    return False
