"""The reference is clean; every mutant passes the plain sweep and is flagged at what it breaks, by case and by seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from allranks import sim
from allranks.conformance.backend import load_backend
from allranks.conformance.cases import shipped
from allranks.conformance.checks import judge
from allranks.conformance.corpus import MUTANTS
from allranks.conformance.engine import Engine
from allranks.conformance.program import (
    AllGather,
    Allocate,
    AllReduce,
    Bind,
    CloseGroup,
    Connect,
    MulticastStore,
    OpenGroup,
    Operand,
    Program,
    Put,
    Region,
)
from allranks.conformance.requirements import REQUIREMENTS
from allranks.conformance.strategies import MIB
from allranks.conformance.worlds.threads import ThreadsWorld

WorldOf = Callable[..., ThreadsWorld]


CASE_OF = {"RDV-2": "rdv-one-rank-reallocates", "NVLS-1": "nvls-two-buffers", "LIFE-2": "life-binding-group-memory"}
FAMILY_OF = {"RDV-2": "RDV", "NVLS-1": "NVLS", "LIFE-2": "LIFE"}


def _engine(backend: str, requirements: tuple[str, ...] = tuple(REQUIREMENTS), ranks: int = 3) -> Engine:
    return Engine(load_backend(backend), sim.machine("h100"), requirements, seed=7, max_ranks=ranks)


def _plain_sweep() -> Iterator[Program]:
    """Fresh, equal buffers on every rank, nothing freed, nothing failing: what most suites run."""
    for size in (4096, 100_003, 2 * MIB, 4 * MIB):
        region = Operand(Region())
        other = Operand(Region(buffer=1))
        yield Program(
            rank_count=4,
            steps=(
                Allocate(size_bytes=size),
                Allocate(size_bytes=4 * size),
                Connect(region=region),
                Put(),
                AllReduce(send=region, receive=other, count=min(size // 4, 30_000)),
                AllGather(send=region, receive=other, count=min(size // 16, 30_000)),
                OpenGroup(capacity_bytes=8 * MIB),
                Bind(buffer=Operand(0)),
                MulticastStore(),
                CloseGroup(),
            ),
        )


# What a sweep that only looks at results sees: success, and bytes.
RESULTS = ("RDV-1", "CACHE-1", "NVLS-1", "COLL-1", "COLL-2", "COLL-3")


@pytest.mark.parametrize("backend", ["refimpl", "plain", *MUTANTS])
def test_the_plain_sweep_finds_nothing(backend: str, world_of: WorldOf) -> None:
    world = world_of(backend)
    for program in _plain_sweep():
        outcomes = judge(program, world.run(program), RESULTS)
        assert {name: outcome.violations for name, outcome in outcomes.items() if outcome.violations} == {}
        assert all(outcome.evaluated for outcome in outcomes.values())


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_a_mutant_is_flagged_by_its_case_file(name: str, world_of: WorldOf) -> None:
    requirement = MUTANTS[name].requirement
    program = shipped()[CASE_OF[requirement]].program
    assert judge(program, world_of(name).run(program), (requirement,))[requirement].violations


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_a_mutant_is_flagged_by_generated_programs(name: str) -> None:
    requirement = MUTANTS[name].requirement
    engine = _engine(name, (requirement,))
    engine.run_family(FAMILY_OF[requirement], 60)
    engine.close()
    assert requirement in engine.result.findings


@pytest.mark.parametrize("backend", ["refimpl", "plain"])
@pytest.mark.parametrize("case", sorted(shipped()))
def test_right_ones_pass_the_shipped_cases(backend: str, case: str, world_of: WorldOf) -> None:
    program = shipped()[case].program
    outcomes = judge(program, world_of(backend).run(program))
    assert {name: outcome.violations for name, outcome in outcomes.items() if outcome.violations} == {}


@pytest.mark.parametrize("backend", ["refimpl", "plain"])
@pytest.mark.parametrize("machine", ["h100", "h200", "h100-512m", "small", "no-multicast"])
def test_right_ones_pass_generated_programs(backend: str, machine: str) -> None:
    engine = Engine(load_backend(backend), sim.machine(machine), tuple(REQUIREMENTS), seed=11, max_ranks=4)
    for family in engine.families():
        engine.run_family(family, 25)
    engine.close()
    assert {name: finding.violation for name, finding in engine.result.findings.items()} == {}
    assert engine.result.nondeterministic == []
    assert engine.result.tallies["COLL-1"].evaluated
    assert {engine.result.status(name) for name in ("NVLS-1", "NVLS-4", "RDV-1")} == (
        {"not supported", "pass"} if machine == "no-multicast" else {"pass"}
    )


def test_reduction_ends_in_a_small_program() -> None:
    engine = _engine("local-key", ("RDV-2",))
    engine.run_case("case", shipped()["rdv-one-rank-reallocates"])
    small = engine.reduce(engine.result.findings["RDV-2"])
    engine.close()
    assert small.program.rank_count == 2
    assert len(small.program.steps) <= 5
