"""The reference is clean; every mutant passes the plain sweep and is flagged at what it breaks, by case and by seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from allranks import sim
from allranks.conformance.backend import load_backend
from allranks.conformance.cases import shipped
from allranks.conformance.checks import FAULTED, judge
from allranks.conformance.commands.bench.detection import searches
from allranks.conformance.corpus import MUTANTS, VARIANTS
from allranks.conformance.corpus.specimen import Specimen
from allranks.conformance.drawing import MIB
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
    unrolled,
)
from allranks.conformance.requirements import CHECKED, REQUIREMENTS
from allranks.conformance.worlds.threads import ThreadsWorld

WorldOf = Callable[..., ThreadsWorld]


# Cases of hundreds of steps are left to the tests that are about them.
SHORT = {name: case for name, case in shipped().items() if sum(1 for _ in unrolled(case.program)) < 100}

Row = frozenset[tuple[str, str, int, int, str]]


def _row(world: ThreadsWorld) -> Row:
    """What the suite says of a backend, case by case: requirement, rank, step and evidence."""
    return frozenset(
        (name, violation.requirement, violation.rank, violation.step, violation.evidence)
        for name, case in SHORT.items()
        for outcome in judge(case.program, world.run(case.program)).values()
        for violation in outcome.violations
    )


def _cases_of(mutant: Specimen) -> list[str]:
    return [
        name
        for name, case in shipped().items()
        if mutant.requirement in case.requirements and set(mutant.origins) & set(case.origins)
    ]


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


@pytest.mark.parametrize("backend", ["refimpl", "plain", *MUTANTS, *VARIANTS])
def test_the_plain_sweep_finds_nothing(backend: str, world_of: WorldOf) -> None:
    world = world_of(backend)
    for program in _plain_sweep():
        trace = world.run(program)
        outcomes = judge(program, trace, RESULTS)
        assert {name: outcome.violations for name, outcome in outcomes.items() if outcome.violations} == {}
        silent = {name for name, outcome in outcomes.items() if not outcome.evaluated}
        assert silent == (set() if "all_reduce" in trace.capabilities else {"COLL-1", "COLL-2", "COLL-3"})


def test_every_kind_of_fault_has_a_mutant_with_its_report() -> None:
    assert {mutant.kind for mutant in MUTANTS.values()} == set("ABCDEFGHIJ")
    assert all("#" in origin for mutant in MUTANTS.values() for origin in mutant.origins)
    assert all(mutant.origins and mutant.requirement in CHECKED for mutant in MUTANTS.values())


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_a_mutant_is_flagged_by_its_case_files(name: str, world_of: WorldOf) -> None:
    requirement = MUTANTS[name].requirement
    world, cases = world_of(name), _cases_of(MUTANTS[name])
    assert cases
    for case in cases[:2]:
        program = shipped()[case].program
        assert judge(program, world.run(program), (requirement,))[requirement].violations, case


def test_no_two_mutants_are_alike(world_of: WorldOf) -> None:
    rows: dict[Row, str] = {}
    for name in MUTANTS:
        row = _row(world_of(name))
        assert row, name
        assert row not in rows, f"{name} and {rows[row]}"
        rows[row] = name


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_a_mutant_is_flagged_by_few_generated_programs(name: str) -> None:
    """`allranks bench detect` measures how few; here it is one seed."""
    (found,) = searches(MUTANTS[name], 1, 60, 4)
    assert found.found, f"not one of {found.examples} Programs; they broke {dict(found.noise)}"


@pytest.mark.parametrize("name", ["plain", "refimpl", "silent-add", "silent-unbind", "exports-alone", "half-mapped"])
def test_every_driver_call_fails_once(name: str) -> None:
    engine = _engine(name, ("LIFE-4", "RDV-3", "NVLS-7"))
    engine.run_faults(engine.faulted())
    engine.close()
    wanted = {MUTANTS[name].requirement} if name in MUTANTS else set()
    assert wanted <= set(engine.result.findings)
    assert wanted or not engine.result.findings
    # Every program is run once for each call that the communicator makes, and each of those calls really failed.
    assert engine.result.tallies["LIFE-4"].evaluated == engine.result.programs


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_unusual_ones_pass_all_cases_and_generated_programs(name: str) -> None:
    machine = sim.machine(VARIANTS[name].machine)
    engine = Engine(load_backend(name), machine, CHECKED, seed=5, max_ranks=3)
    engine.run_cases(SHORT.items())
    for family in engine.families():
        engine.run_family(family, 15)
    engine.close()
    assert {name: finding.violation for name, finding in engine.result.findings.items()} == {}
    assert engine.result.nondeterministic == []


@pytest.mark.parametrize("backend", ["refimpl", "plain"])
@pytest.mark.parametrize("case", sorted(shipped()))
def test_right_ones_pass_the_shipped_cases(backend: str, case: str, world_of: WorldOf) -> None:
    program = shipped()[case].program
    outcomes = judge(program, world_of(backend).run(program))
    assert {name: outcome.violations for name, outcome in outcomes.items() if outcome.violations} == {}


@pytest.mark.parametrize("backend", ["refimpl", "plain"])
@pytest.mark.parametrize("machine", ["h100", "h200", "h100-512m", "small", "no-multicast"])
def test_right_ones_pass_generated_programs(backend: str, machine: str) -> None:
    requirements = tuple(name for name in REQUIREMENTS if name not in FAULTED)
    engine = Engine(load_backend(backend), sim.machine(machine), requirements, seed=11, max_ranks=4)
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
