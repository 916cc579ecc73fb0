"""Strategies: what divides ranks is drawn, often enough; the same seed gives the same Programs everywhere."""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from allranks.conformance import program as p
from allranks.conformance.drawing import MIB
from allranks.conformance.draws import draw_values
from allranks.conformance.plan import Part, Planned, planned
from allranks.conformance.program import Allocate, Bind, CloseGroup, Drop, OpenGroup, Operand, Program, Region
from allranks.conformance.strategies import TABLES, programs

RANKS = 4


@functools.cache
def drawn(family: str, count: int = 100, number: int = 5) -> tuple[Program, ...]:
    found: list[Program] = []
    draw_values(programs(family, max_ranks=RANKS, min_ranks=RANKS), count, found.append, seed=number)
    return tuple(found)


def digest() -> str:
    text = "".join(repr(drawn(family, 30)) for family in TABLES)
    return hashlib.sha256(text.encode()).hexdigest()


def test_another_process_draws_the_same_also_beside_other_modules(tmp_path: Path) -> None:
    """Hypothesis takes constants from modules that it finds; no draw may depend on them."""
    (tmp_path / "beside.py").write_text("A, B, C = 77, 31, 12\nTEXT = 'reuse'\n", encoding="utf-8")
    root = Path(__file__).parents[2]
    program = f"""
import sys
sys.path[:0] = [{str(root)!r}, {str(tmp_path)!r}]
import beside
from tests.conformance.test_strategies import digest
sys.stdout.write(digest())
"""
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    command = [sys.executable, "-c", program]
    there = subprocess.run(command, check=True, capture_output=True, text=True, env=environment, cwd=tmp_path).stdout
    assert there == digest()


def test_other_seeds_draw_others() -> None:
    assert drawn("RDV", 20, 1) != drawn("RDV", 20, 2)


@pytest.mark.parametrize("family", sorted(TABLES))
def test_programs_are_long_enough_to_say_something(family: str) -> None:
    """A compound step is one."""
    plans = [[step for step in planned(program) if step.applies and not step.follows] for program in drawn(family)]
    assert statistics.median(len(plan) for plan in plans) >= 8
    assert statistics.median(sum(step.collective for step in plan) for plan in plans) >= 4


def _lane(plan: list[Planned], rank: int) -> list[object]:
    """What a rank does, without what all bring alike by definition."""
    return [
        (step.number, type(step.step).__name__, part and (part.buffer, part.offset_bytes, part.size_bytes))
        for step in plan
        if step.applies and rank in step.ranks
        for part in [step.parts[rank] if step.parts else None]
    ]


@pytest.mark.parametrize("family", sorted(TABLES))
def test_in_most_programs_ranks_have_different_histories(family: str) -> None:
    def differ(program: Program) -> bool:
        plan = list(planned(program))
        lanes = [_lane(plan, rank) for rank in range(RANKS)]
        return any(lane != lanes[0] for lane in lanes) or bool(program.shift_bytes.exceptions)

    found = drawn(family)
    assert sum(map(differ, found)) > 0.7 * len(found)


# --- what is drawn at all ---

Plan = list[Planned]


def _allocations(plan: Plan) -> Iterator[Allocate]:
    return (step.step for step in plan if isinstance(step.step, Allocate))


def _regions(plan: Plan) -> list[tuple[int, Part]]:
    return [
        (rank, part)
        for step in plan
        if isinstance(step.step, p.Connect)
        for rank, part in enumerate(step.parts)
        if part is not None
    ]


def _overlap(plan: Plan) -> bool:
    """Two regions of one buffer that share bytes and are not the same."""
    return any(
        rank == other
        and a.buffer == b.buffer
        and a != b
        and a.offset_bytes < b.offset_bytes + b.size_bytes
        and b.offset_bytes < a.offset_bytes + a.size_bytes
        for (rank, a), (other, b) in itertools.combinations(_regions(plan), 2)
    )


def _known_to_some(plan: Plan) -> bool:
    """A collective on buffers while some ranks have more of them than others."""
    live = [0] * RANKS
    for step in plan:
        for rank in step.ranks:
            live[rank] += isinstance(step.step, Allocate)
            live[rank] -= isinstance(step.step, p.Free)
        if step.collective and len(set(live)) > 1:
            return True
    return False


def _in_a_row(plan: Plan, kinds: tuple[type, ...], length: int) -> bool:
    """As many steps of these kinds in a row by one rank alone."""
    run = 0
    for step in plan:
        run = run + 1 if isinstance(step.step, kinds) and len(step.ranks) == 1 else 0
        if run >= length:
            return True
    return False


def _drop_orders_differ(plan: Plan) -> bool:
    """Two ranks let go of the same objects, one in another order than the other."""
    orders: list[list[int]] = [[] for _ in range(RANKS)]
    for step in plan:
        if isinstance(step.step, Drop):
            for rank in step.ranks:
                orders[rank].append(step.target)
    return any(
        [target for target in a if target in b] != [target for target in b if target in a]
        for a, b in itertools.combinations(orders, 2)
    )


