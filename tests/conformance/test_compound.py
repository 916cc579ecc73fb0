"""Compound steps: each is its parts, run one after the other, and judged as they are."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allranks.conformance import program as p
from allranks.conformance.casefile import Case, dumps, loads
from allranks.conformance.cases import shipped
from allranks.conformance.checks import judge
from allranks.conformance.checks.outcome import View
from allranks.conformance.commands.bench.reduction import written
from allranks.conformance.corpus import MUTANTS
from allranks.conformance.plan import Planned, Resolver, planned
from allranks.conformance.program import (
    Allocate,
    Connect,
    Exchange,
    Fault,
    Free,
    Operand,
    Program,
    Put,
    Reallocate,
    Region,
    Repeat,
    Step,
    unrolled,
)
from allranks.conformance.shorter import fused
from allranks.conformance.story import lanes, tell
from allranks.conformance.strategies import TABLES, programs
from allranks.conformance.trace import Trace
from allranks.conformance.worlds.actions import Actions
from allranks.conformance.worlds.threads import ThreadsWorld
from allranks.errors import UsageError

WorldOf = Callable[..., ThreadsWorld]

REGION = Operand(Region())
BUFFER = Allocate(size_bytes=2 << 20)
EXCHANGE = Exchange(region=REGION)
# The first export of the first connect: one rank's, of which the reference makes one in open.
EXPORT_FAILS = Fault(rank=1, call="cuMemExportToShareableHandle", k=1, code=999)


def _in_parts(program: Program) -> Program:
    """Give a Program with every compound step as the steps that it consists of."""
    resolver = Resolver(program.rank_count)

    def simple(part: p.SimpleStep) -> p.SimpleStep:
        if isinstance(part, Put) and part.channels < 0:  # those that were made last
            part = dataclasses.replace(part, channels=max(0, len(resolver.channels) - 1))
        resolver.resolve(part)
        return part

    return dataclasses.replace(program, steps=tuple(simple(numbered.step) for numbered in unrolled(program)))


def _resolved(plan: list[Planned]) -> list[Planned]:
    """Give plans without what only says how the steps were written."""
    return [
        dataclasses.replace(
            step,
            step=dataclasses.replace(step.step, channels=0) if isinstance(step.step, Put) else step.step,
            ends_round=None,
            part_of="",
            follows=False,
        )
        for step in plan
    ]


def _told(program: Program, trace: Trace) -> dict[str, tuple[Any, ...]]:
    """Give what the checks say of a run, in full."""
    return {
        name: (outcome.evaluated, outcome.inconclusive, outcome.violations)
        for name, outcome in judge(program, trace).items()
    }


def _statuses(trace: Trace, number: int) -> list[str]:
    return [events[number].status for events in trace.events]


# --- what they are ---


def test_parts_are_numbered_and_the_last_one_ends_the_round() -> None:
    program = Program(rank_count=2, steps=(BUFFER, Repeat(times=2, steps=(Reallocate(size_bytes=64), EXCHANGE))))
    found = [(step.number, step.name, step.ends_round, step.follows) for step in planned(program)]
    assert found == [
        (0, "allocate", None, False),
        (1, "reallocate: free", None, False),
        (2, "reallocate: allocate", None, True),
        (3, "exchange: connect", None, False),
        (4, "exchange: put", 0, True),
        (5, "reallocate: free", None, False),
        (6, "reallocate: allocate", None, True),
        (7, "exchange: connect", None, False),
        (8, "exchange: put", 1, True),
    ]
    assert written(program) == (1, 2)


@settings(max_examples=60, deadline=None, database=None)
@given(st.sampled_from(sorted(TABLES)).flatmap(lambda family: programs(family, max_ranks=4)))
def test_a_compound_step_is_planned_as_its_parts_are(program: Program) -> None:
    assert _resolved(list(planned(program))) == _resolved(list(planned(_in_parts(program))))


def test_the_put_of_an_exchange_is_never_through_older_channels() -> None:
    """Where a rank has nothing to connect, the older channels are not whole any more."""
    steps = (BUFFER, Connect(region=Operand(Region())), Free(ranks=(1,)), EXCHANGE)
    assert [step.applies for step in planned(Program(rank_count=2, steps=steps))] == [True, True, True, False, False]
    small = Program(rank_count=2, steps=(BUFFER, Connect(region=Operand(Region())), Allocate(size_bytes=1)))
    last = dataclasses.replace(small, steps=(*small.steps, Exchange(region=Operand(Region(buffer=1)))))
    assert [step.applies for step in planned(last)][-2:] == [True, False]  # no room for a byte of each rank


def test_a_rank_without_a_buffer_reallocates_all_the_same(world_of: WorldOf) -> None:
    steps = (Allocate(ranks=(1,), size_bytes=64), Reallocate(size_bytes=4096, placement="reuse"), EXCHANGE)
    program = Program(rank_count=2, steps=steps)
    trace = world_of("refimpl").run(program)
    assert _statuses(trace, 1) == ["skipped", "ok"]
    assert _statuses(trace, 2) == _statuses(trace, 3) == _statuses(trace, 4) == ["ok", "ok"]
    assert trace.placed[1, 1].same_base_as == 0


# --- case files ---


def test_compound_steps_are_written_in_short_and_read_again() -> None:
    exchange = Exchange(region=Operand(Region(), {1: Region(offset_bytes=64)}), piece_bytes=13, reach=1)
    again = Reallocate(ranks=(1,), size_bytes=64, placement="reuse", kind="segments", buffer=2)
    case = Case(program=Program(rank_count=2, steps=(EXCHANGE, exchange, Reallocate(size_bytes=1), again)))
    text = dumps(case)
    assert loads(text) == case
    assert json.loads(text)["program"]["steps"] == [
        {"step": "Exchange", "region": {"default": {}}},
        {
            "step": "Exchange",
            "region": {"default": {}, "except": {"1": {"offset_bytes": 64}}},
            "piece_bytes": 13,
            "reach": 1,
        },
        {"step": "Reallocate", "size_bytes": 1},
        {
            "step": "Reallocate",
            "ranks": [1],
            "size_bytes": 64,
            "kind": "segments",
            "placement": "reuse",
            "buffer": 2,
        },
    ]


@pytest.mark.parametrize(
    ("step", "says"),
    [
        ({"step": "Reallocate", "size_bytes": 0}, "sizes are at least 1 byte"),
        ({"step": "Reallocate"}, "program.steps[0].size_bytes=None: Reallocate needs it"),
        ({"step": "Exchange"}, "program.steps[0].region=None: Exchange needs it"),
        ({"step": "Exchange", "region": {"default": {}}, "channels": 1}, "channels=1: Exchange has no such field"),
        ({"step": "Put", "channels": -1}, "program.steps[0].channels=-1: is not negative"),
    ],
)
def test_what_is_no_compound_step_is_refused(step: dict[str, Any], says: str) -> None:
    value = {"allranks_case": 1, "program": {"rank_count": 2, "steps": [step]}}
    with pytest.raises(UsageError) as caught:
        loads(json.dumps(value), "file")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_parts_count_as_steps_of_a_case() -> None:
    """A case is as long as what is run."""
    loop = Repeat(times=50_000, steps=(EXCHANGE,))
    assert loads(dumps(Case(program=Program(rank_count=2, steps=(loop,))))).program.steps == (loop,)
    longer = Program(rank_count=2, steps=(dataclasses.replace(loop, times=50_001),))
    with pytest.raises(UsageError, match="at most 100000 steps in all"):
        loads(dumps(Case(program=longer)))


# --- how they are run and judged ---


def _written_as_one(program: Program) -> Program:
    """Give a Program with as many compound steps as say the same as its own steps do, in the same order."""
    plan = _resolved(list(planned(program)))
    while True:
        shorter = (other for other in fused(program) if _resolved(list(planned(other))) == plan)
        found = next(shorter, None)
        if found is None:
            return program
        program = found


HISTORIES: dict[str, tuple[Step, ...]] = {
    "connected again": (BUFFER, Connect(region=REGION), Connect(region=REGION), Put(channels=1)),
    "one of two dropped": (
        *(BUFFER, Connect(region=REGION), Connect(region=REGION), Put(channels=1)),
        *(p.Drop(what="channels"), Put()),
    ),
    "several in use": (
        *(BUFFER, BUFFER, BUFFER),
        *(s for i in range(3) for s in (Connect(region=Operand(Region(buffer=i))), Put(channels=i))),
        Put(),
    ),
    "a workspace that grows between collectives": (
        *(BUFFER, p.AllReduce(send=REGION, receive=REGION, count=7, dtype="int32")),
        *(Free(), Allocate(size_bytes=5 << 20)),
        p.AllReduce(send=REGION, receive=REGION, count=1000, dtype="int32"),
        p.AllGather(send=REGION, receive=REGION, count=7),
    ),
    "memory that is bound after it was renewed": (
        *(BUFFER, Free(), Allocate(size_bytes=3_000_001), BUFFER),
        *(p.OpenGroup(capacity_bytes=64 << 20), p.Bind(buffer=Operand(0)), p.Bind(buffer=Operand(0))),
        *(p.MulticastStore(binding=0), p.MulticastStore(binding=1), p.MulticastReduce(binding=1)),
    ),
}
# What can be written with compound steps, in both ways.
AS_ONE = {
    name: (program, shorter)
    for name, program in (
        *((name, case.program) for name, case in shipped().items()),
        *((name, Program(rank_count=2, steps=steps)) for name, steps in HISTORIES.items()),
    )
    if (shorter := _written_as_one(program)) != program
}
# Right ones, and wrong ones with what has to be seen of them.
BACKENDS = {
    **dict.fromkeys(("refimpl", "plain", "no-cache", "eager-eviction"), ""),
    **{
        name: MUTANTS[name].requirement
        for name in (
            *("local-key", "plain-local-key", "collective-free", "global-tag"),
            *("address-key", "base-only", "buffer-key", "evicts-in-use", "double-release", "context-per-call"),
            *("first-segment", "refuses-segments", "first-close-unmaps"),
            *("open-descriptors", "closes-twice", "unmaps-twice", "first-offset"),
        )
    },
}


def test_many_cases_can_be_written_with_compound_steps() -> None:
    kinds = [type(step) for _, shorter in AS_ONE.values() for step in _flat(shorter.steps)]
    assert set(AS_ONE) >= {*HISTORIES, "cache-freed-and-reused", "life-connect-loop"}
    assert kinds.count(Exchange) >= 12
    assert kinds.count(Reallocate) >= 4


def _flat(steps: tuple[Step, ...]) -> list[Step]:
    return [inner for step in steps for inner in (_flat(step.steps) if isinstance(step, Repeat) else [step])]


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_check_judges_the_parts_as_it_judges_the_steps(backend: str, world_of: WorldOf) -> None:
    world, broken, evaluated = world_of(backend), set(), set()
    for program, shorter in AS_ONE.values():
        told = _told(program, world.run(program))
        assert _told(shorter, world.run(shorter)) == told
        broken |= {name for name, (_, _, violations) in told.items() if violations}
        evaluated |= {name for name, (count, _, _) in told.items() if count}
    wanted = BACKENDS[backend]
    assert wanted in broken if wanted else not broken
    assert evaluated >= {"RDV-1", "CACHE-1", "CACHE-2", "NVLS-1", "LIFE-1", "LIFE-5", "COLL-1"}


def test_ranks_meet_before_an_exchange_and_after_it_but_not_in_between(
    world_of: WorldOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    met: list[tuple[int, int, str]] = []
    meet = Actions.meet

    def noted(self: Actions, number: int, why: str) -> None:
        met.append((self.rank, number, why))
        meet(self, number, why)

    monkeypatch.setattr(Actions, "meet", noted)
    world = world_of("refimpl")
    assert world.run(Program(rank_count=2, steps=(BUFFER, EXCHANGE))).first_trouble() is None
    assert sorted(met) == [(rank, number, why) for rank in (0, 1) for number, why in ((1, "start"), (2, "end"))]
    met.clear()
    apart = Program(rank_count=2, steps=(BUFFER, Connect(region=Operand(Region())), Put()))
    assert world.run(apart).first_trouble() is None
    assert sorted(met) == [(rank, 2, why) for rank in (0, 1) for why in ("end", "start")]


def test_the_same_exchange_gives_the_same_trace(world_of: WorldOf) -> None:
    program = Program(rank_count=4, steps=(BUFFER, EXCHANGE, Reallocate(size_bytes=4096), EXCHANGE))
    world = world_of("refimpl")
    assert world.run(program).digest() == world.run(program).digest()


# --- when the first part fails ---


def test_after_a_connect_that_fails_nobody_reaches_the_put(world_of: WorldOf) -> None:
    program = Program(rank_count=2, steps=(BUFFER, EXCHANGE), faults=(EXPORT_FAILS,))
    trace = world_of("refimpl").run(program)
    assert _statuses(trace, 1) == ["error", "error"]
    assert _statuses(trace, 2) == ["not_reached", "not_reached"]
    assert trace.first_trouble() == 1
    outcomes = judge(program, trace)
    assert outcomes["RDV-3"].evaluated == outcomes["LIFE-4"].evaluated == 1
    assert not any(outcome.violations for outcome in outcomes.values())
    assert [line.split()[:3] for line in lanes(program, trace)[2:4]] == [
        ["1", "exchange:", "connect"],
        ["2", "exchange:", "put"],
    ]
    assert lanes(program, trace)[-1] == "(x error, . not reached)"


def test_all_ranks_that_were_refused_alike_have_not_parted(world_of: WorldOf) -> None:
    """What is looked at after a refusal by all ranks is looked at as after a connect alone."""
    program = Program(rank_count=2, steps=(BUFFER, EXCHANGE), faults=(EXPORT_FAILS,))
    trace = world_of("refimpl").run(program)
    unasked = dataclasses.replace(program, faults=())
    assert not View(unasked, trace, list(planned(unasked))).lost
    trace.events[0][1].status = trace.events[0][2].status = "ok"
    assert View(unasked, trace, list(planned(unasked))).lost


def test_a_rank_whose_connect_fails_alone_does_not_put(world_of: WorldOf) -> None:
    first = dataclasses.replace(EXPORT_FAILS, k=0)
    program = Program(rank_count=2, steps=(BUFFER, EXCHANGE), faults=(first,))
    trace = world_of("exports-alone").run(program)
    assert trace.events[1][1].status == "error"
    assert trace.events[1][2].status == "not_reached"
    (violation,) = judge(program, trace)["RDV-3"].violations
    assert (violation.step, violation.operation) == (1, "connect")


def test_after_a_free_that_fails_nothing_is_allocated(world_of: WorldOf) -> None:
    fails = Fault(rank=1, call="cuMemUnmap", k=0, code=999)
    program = Program(rank_count=2, steps=(BUFFER, Reallocate(size_bytes=64)), faults=(fails,))
    trace = world_of("refimpl").run(program)
    assert _statuses(trace, 1) == ["ok", "error"]
    assert _statuses(trace, 2) == ["ok", "not_reached"]
    assert (1, 1) not in trace.placed
    assert View(program, trace, list(planned(program))).user_failed


def test_the_story_names_the_part_and_the_step(world_of: WorldOf) -> None:
    _, shorter = AS_ONE["rdv-one-rank-reallocates"]
    trace = world_of("plain-local-key").run(shorter)
    (violation,) = judge(shorter, trace, ("RDV-2",))["RDV-2"].violations
    story = "\n".join(tell(shorter, trace, violation))
    assert f"RDV-2 is broken in step {violation.step} (exchange: connect) on rank" in story
    assert "(step 7, exchange: connect)" in story
    assert violation.operation == "connect"
