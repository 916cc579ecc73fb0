"""Reduction: what is left is needed, it fails still, and it is found in few runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from allranks import sim
from allranks.conformance.backend import load_backend
from allranks.conformance.casefile import Case
from allranks.conformance.checks import judge
from allranks.conformance.commands.bench.reduction import written
from allranks.conformance.commands.bench.shown import drawn_in
from allranks.conformance.corpus import MUTANTS
from allranks.conformance.engine import Engine
from allranks.conformance.plan import Planned, planned
from allranks.conformance.program import (
    Allocate,
    AllReduce,
    Bind,
    CloseGroup,
    CompoundStep,
    Connect,
    Drop,
    Exchange,
    Fault,
    Free,
    OpenGroup,
    Operand,
    Program,
    Put,
    Reallocate,
    Region,
    Repeat,
    Step,
    parts_of,
    unrolled,
)
from allranks.conformance.reduce import reduce_program
from allranks.conformance.requirements import REQUIREMENTS
from allranks.conformance.shorter import fused
from allranks.conformance.strategies import programs
from allranks.conformance.worlds.threads import ThreadsWorld

WorldOf = Callable[..., ThreadsWorld]


def _counted(still_fails: Callable[[list[Planned]], bool]) -> tuple[Callable[[Program], bool], list[Program]]:
    tried: list[Program] = []

    def predicate(program: Program) -> bool:
        tried.append(program)
        return still_fails([step for step in planned(program) if step.applies])

    return predicate, tried


def _noise(index: int) -> tuple[Step, ...]:
    return (
        Allocate(size_bytes=5000 + index, placement="high"),
        Connect(region=Operand(Region(buffer=1, offset_bytes=64), {3: Region(buffer=2)})),
        Put(piece_bytes=13),
    )


def test_one_needed_step_among_many_is_found_in_few_runs() -> None:
    steps = (*(step for index in range(10) for step in _noise(index)), OpenGroup(capacity_bytes=1 << 25))
    predicate, tried = _counted(lambda plan: any(isinstance(step.step, OpenGroup) for step in plan))
    small = reduce_program(Program(rank_count=8, steps=steps, seed=9, shift_bytes=Operand(0, {5: 1 << 30})), predicate)
    assert small == Program(rank_count=2, steps=(OpenGroup(capacity_bytes=2 << 20),))
    assert len(tried) <= 20


def test_ranks_that_matter_are_kept_and_renumbered() -> None:
    """Rank 6 alone frees; what is left has it as rank 1, or 0."""
    steps = (*_noise(0), Free(ranks=(6,)), *_noise(1))

    def alone(plan: list[Planned]) -> bool:
        return any(isinstance(step.step, Free) and len(step.ranks) == 1 for step in plan)

    predicate, _ = _counted(alone)
    small = reduce_program(Program(rank_count=8, steps=steps), predicate)
    assert small.rank_count == 2
    assert written(small) == (0, 2)
    assert any(isinstance(step, Free) and step.ranks in ((0,), (1,)) for step in small.steps)


def test_ranks_that_bring_nothing_or_fail_are_kept_and_renumbered() -> None:
    program = Program(
        rank_count=4,
        steps=(
            Allocate(size_bytes=4096),
            AllReduce(send=Operand(Region()), receive=Operand(Region()), count=1, empty_on=(2,)),
        ),
        faults=(Fault(rank=3, call="cuMemAlloc", k=0, code=2),),
    )

    def fails(candidate: Program) -> bool:
        reduces = [step for step in candidate.steps if isinstance(step, AllReduce)]
        named = any(0 <= rank < candidate.rank_count for step in reduces for rank in step.empty_on)
        return named and any(fault.rank < candidate.rank_count for fault in candidate.faults)

    small = reduce_program(program, fails)
    assert small.rank_count == 2
    assert [step.empty_on for step in small.steps if isinstance(step, AllReduce)] == [(0,)]
    assert [fault.rank for fault in small.faults] == [1]


def test_what_is_said_twice_is_said_once() -> None:
    steps = (
        Allocate(size_bytes=7777),
        OpenGroup(capacity_bytes=1 << 24),
        Bind(buffer=Operand(0)),
        Allocate(size_bytes=8888),
        Bind(buffer=Operand(1)),
    )
    predicate, _ = _counted(lambda plan: sum(isinstance(step.step, Bind) for step in plan) >= 2)
    small = reduce_program(Program(rank_count=2, steps=steps), predicate)
    assert written(small) == (2, 1)
    assert sum(isinstance(step.step, Bind) for step in planned(small)) == 2


@pytest.mark.parametrize("rounds", [5, 17])
def test_a_loop_keeps_the_rounds_that_it_needs(rounds: int) -> None:
    loop = Repeat(times=40, steps=(Allocate(size_bytes=99), Free(), Allocate(size_bytes=5)))
    predicate, _ = _counted(lambda plan: sum(isinstance(step.step, Allocate) for step in plan) >= rounds)
    small = reduce_program(Program(rank_count=2, steps=(loop,)), predicate)
    assert [type(step) for step in small.steps] == [Repeat]
    assert sum(isinstance(step.step, Allocate) for step in planned(small)) == rounds
    assert written(small) == (0, 1)


def test_the_schedule_that_is_needed_is_left_the_rest_goes() -> None:
    schedule = ((3, 1), (7, 2), (8, 1), (20, 3))
    program = Program(rank_count=4, steps=_noise(0), schedule=schedule)
    small = reduce_program(program, lambda candidate: any(d == 7 for d, _ in candidate.schedule))
    assert small.schedule == ((7, 1),)
    assert reduce_program(program, lambda candidate: True).schedule == ()


def test_it_stops_when_the_runs_are_used_up() -> None:
    predicate, tried = _counted(lambda plan: bool(plan))
    program = Program(rank_count=8, steps=tuple(step for index in range(10) for step in _noise(index)))
    small = reduce_program(program, predicate, max_runs=3)
    assert len(tried) == 3
    assert predicate(small)


def test_steps_that_only_make_up_for_each_other_go_together() -> None:
    opened, closed, bound = OpenGroup(capacity_bytes=2 << 20), CloseGroup(), Bind(buffer=Operand(0))
    program = Program(rank_count=2, steps=(Allocate(size_bytes=4096), opened, closed, opened, bound))

    def predicate(candidate: Program) -> bool:
        """Whether the binding is the first thing in the only group that is alive."""
        kinds = [type(step) for step in candidate.steps]
        return kinds.count(OpenGroup) - kinds.count(CloseGroup) == 1 and Bind in kinds and Allocate in kinds

    small = reduce_program(program, predicate)
    assert [type(step) for step in small.steps] == [Allocate, OpenGroup, Bind]


def test_what_is_left_means_the_objects_that_it_meant() -> None:
    """Indices shift when steps before them go: those of the Program that is left are chosen anew."""
    here, there = Region(), Region(offset_bytes=64)
    connects = tuple(Connect(region=Operand(region)) for region in (here, here, there, here))
    program = Program(rank_count=2, steps=(Allocate(size_bytes=4096), *connects, Put(channels=6)))

    def predicate(candidate: Program) -> bool:
        """Whether bytes are put through channels to the region that lies elsewhere."""
        plan = list(planned(candidate))
        made = {step.target for step in plan if step.applies and step.step == connects[2]}
        return any(step.applies and isinstance(step.step, Put) and step.target in made for step in plan)

    assert predicate(program)
    small = reduce_program(program, predicate)
    assert [type(step) for step in small.steps] == [Allocate, Exchange]


def test_what_comes_twice_becomes_a_loop() -> None:
    def renewed(size: int) -> tuple[Step, ...]:
        return (Free(), Allocate(size_bytes=size), Connect(region=Operand(Region())))

    first = (Allocate(size_bytes=4096), Connect(region=Operand(Region())))
    program = Program(rank_count=2, steps=(*first, *renewed(4096), Put(channels=1)))

    def predicate(candidate: Program) -> bool:
        """Whether bytes are put through channels that were made after others whose memory was freed."""
        kinds = [type(numbered.step) for numbered in unrolled(candidate)]
        places = [place for place, kind in enumerate(kinds) if kind is Connect]
        return Put in kinds[places[-1] :] and Free in kinds[places[0] : places[-1]] if len(places) > 1 else False

    assert predicate(program)
    small = reduce_program(program, predicate)
    assert written(small) == (2, 1)
    assert isinstance(small.steps[0], Repeat)


# --- compound steps ---

REGION = Operand(Region())
BUFFER = Allocate(size_bytes=2 << 20)
EXCHANGE = Exchange(region=REGION)


def _flat(steps: tuple[Step, ...]) -> list[Step]:
    return [inner for step in steps for inner in (_flat(step.steps) if isinstance(step, Repeat) else [step])]


def _does(*kinds: type) -> Callable[[Program], bool]:
    """Whether steps of these kinds are done, in this order."""

    def predicate(program: Program) -> bool:
        left = iter([type(step.step) for step in planned(program) if step.applies])
        return all(kind in left for kind in kinds)

    return predicate


def test_what_is_left_is_written_as_one_step_where_it_can_be() -> None:
    kinds = [Allocate, Connect, Free, Allocate, Connect, Put]

    def predicate(candidate: Program) -> bool:
        """Whether something is connected before and after a renewal, and no more is done than that."""
        return [type(step.step) for step in planned(candidate) if step.applies] == kinds

    connect = Connect(region=REGION)
    apart = Program(rank_count=2, steps=(BUFFER, connect, Free(), BUFFER, connect, Put(channels=1)))
    assert predicate(apart)
    small = reduce_program(apart, predicate)
    assert written(small) == (2, 2)
    assert [type(step) for step in small.steps] == [Allocate, Connect, Reallocate, Exchange]
    assert predicate(small)


def test_what_lies_between_two_steps_stays_before_or_after_both() -> None:
    steps = (BUFFER, Connect(region=REGION), Free(ranks=(1,)), Put(), Allocate(ranks=(1,), size_bytes=7))
    kinds = [[type(step) for step in other.steps] for other in fused(Program(rank_count=2, steps=steps))]
    assert kinds == [[Allocate, Connect, Put, Reallocate], [Allocate, Connect, Reallocate, Put]]  # nobody puts
    whole = (BUFFER, BUFFER, Connect(region=REGION), Free(ranks=(1,), buffer=1), Put())
    kinds = [[type(step) for step in other.steps] for other in fused(Program(rank_count=2, steps=whole))]
    assert kinds == [[Allocate, Allocate, Free, Exchange], [Allocate, Allocate, Exchange, Free]]


def test_steps_are_written_as_one_only_if_it_fails_still() -> None:
    program = Program(rank_count=2, steps=(BUFFER, Connect(region=Operand(Region())), Put(), Free(), BUFFER))

    def apart(candidate: Program) -> bool:
        whole = [type(step) for step in candidate.steps]
        return whole.count(Connect) == whole.count(Put) == whole.count(Free) == 1

    small = reduce_program(program, apart)
    assert not any(isinstance(step, CompoundStep) for step in small.steps)


def test_a_put_through_other_channels_stays_apart_from_the_connect() -> None:
    """It would be another put: the older channels are meant."""
    steps = (BUFFER, Connect(region=Operand(Region(offset_bytes=64))), Connect(region=Operand(Region())), Put())
    through = [[type(step) for step in other.steps] for other in fused(Program(rank_count=2, steps=steps))]
    assert through == [[Allocate, Connect, Exchange], [Allocate, Exchange, Connect]]
    offsets = [
        step.region.default.offset_bytes
        for other in fused(Program(rank_count=2, steps=steps))
        for step in other.steps
        if isinstance(step, Exchange)
    ]
    assert offsets == [64, 64]


@pytest.mark.parametrize("step", [EXCHANGE, Reallocate(size_bytes=64)])
@pytest.mark.parametrize("loop", [False, True])
def test_of_a_compound_step_the_part_that_is_needed_is_left(step: CompoundStep, loop: bool) -> None:
    inner: tuple[Step, ...] = (Repeat(times=3, steps=(step,)),) if loop else (step,)
    for part in parts_of(step):
        small = reduce_program(Program(rank_count=2, steps=(BUFFER, *inner)), _does(type(part)))
        kinds = [type(other) for other in _flat(small.steps)]
        if isinstance(part, Put):  # which needs a connect, in the same step
            assert kinds == [Allocate, Exchange]
        else:
            assert kinds in ([type(part)], [Allocate, type(part)], [Reallocate])
            assert written(small) <= (1, 1)


def test_loops_are_written_with_compound_steps() -> None:
    body: tuple[Step, ...] = (BUFFER, Connect(region=Operand(Region())), Put(), Drop(what="channels"), Free())

    def thrice(candidate: Program) -> bool:
        kinds = [type(step.step) for step in planned(candidate) if step.applies]
        return min(map(kinds.count, (Allocate, Free, Connect, Put, Drop))) >= 3

    small = reduce_program(Program(rank_count=2, steps=(Repeat(times=5, steps=body),)), thrice)
    (loop,) = small.steps
    assert isinstance(loop, Repeat)
    assert loop.times == 3
    assert written(small) == (1, 3)


# --- findings ---


def test_nothing_smaller_is_left_as_it_is() -> None:
    program = Program(rank_count=2, steps=(Allocate(size_bytes=4096),))
    assert reduce_program(program, lambda candidate: candidate == program) == program


@pytest.mark.parametrize("name", ["local-key", "first-offset", "kept-handle"])
@pytest.mark.parametrize("seed", [0, 1])
def test_findings_end_in_the_story(name: str, seed: int, world_of: WorldOf) -> None:
    requirement = MUTANTS[name].requirement
    engine = Engine(load_backend(name), sim.machine("h100"), (requirement,), seed=seed, max_ranks=4)
    drawn: list[Program] = []
    drawn_in(programs(REQUIREMENTS[requirement].family, max_ranks=4), 40, drawn.append, seed)
    for program in drawn[1:]:  # the first is the simplest one, whatever the seed
        engine.run_case("drawn", Case(program=program))
        if engine.result.findings:
            break
    found = engine.result.findings[requirement]
    small = engine.reduce(found).program
    engine.close()
    collective, local = written(small)
    assert small.rank_count == 2
    assert collective <= 2
    assert local <= 4
    assert judge(small, world_of(name).run(small), (requirement,))[requirement].violations
    assert not judge(small, world_of("refimpl").run(small), (requirement,))[requirement].violations
    without = [
        dataclasses.replace(small, steps=small.steps[:i] + small.steps[i + 1 :]) for i in range(len(small.steps))
    ]
    assert not any(judge(p, world_of(name).run(p), (requirement,))[requirement].violations for p in without)
