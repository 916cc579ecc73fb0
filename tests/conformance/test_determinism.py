"""The same Program with the same schedule gives the same Trace, byte for byte: in one process and in two."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allranks import sim
from allranks.conformance.backend import load_backend
from allranks.conformance.cases import shipped
from allranks.conformance.checks import judge
from allranks.conformance.program import Program
from allranks.conformance.strategies import TABLES, programs
from allranks.conformance.worlds.threads import RunOptions, ThreadsWorld

WorldOf = Callable[..., ThreadsWorld]

CASES = ("rdv-one-rank-reallocates", "nvls-eight-buffers")

_IN_ANOTHER_PROCESS = """
import sys
from allranks import sim
from allranks.conformance.backend import load_backend
from allranks.conformance.cases import shipped
from allranks.conformance.worlds.threads import ThreadsWorld

with ThreadsWorld(load_backend(sys.argv[1]), sim.machine("h100")) as world:
    sys.stdout.write(world.run(shipped()[sys.argv[2]].program).digest())
"""


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("backend", ["refimpl", "local-key", "plain"])
def test_two_processes_give_the_same_trace(backend: str, case: str, world_of: WorldOf) -> None:
    command = [sys.executable, "-c", _IN_ANOTHER_PROCESS, backend, case]
    there = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    world = world_of(backend)
    here = [world.run(shipped()[case].program) for _ in range(2)]
    assert [trace.digest() for trace in here] == [there, there]
    assert here[0].to_bytes() == here[1].to_bytes()


any_program = st.sampled_from(sorted(TABLES)).flatmap(lambda family: programs(family, max_ranks=4))


@settings(max_examples=25, deadline=None, database=None)
@given(any_program, st.integers(0, 1000))
def test_a_schedule_is_replayed_from_its_deviations(program: Program, salt: int) -> None:
    def choose(decision: int, runnable: int) -> int:
        return (decision * 7919 + salt) % runnable if decision % 5 == salt % 5 else 0

    with ThreadsWorld(load_backend("refimpl"), sim.machine("h100")) as world:
        asked = world.run(program, RunOptions(schedule=choose))
        again = Program(
            rank_count=program.rank_count,
            steps=program.steps,
            seed=program.seed,
            shift_bytes=program.shift_bytes,
            schedule=asked.deviations,
        )
        assert world.run(again).to_bytes() == asked.to_bytes()
        outcomes = judge(program, asked)
    assert {name: outcome.violations for name, outcome in outcomes.items() if outcome.violations} == {}
