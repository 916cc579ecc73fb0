"""Making a failing Program small: delta debugging on its steps, then on what they say.

Greedy and deterministic: a change is kept if the failure is still there, and the search goes on where it is, so that
what did not help is tried again only once all the rest has been. Large changes come first: half of the steps, all
values of a step, all steps at once. A schedule that is not needed goes first; one that is needed is reduced last.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any, Final

from allranks.conformance import program as p
from allranks.conformance.plan import Planned, Resolver, planned
from allranks.conformance.program import Operand, Program, Region, Step

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

StillFails = Callable[[Program], bool]
Candidates = Callable[[Program], Iterator[Program]]


def _replaced(program: Program, index: int, *steps: Step, count: int = 1) -> Program:
    return dataclasses.replace(program, steps=(*program.steps[:index], *steps, *program.steps[index + count :]))


def _without(steps: tuple[Step, ...], start: int, count: int) -> tuple[Step, ...]:
    return steps[:start] + steps[start + count :]


# --- ranks ---


def _named_ranks(program: Program) -> list[int]:
    """Give the ranks that something is said about."""
    named: set[int] = set(program.shift_bytes.exceptions)
    for numbered in p.unrolled(program):
        step = numbered.step
        if isinstance(step, p.LocalStep):
            named.update(step.ranks or ())
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
            elif field.name == "source":
                changes["source"] = number.get(value % program.rank_count, 0)
        return dataclasses.replace(step, **changes) if changes else step

    return dataclasses.replace(
        program,
        rank_count=len(kept),
        steps=tuple(map(of, program.steps)),
        shift_bytes=renumbered(program.shift_bytes),
    )


def _fewer_ranks(program: Program) -> Iterator[Program]:
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


def _doing_something(program: Program) -> Iterator[Program]:
    """Without the steps that nobody does."""
    done = {step.number for step in planned(program) if step.applies}
    numbers = itertools.count()

    def of(steps: tuple[Step, ...]) -> tuple[Step, ...]:
        kept: list[Step] = []
        for step in steps:
            if isinstance(step, p.Repeat):
                width = sum(1 for _ in p.unrolled(Program(rank_count=1, steps=(step,))))
                own = set(itertools.islice(numbers, width))
                if own & done:
                    kept.append(step)
            elif next(numbers) in done:
                kept.append(step)
        return tuple(kept)

    steps = of(program.steps)
    if steps != program.steps:
        yield dataclasses.replace(program, steps=steps)


def _blocks(program: Program) -> list[list[Planned]]:
    """Give what each step is planned as; a loop is planned as many."""
    plan = iter(planned(program))
    widths = (sum(1 for _ in p.unrolled(Program(rank_count=1, steps=(step,)))) for step in program.steps)
    return [list(itertools.islice(plan, width)) for width in widths]


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


def _fewer_steps(program: Program) -> Iterator[Program]:
    size = len(program.steps)
    count = max(1, size // 2)
    while count >= 1:
        for start in range(size - count, -1, -count):
            yield dataclasses.replace(program, steps=_without(program.steps, start, count))
            yield _meaning_the_same(program, [*range(start), *range(start + count, size)])
        if count == 1:
            return
        count //= 2


def _without_pairs(program: Program) -> Iterator[Program]:
    """Without what only makes up for something else: a group that is opened and closed again, and shifts the others."""
    size = len(program.steps)
    if size <= _FEW_STEPS:
        for second, first in itertools.combinations(range(size - 1, -1, -1), 2):
            yield dataclasses.replace(program, steps=_without(_without(program.steps, second, 1), first, 1))


def _flatter(program: Program) -> Iterator[Program]:
    """Loops with fewer rounds and fewer steps, or written out once."""
    for index, step in enumerate(program.steps):
        if not isinstance(step, p.Repeat):
            continue
        yield _replaced(program, index, *step.steps)
        for times in (1, 2, 3, step.times // 2, step.times - 1):
            if 0 < times < step.times:
                yield _replaced(program, index, dataclasses.replace(step, times=times))
        for inner in range(len(step.steps) - 1, -1, -1):
            if len(step.steps) > 1:
                yield _replaced(program, index, dataclasses.replace(step, steps=_without(step.steps, inner, 1)))


def _folded(program: Program) -> Iterator[Program]:
    """What is said twice is said once: equal steps, wherever they are, and equal blocks side by side, become a loop."""
    steps = program.steps
    for index, other in itertools.combinations(range(len(steps)), 2):
        first, second = steps[index], steps[other]
        if isinstance(second, p.Repeat):
            continue
        rest = dataclasses.replace(program, steps=_without(steps, other, 1))
        if first == second:
            yield _replaced(rest, index, p.Repeat(times=2, steps=(second,)))
        elif isinstance(first, p.Repeat) and first.steps == (second,):
            yield _replaced(rest, index, dataclasses.replace(first, times=first.times + 1))
    for index, step in enumerate(steps):
        if isinstance(step, p.Repeat) and len(step.steps) > 1 and all(inner == step.steps[0] for inner in step.steps):
            times = step.times * len(step.steps)
            yield _replaced(program, index, p.Repeat(times=times, steps=step.steps[:1]))
    for width in range(len(steps) // 2, 1, -1):
        for start in range(len(steps) - 2 * width + 1):
            block = steps[start : start + width]
            if block == steps[start + width : start + 2 * width]:
                yield _replaced(program, start, p.Repeat(times=2, steps=block), count=2 * width)


def _looped(program: Program) -> Iterator[Program]:
    """What comes again, if not in the same words: the last steps twice, beginning with any of them, instead of all."""
    steps = program.steps
    if len(steps) <= _FEW_STEPS and not any(isinstance(step, p.Repeat) for step in steps):
        for start in range(1, len(steps) - 1):
            body = steps[start:]
            for turn in range(len(body)):
                loop = p.Repeat(times=2, steps=body[turn:] + body[:turn])
                yield dataclasses.replace(program, steps=(loop,))


# --- what they say ---


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


def _simplest(program: Program) -> Iterator[Program]:
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
        yield _replaced(program, index, step)


def _simpler(program: Program) -> Iterator[Program]:
    if program.seed:
        yield dataclasses.replace(program, seed=0)
    for simpler in _simpler_value(program.shift_bytes):
        yield dataclasses.replace(program, shift_bytes=simpler)
    for index, step in enumerate(program.steps):
        for other in _simpler_step(step):
            yield _replaced(program, index, other)


# --- schedules ---


def _fewer_deviations(program: Program) -> Iterator[Program]:
    schedule = program.schedule
    for count in sorted({len(schedule), len(schedule) // 2, 1}, reverse=True):
        for start in range(0, len(schedule), max(1, count)):
            if count:
                yield dataclasses.replace(program, schedule=schedule[:start] + schedule[start + count :])
    for index, (decision, choice) in enumerate(schedule):
        if choice > 1:
            yield dataclasses.replace(
                program, schedule=(*schedule[:index], (decision, choice - 1), *schedule[index + 1 :])
            )


class _OutOfRuns(Exception):  # noqa: N818 -- no error: it ends the search
    """As many Programs as allowed have been tried, or for as long as allowed."""


class _Search:
    """The smallest failing Program so far, and what has been tried."""

    def __init__(
        self, program: Program, still_fails: StillFails, max_runs: int, out_of_time: Callable[[], bool]
    ) -> None:
        self.program = program
        self.still_fails = still_fails
        self.runs_left = max_runs
        self.out_of_time = out_of_time
        self.seen = {repr(program)}

    def attempt(self, candidate: Program) -> bool:
        """Try a Program that was not tried before, and keep it if it fails."""
        key = repr(candidate)
        if key in self.seen:
            return False
        self.seen.add(key)
        if self.runs_left == 0 or self.out_of_time():
            raise _OutOfRuns
        self.runs_left -= 1
        if not self.still_fails(candidate):
            return False
        self.program = candidate
        return True

    def sweep(self, candidates: Candidates) -> bool:
        """Go once through the candidates; after one that fails, on with those of the smaller Program."""
        index, changed, progress = 0, False, True
        while progress:
            progress = False
            for candidate in itertools.islice(candidates(self.program), index, None):
                if self.attempt(candidate):
                    changed = progress = True
                    break
                index += 1
        return changed


def reduce_program(
    program: Program,
    still_fails: StillFails,
    *,
    max_runs: int = 2000,
    out_of_time: Callable[[], bool] = lambda: False,
) -> Program:
    """Give a small Program that still fails.

    Parameters
    ----------
    program : Program
        One that fails.
    still_fails : callable
        Whether a Program shows the failure that is meant.
    max_runs : int
        How many Programs to try at most.
    out_of_time : callable
        Asked before each Program whether it is enough.
    """
    search = _Search(program, still_fails, max_runs, out_of_time)
    try:
        if program.schedule:
            search.attempt(dataclasses.replace(program, schedule=()))
        changed = True
        while changed:
            changed = False
            for candidates in (
                *(_fewer_ranks, _doing_something, _fewer_steps, _flatter, _folded),
                *(_simplest, _simpler, _fewer_deviations),
            ):
                changed |= search.sweep(candidates)
            if not changed:
                changed = search.sweep(_without_pairs) or search.sweep(_looped)
    except _OutOfRuns:
        pass
    return search.program