def _after(plan: Plan, first: type, second: type) -> bool:
    numbers = [step.number for step in plan if isinstance(step.step, first)]
    return bool(numbers) and any(isinstance(step.step, second) and step.number > numbers[0] for step in plan)


def _binds_cross(plan: Plan) -> bool:
    """Ranks bind their buffers in different orders."""
    orders: list[list[int]] = [[] for _ in range(RANKS)]
    for step in plan:
        if isinstance(step.step, Bind):
            for rank, part in enumerate(step.parts):
                assert part is not None
                orders[rank].append(part.buffer)
    return any(sorted(a) == sorted(b) and a != b for a, b in itertools.combinations(orders, 2))


FEATURES: dict[str, tuple[str, Callable[[Plan], bool]]] = {
    **{
        f"placed {placement}": ("CACHE", lambda plan, at=placement: any(a.placement == at for a in _allocations(plan)))  # type: ignore[misc]
        for placement in ("low", "high", "reuse", "equal", "never_reuse")
    },
    "around the granularity": (
        "CACHE",
        lambda plan: {-4, 0, 4} & {(a.size_bytes + 4) % (2 * MIB) - 4 for a in _allocations(plan)} != set(),
    ),
    "one byte": ("CACHE", lambda plan: any(a.size_bytes == 1 for a in _allocations(plan))),
    "regions inside": ("CACHE", lambda plan: any(part.offset_bytes for _, part in _regions(plan))),
    "regions that overlap": ("CACHE", _overlap),
    "known to some ranks only": ("RDV", _known_to_some),
    "churn on one rank": ("RDV", lambda plan: _in_a_row(plan, (Allocate, p.Free), 4)),
    "memory renewed in one step": (
        "RDV",
        lambda plan: any(step.part_of == "reallocate" and len(step.ranks) == 1 for step in plan),
    ),
    "connected and written to in one step": (
        "RDV",
        lambda plan: any(step.part_of == "exchange" and isinstance(step.step, p.Put) for step in plan),
    ),
    "one step that brings back what was connected": (
        "CACHE",
        lambda plan: any(step.part_of == "exchange" and step.number > 6 for step in plan),
    ),
    "growth on one rank": ("RDV", lambda plan: _in_a_row(plan, (Allocate,), 2)),
    "no elements": ("COLL", lambda plan: any(s.count == 0 for s in plan if isinstance(s.step, p.AllReduce))),
    "memory of the plain kind": ("COLL", lambda plan: any(a.kind == "plain" for a in _allocations(plan))),
    "drops in another order": ("LIFE", _drop_orders_differ),
    "a group after another": ("NVLS", lambda plan: _after(plan, CloseGroup, OpenGroup)),
    "a bind after an unbind": ("NVLS", lambda plan: _after(plan, p.Unbind, Bind)),
    "binds in another order": ("NVLS", _binds_cross),
}


@pytest.mark.parametrize("feature", sorted(FEATURES))
def test_what_divides_ranks_is_drawn(feature: str) -> None:
    family, has = FEATURES[feature]
    plans = [[step for step in planned(program) if step.applies] for program in drawn(family, 200)]
    assert sum(map(has, plans)) >= 2


# --- drops ---


def _targets(*steps: p.Step, ranks: int = 2) -> list[tuple[int, tuple[int, ...]] | None]:
    plan = planned(Program(rank_count=ranks, steps=steps))
    return [(step.target, step.ranks) if step.applies else None for step in plan if isinstance(step.step, Drop)]


CHANNELS = (Allocate(size_bytes=4096), p.Connect(region=Operand(Region())), p.Connect(region=Operand(Region())))


def test_ranks_let_go_in_different_orders() -> None:
    def drop(rank: int, index: int = 0) -> Drop:
        return Drop(ranks=(rank,), what="channels", index=index)

    assert _targets(*CHANNELS, drop(0), drop(1, 1), drop(0), drop(1), drop(0)) == [
        (0, (0,)),
        (1, (1,)),
        (1, (0,)),
        (0, (1,)),
        None,
    ]


def test_what_one_rank_let_go_of_no_collective_step_means() -> None:
    plan = list(planned(Program(rank_count=2, steps=(*CHANNELS, Drop(ranks=(0,), what="channels"), p.Put()))))
    assert plan[-1].target == 1


def test_a_binding_is_held_beyond_its_group() -> None:
    steps = (Allocate(size_bytes=4096), OpenGroup(capacity_bytes=4 * MIB), Bind(buffer=Operand(0)))
    drop = Drop(what="binding")
    assert _targets(*steps, CloseGroup(), drop, drop) == [(1, (0, 1)), None]
    assert _targets(*steps, p.Unbind(), drop) == [None]
    assert _targets(*steps, Drop(what="group"), drop) == [(0, (0, 1)), (1, (0, 1))]


def test_nobody_lets_go_of_nothing() -> None:
    assert _targets(*CHANNELS, Drop(ranks=(), what="channels"), Drop(what="group")) == [None, None]
