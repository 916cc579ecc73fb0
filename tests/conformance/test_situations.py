"""What takes several steps together is drawn together, and often: it hardly ever comes about by itself."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator

import pytest

from allranks.conformance import program as p
from allranks.conformance.drawing import MIB
from allranks.conformance.draws import draw_values
from allranks.conformance.plan import Planned, planned
from allranks.conformance.program import Allocate, Bind, CloseGroup, Drop, OpenGroup, Program
from allranks.conformance.strategies import programs

RANKS = 4
Plan = list[Planned]


@functools.cache
def _drawn(family: str, count: int = 200) -> list[Program]:
    found: list[Program] = []
    draw_values(programs(family, max_ranks=RANKS, min_ranks=RANKS), count, found.append, seed=5)
    return found


def _puts(plan: Plan) -> Iterator[Planned]:
    return (step for step in plan if isinstance(step.step, p.Put))


def _written_after_renewal(plan: Plan) -> bool:
    """A connected buffer was freed on some rank, and channels that were connected after that are written to."""
    connected = {step.target: step for step in plan if isinstance(step.step, p.Connect)}
    freed = [
        (step.number, rank, part.buffer)
        for step in plan
        if isinstance(step.step, p.Free)
        for rank, part in enumerate(step.parts)
        if part is not None
    ]
    return any(
        any(
            number < connected[put.target].number
            and any(
                (part := earlier.parts[rank]) is not None and part.buffer == buffer and earlier.number < number
                for earlier in connected.values()
            )
            for number, rank, buffer in freed
        )
        for put in _puts(plan)
    )


def _one_of_two_users_ends(plan: Plan) -> bool:
    """Of two channels for one region one is let go of, and then the other is written to."""
    connected = {step.target: step.parts for step in plan if isinstance(step.step, p.Connect)}
    dropped = [
        (step.number, connected[step.target])
        for step in plan
        if isinstance(step.step, Drop) and step.target in connected
    ]
    return any(
        number < put.number and connected[put.target] == parts for put in _puts(plan) for number, parts in dropped
    )


def _older_ones_are_written_to(plan: Plan) -> bool:
    made = [(step.number, step.target) for step in plan if isinstance(step.step, p.Connect)]
    return any(any(target > put.target and number < put.number for number, target in made) for put in _puts(plan))


def _addresses_cross(plan: Plan) -> bool:
    """One rank alone has a buffer at the high end of its addresses, and then another one of its size at the low end."""
    allocations = [step.step for step in plan if isinstance(step.step, Allocate)]
    alone = [a for a in allocations if a.ranks is not None and len(a.ranks) == 1]
    return any(
        a.placement == "high" and b.placement == "low" and a.size_bytes == b.size_bytes
        for a, b in itertools.pairwise(alone)
    )


def _across_a_border(plan: Plan) -> bool:
    """A region that begins in one piece of memory and ends in another is written to at the border."""
    in_pieces = {
        (rank, part.buffer)
        for step in plan
        if isinstance(step.step, Allocate) and step.step.kind == "segments"
        for rank, part in enumerate(step.parts)
        if part is not None
    }
    return any(
        (rank, part.buffer) in in_pieces and -64 <= part.offset_bytes - 2 * MIB < 0
        for put in _puts(plan)
        for rank, part in enumerate(put.receive)
    )


def _some_then_all(plan: Plan) -> bool:
    some = [step.number for step in plan if isinstance(step.step, p.SubsetPut) and len(step.ranks) < RANKS]
    return bool(some) and any(isinstance(step.step, p.Connect) and step.number > some[0] for step in plan)


def _no_room_for_one(plan: Plan) -> bool:
    capacities = {step.target: step.step.capacity_bytes for step in plan if isinstance(step.step, OpenGroup)}
    for step in plan:
        if isinstance(step.step, Bind):
            fits = {part is not None and part.size_bytes <= capacities[step.group] for part in step.parts}
            if fits == {True, False}:
                return True
    return False


def _stored_in_the_second_of_two(plan: Plan) -> bool:
    bound: set[int] = set()
    for step in plan:
        if isinstance(step.step, Bind):
            bound.add(step.group)
        elif isinstance(step.step, CloseGroup):
            bound.discard(step.target)
        elif isinstance(step.step, p.MulticastStore) and any(group < step.group for group in bound):
            return True
    return False


SITUATIONS: dict[str, tuple[str, Callable[[Plan], bool]]] = {
    "written to after a renewal": ("CACHE", _written_after_renewal),
    "written to after a renewal, among others": ("RDV", _written_after_renewal),
    "one of two users ends": ("CACHE", _one_of_two_users_ends),
    "older channels are written to": ("CACHE", _older_ones_are_written_to),
    "addresses in another order on one rank": ("CACHE", _addresses_cross),
    "across a border of pieces": ("CACHE", _across_a_border),
    "some ranks, then all": ("RDV", _some_then_all),
    "no elements on one rank": ("RDV", lambda plan: any(step.unequal for step in plan)),
    "let go of by one rank": (
        "RDV",
        lambda plan: any(isinstance(step.step, Drop) and len(step.ranks) == 1 for step in plan),
    ),
    "no room on one rank": ("NVLS", _no_room_for_one),
    "a store in the second of two groups": ("NVLS", _stored_in_the_second_of_two),
}


@pytest.mark.parametrize("situation", sorted(SITUATIONS))
def test_situations_are_common(situation: str) -> None:
    """In one Program of twelve at least."""
    family, has = SITUATIONS[situation]
    plans = [[step for step in planned(program) if step.applies] for program in _drawn(family)]
    assert sum(map(has, plans)) >= len(plans) / 12
