"""Schedules: all of them with few deviations, each once; what random ones miss is found."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import operator
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from allranks import sim
from allranks.cli import main
from allranks.conformance.backend import load_backend
from allranks.conformance.casefile import Case, dumps, load
from allranks.conformance.checks import judge
from allranks.conformance.engine import run_once
from allranks.conformance.program import Allocate, Connect, Operand, Program, Put, Region
from allranks.conformance.schedules import (
    Deviations,
    RankFunctions,
    Schedule,
    UnsteadyError,
    explore,
    realised,
)
from allranks.conformance.strategies import programs
from allranks.conformance.worlds.threads import RunOptions, ThreadsWorld
from allranks.errors import UsageError
from tests.sim.turnstile_world import wait_for

WorldOf = Callable[..., ThreadsWorld]
Toy = tuple[Callable[[int], None], Callable[[], str]]

WORK = 40  # times that a rank gives way while it computes
EVERY = 1000  # more deviations than any run has decisions


def _work() -> None:
    for _ in range(WORK):
        sim.yield_turn()


def barrier(enough: Callable[[int, int], bool]) -> Toy:
    """Three rounds of a barrier that counts arrivals, and waits until there are enough for the round."""
    arrived: list[int] = []

    def body(rank: int) -> None:
        for turn in (1, 2, 3):
            arrived.append(rank)
            sim.notify(1)
            sim.yield_turn()
            wait_for(functools.partial(_has_come, arrived, 2 * turn, enough), key=1)
            _work()

    return body, lambda: "" if len(arrived) == 6 else f"arrived={arrived}"


def _has_come(arrived: list[int], goal: int, enough: Callable[[int, int], bool]) -> bool:
    return enough(len(arrived), goal)


def equality_barrier() -> Toy:
    """A rank that comes late to its own wait finds the counter beyond, if another was a whole round faster."""
    return barrier(operator.eq)


def growing_barrier() -> Toy:
    """The same, right: the counter only has to have come so far."""
    return barrier(operator.ge)


def lost_update() -> Toy:
    """Two ranks add to a total: one after much work, in two halves; the other at once."""
    total = 0

    def body(rank: int) -> None:
        nonlocal total
        if rank == 0:
            _work()
        seen = total
        if rank == 0:
            sim.yield_turn()
        total = seen + 1
        if rank == 1:
            _work()

    return body, lambda: "" if total == 2 else f"total={total}"


def _random_schedule(seed: int) -> Schedule:
    draw = random.Random(seed)
    return lambda decision, runnable: draw.randrange(runnable)


@pytest.mark.parametrize(("ranks", "yields"), [(2, 0), (2, 1), (2, 2), (2, 3), (3, 1), (4, 0)])
def test_all_interleavings_are_explored_each_once(ranks: int, yields: int) -> None:
    logs: list[tuple[int, ...]] = []

    def make() -> Toy:
        log: list[int] = []

        def body(rank: int) -> None:
            for turn in range(yields + 1):
                if turn:
                    sim.yield_turn()
                log.append(rank)

        def keep() -> str:
            logs.append(tuple(log))
            return ""

        return body, keep

    with RankFunctions(ranks, make) as toy:
        result = explore(toy.run, preemptions=EVERY)
    pieces = yields + 1
    assert result.complete
    assert result.explored == math.factorial(ranks * pieces) // math.factorial(pieces) ** ranks
    assert len(set(logs)) == len(logs) == result.explored


@pytest.mark.parametrize("yields", [0, 1, 5])
def test_one_deviation_is_one_schedule_a_decision_more(yields: int) -> None:
    """Of two ranks, undisturbed: who begins, and each yield of the first; after its end there is nothing to decide."""

    def make() -> Toy:
        def body(_: int) -> None:
            for _ in range(yields):
                sim.yield_turn()

        return body, lambda: ""

    with RankFunctions(2, make) as toy:
        assert explore(toy.run, preemptions=0).explored == 1
        assert explore(toy.run, preemptions=1).explored == 1 + (1 + yields)


@pytest.mark.parametrize("make", [equality_barrier, lost_update])
def test_what_a_thousand_random_runs_miss_is_found(make: Callable[[], Toy]) -> None:
    with RankFunctions(2, make) as toy:
        assert [toy.run(_random_schedule(seed)) for seed in range(1000)] == [""] * 1000
        result = explore(toy.run, preemptions=2)
        assert result.failure is not None
        assert toy.run(result.failure.deviations) == result.failure.fault
        assert len(result.failure.deviations) == 1  # the fewest that show it


def test_a_right_barrier_passes_all() -> None:
    with RankFunctions(2, growing_barrier) as toy:
        result = explore(toy.run, preemptions=1)
    assert result.complete
    assert result.failure is None
    assert result.explored > 2 * WORK


def test_the_limit_is_kept_and_said() -> None:
    with RankFunctions(2, growing_barrier) as toy:
        result = explore(toy.run, preemptions=2, most=17)
    assert (result.explored, result.complete) == (17, False)
    with pytest.raises(UsageError, match="preemptions=-1"):
        explore(lambda schedule: "", preemptions=-1)


def test_a_run_that_does_not_repeat_itself_is_refused() -> None:
    calls = 0

    def unsteady(schedule: Schedule) -> str:
        nonlocal calls
        calls += 1
        for decision in range(3):
            schedule(decision, 1 + calls)
        return ""

    with pytest.raises(UnsteadyError, match="decisions"):
        explore(unsteady, preemptions=1)


def test_an_error_of_a_rank_is_a_fault() -> None:
    def make() -> Toy:
        def body(rank: int) -> None:
            raise ValueError(f"no {rank}")

        return body, lambda: ""

    with RankFunctions(1, make) as toy:
        assert toy.run() == "rank 0: ValueError: no 0"


SMALL = Program(rank_count=2, steps=(Allocate(size_bytes=4096), Connect(region=Operand(Region())), Put()))


def test_every_schedule_of_a_program_with_one_preemption_is_right(world_of: WorldOf) -> None:
    world = world_of("plain")

    def run(schedule: Schedule) -> str:
        outcomes = judge(SMALL, world.run(SMALL, RunOptions(schedule=schedule)))
        return "; ".join(v.evidence for outcome in outcomes.values() for v in outcome.violations)

    result = explore(run, preemptions=1)
    assert result.complete
    assert result.failure is None
    undisturbed = explore(run, preemptions=0).longest
    assert result.explored == 1 + undisturbed > 10  # with two ranks there is one other at each decision


def test_what_was_asked_for_becomes_what_was_done() -> None:
    asked: Deviations = ((1, 5), (100_000, 1))
    program = dataclasses.replace(SMALL, schedule=asked)
    trace = run_once(load_backend("plain"), sim.machine("h100"), program)
    kept = realised(program, trace)
    assert kept.schedule == ((1, 1),)
    assert run_once(load_backend("plain"), sim.machine("h100"), kept).to_bytes() == trace.to_bytes()


def test_a_share_of_programs_is_drawn_with_a_schedule() -> None:
    drawn: list[Program] = []

    for number in range(4):

        @seed(number)
        @settings(max_examples=100, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
        @given(programs("RDV", max_ranks=4))
        def draw(program: Program) -> None:
            drawn.append(program)

        draw()
    share = sum(bool(program.schedule) for program in drawn) / len(drawn)
    assert 0.1 < share < 0.5
    assert all(list(program.schedule) == sorted(program.schedule) for program in drawn)
    assert all(choice > 0 for program in drawn for _, choice in program.schedule)


def test_the_command_counts_what_it_explored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = tmp_path / "small.json"
    case.write_text(dumps(Case(program=SMALL)), encoding="utf-8")
    assert main(["explore", str(case), "--backend", "plain", "--preemptions", "1", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["complete"]
    assert said["schedules"] > 10
    assert said["broken"] is None
    assert main(["explore", str(case), "--most", "3", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["schedules"] == 3


def test_the_command_keeps_the_schedule_that_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "found.json"
    arguments = ["explore", "rdv-one-rank-reallocates", "RDV-2", "--backend", "local-key", "--out", str(out), "--json"]
    assert main(arguments) == 1
    assert json.loads(capsys.readouterr().out)["broken"] == "RDV-2"
    assert load(out).requirements == ("RDV-2",)
    assert main(["replay", str(out), "--backend", "local-key"]) == 1


def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explore", "nosuch"]) == 2
    assert main(["explore", "nvls-two-buffers", "--preemptions", "-1"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2
