"""Shorter Programs: of fewer ranks and steps, with loops and compound steps for what is said in several."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any, Final

from allranks.conformance import program as p
from allranks.conformance.plan import Planned, Resolver, planned
from allranks.conformance.program import Operand, Program, Step

# What makes an object, and where a step says which one it means: its field, the Resolver's, and that of its plan.
_MAKERS: Final = ("connect", "open_group", "bind")
_REFERENCES: Final = {
    p.Put: ("channels", "channels", "target"),
    p.Bind: ("group", "groups", "group"),
    p.MulticastStore: ("binding", "bindings", "target"),
    p.MulticastReduce: ("binding", "bindings", "target"),
    p.Unbind: ("binding", "bindings", "target"),
    p.CloseGroup: ("group", "groups", "target"),
}
_FEW_STEPS: Final = 12  # of so many steps all pairs are tried


def replaced(program: Program, index: int, *steps: Step, count: int = 1) -> Program:
    """Give the Program with other steps in the place of one, or of several in a row."""
    return dataclasses.replace(program, steps=(*program.steps[:index], *steps, *program.steps[index + count :]))


def _without(steps: tuple[Step, ...], start: int, count: int) -> tuple[Step, ...]:
    return steps[:start] + steps[start + count :]


# --- ranks ---


def _named_ranks(program: Program) -> list[int]:
    """Give the ranks that something is said about."""
    named: set[int] = {*program.shift_bytes.exceptions, *(fault.rank for fault in program.faults)}
    for numbered in p.unrolled(program):
        step = numbered.step
        if isinstance(step, p.LocalStep):
            named.update(step.ranks or ())
        named.update(getattr(step, "empty_on", ()))
        for field in dataclasses.fields(step):
            value = getattr(step, field.name)
            if isinstance(value, Operand):
                named.update(value.exceptions)
    return sorted(rank for rank in named if rank < program.rank_count)


def _of_ranks(program: Program, kept: tuple[int, ...]) -> Program:
    """Give the Program with these ranks only, renumbered in their order."""
    number = {rank: place for place, rank in enumerate(kept)}

    def renumbered(value: Any) -> Any:
        return Operand(value.default, {number[r]: v for r, v in value.exceptions.items() if r in number})

    def of(step: Step) -> Step:
        if isinstance(step, p.Repeat):
            return dataclasses.replace(step, steps=tuple(map(of, step.steps)))
        changes: dict[str, Any] = {}
        for field in dataclasses.fields(step):
            value = getattr(step, field.name)
            if isinstance(value, Operand):
                changes[field.name] = renumbered(value)
            elif field.name == "ranks" and value is not None:
                changes["ranks"] = tuple(number[r] for r in value if r in number)
            elif field.name == "empty_on":
                changes["empty_on"] = tuple(number[r] for r in value if r in number)
            elif field.name == "source":
                changes["source"] = number.get(value % program.rank_count, 0)
        return dataclasses.replace(step, **changes) if changes else step

    return dataclasses.replace(
        program,
        rank_count=len(kept),
        steps=tuple(map(of, program.steps)),
        shift_bytes=renumbered(program.shift_bytes),
        faults=tuple(
            dataclasses.replace(fault, rank=number[fault.rank]) for fault in program.faults if fault.rank in number
        ),
    )


def fewer_ranks(program: Program) -> Iterator[Program]:
    """Two ranks, then three, then one less; first those that something is said about.

    One rank alone shows little of a communicator: what shows with two as well is shown with two.
    """
    count = program.rank_count
    if count == 1:
        yield dataclasses.replace(program, rank_count=2)
    named = _named_ranks(program)
    others = [rank for rank in range(count) if rank not in named]
    order = [*named, *others]
    for size in sorted({2, 3, count - 1}):
        if 1 < size < count:
            subsets = itertools.combinations(order, size)
            for kept in itertools.islice(subsets, 6 if size < count - 1 else count):
                yield _of_ranks(program, tuple(sorted(kept)))


# --- steps ---


def _width(step: Step) -> int:
    """Give as how many steps a step is run."""
    return sum(1 for _ in p.unrolled(Program(rank_count=1, steps=(step,))))


def doing_something(program: Program) -> Iterator[Program]:
    """Without the steps that nobody does."""
    done = {step.number for step in planned(program) if step.applies}
    numbers = itertools.count()

    def of(steps: tuple[Step, ...]) -> tuple[Step, ...]:
        kept: list[Step] = []
        for step in steps:
            own = set(itertools.islice(numbers, _width(step)))
            if own & done:
                kept.append(step)
        return tuple(kept)

    steps = of(program.steps)
    if steps != program.steps:
        yield dataclasses.replace(program, steps=steps)


def _blocks(program: Program) -> list[list[Planned]]:
    """Give what each step is planned as; a loop and a compound step are planned as many."""
    plan = iter(planned(program))
    return [list(itertools.islice(plan, _width(step))) for step in program.steps]


def _meaning_the_same(program: Program, kept: list[int]) -> Program:
    """Give the Program with these steps only, which mean the objects that they meant, whatever else is alive there."""
    before = _blocks(program)
    left = dataclasses.replace(program, steps=tuple(program.steps[index] for index in kept))
    after = _blocks(left)
    renamed = {
        old.target: new.target
        for place, index in enumerate(kept)
        for old, new in zip(before[index], after[place], strict=True)
        if old.operation in _MAKERS and old.applies and new.applies
    }
    resolver = Resolver(program.rank_count)
    steps = []
    for index in kept:
        step: Any = program.steps[index]
        if (reference := _REFERENCES.get(type(step))) is not None and before[index][0].applies:
            name, alive, meant = reference
            wanted = renamed.get(getattr(before[index][0], meant))
            among = [made.ordinal for made in getattr(resolver, alive)]
            if wanted in among:
                step = dataclasses.replace(step, **{name: among.index(wanted)})
        steps.append(step)
        for numbered in p.unrolled(Program(rank_count=program.rank_count, steps=(step,))):
            resolver.resolve(numbered.step)
    return dataclasses.replace(program, steps=tuple(steps))


def fewer_steps(program: Program) -> Iterator[Program]:
    """Without half of the steps, then a quarter, down to each; what is left also as meaning what it meant."""
    size = len(program.steps)
    count = max(1, size // 2)
    while count >= 1:
        for start in range(size - count, -1, -count):
            yield dataclasses.replace(program, steps=_without(program.steps, start, count))
            yield _meaning_the_same(program, [*range(start), *range(start + count, size)])
        if count == 1:
            return
        count //= 2


def without_pairs(program: Program) -> Iterator[Program]:
    """Without what only makes up for something else: a group that is opened and closed again, and shifts the others."""
    size = len(program.steps)
    if size <= _FEW_STEPS:
        for second, first in itertools.combinations(range(size - 1, -1, -1), 2):
            yield dataclasses.replace(program, steps=_without(_without(program.steps, second, 1), first, 1))


def flatter(program: Program) -> Iterator[Program]:
    """Loops with fewer rounds and fewer steps, or written out once; one part of a compound step."""
    for index, step in enumerate(program.steps):
        if not isinstance(step, p.Repeat):
            for part in _alone(step):
                yield replaced(program, index, part)
            continue
        yield replaced(program, index, *step.steps)
        for times in (1, 2, 3, step.times // 2, step.times - 1):
            if 0 < times < step.times:
                yield replaced(program, index, dataclasses.replace(step, times=times))
        for inner in range(len(step.steps) - 1, -1, -1):
            if len(step.steps) > 1:
                yield replaced(program, index, dataclasses.replace(step, steps=_without(step.steps, inner, 1)))
            for part in _alone(step.steps[inner]):
                body = (*step.steps[:inner], part, *step.steps[inner + 1 :])
                yield replaced(program, index, dataclasses.replace(step, steps=body))


def folded(program: Program) -> Iterator[Program]:
    """What is said twice is said once: equal steps, wherever they are, and equal blocks side by side, become a loop."""
    steps = program.steps
    for index, other in itertools.combinations(range(len(steps)), 2):
        first, second = steps[index], steps[other]
        if isinstance(second, p.Repeat):
            continue
        rest = dataclasses.replace(program, steps=_without(steps, other, 1))
        if first == second:
            yield replaced(rest, index, p.Repeat(times=2, steps=(second,)))
        elif isinstance(first, p.Repeat) and first.steps == (second,):
            yield replaced(rest, index, dataclasses.replace(first, times=first.times + 1))
    for index, step in enumerate(steps):
        if isinstance(step, p.Repeat) and len(step.steps) > 1 and all(inner == step.steps[0] for inner in step.steps):
            times = step.times * len(step.steps)
            yield replaced(program, index, p.Repeat(times=times, steps=step.steps[:1]))
    for width in range(len(steps) // 2, 1, -1):
        for start in range(len(steps) - 2 * width + 1):
            block = steps[start : start + width]
            if block == steps[start + width : start + 2 * width]:
                yield replaced(program, start, p.Repeat(times=2, steps=block), count=2 * width)


def looped(program: Program) -> Iterator[Program]:
    """What comes again, if not in the same words: the last steps twice, beginning with any of them, instead of all."""
    steps = program.steps
    if len(steps) <= _FEW_STEPS and not any(isinstance(step, p.Repeat) for step in steps):
        for start in range(1, len(steps) - 1):
            body = steps[start:]
            for turn in range(len(body)):
                loop = p.Repeat(times=2, steps=body[turn:] + body[:turn])
                yield dataclasses.replace(program, steps=(loop,))


# --- compound steps ---


def _alone(step: Step) -> Iterator[Step]:
    """Give each part of a compound step as a step of its own; a put is through the oldest channels then."""
    if isinstance(step, p.CompoundStep):
        for part in p.parts_of(step):
            yield dataclasses.replace(part, channels=0) if isinstance(part, p.Put) else part


def _joined(first: Planned, second: Planned) -> Step | None:
    """Give the compound step that does what the two do, if there is one: a put is through what the connect made."""
    match first.step, second.step:
        case p.Connect(), p.Put() if second.applies and second.target == first.target:
            put = second.step
            return p.Exchange(region=first.step.region, piece_bytes=put.piece_bytes, reach=put.reach)
        case p.Free(), p.Allocate() if first.step.ranks == second.step.ranks:
            new = second.step
            return p.Reallocate(
                ranks=new.ranks,
                buffer=first.step.buffer,
                size_bytes=new.size_bytes,
                kind=new.kind,
                placement=new.placement,
            )
    return None


def _as_one(steps: tuple[Step, ...], plan: list[Planned]) -> Iterator[tuple[Step, ...]]:
    """Two steps as one, at the place of the second or of the first; those side by side come first."""
    rest = iter(plan)
    blocks = [list(itertools.islice(rest, _width(step))) for step in steps]
    simple = [place for place, block in enumerate(blocks) if len(block) == 1]
    for first, second in sorted(itertools.combinations(simple, 2), key=lambda pair: pair[1] - pair[0]):
        joined = _joined(blocks[first][0], blocks[second][0])
        if joined is not None:
            yield (*steps[:first], *steps[first + 1 : second], joined, *steps[second + 1 :])
            if second - first > 1:
                yield (*steps[:first], joined, *steps[first + 1 : second], *steps[second + 1 :])


def fused(program: Program) -> Iterator[Program]:
    """What real programs do as one step is one: a put with its connect, an allocation with the free before it."""
    plan = list(planned(program))
    for steps in _as_one(program.steps, plan):
        yield dataclasses.replace(program, steps=steps)
    start = 0
    for index, step in enumerate(program.steps):
        if isinstance(step, p.Repeat):
            for steps in _as_one(step.steps, plan[start:]):
                yield replaced(program, index, dataclasses.replace(step, steps=steps))
        start += _width(step)
