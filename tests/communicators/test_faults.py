"""A green line means that something was looked at: faults around real libraries, each found where it belongs."""

from __future__ import annotations

import contextlib

import pytest

from allranks.conformance.checks import judge
from allranks.conformance.corpus.faulty import FAULT_KINDS
from allranks.conformance.draws import draw_programs
from allranks.conformance.narrowing import contract_of
from allranks.conformance.program import Program
from allranks.conformance.running import make_world
from allranks.conformance.settings import settings_of

DEADLINE_S = 2.0
MOST_PROGRAMS = 40
# Whose Programs have what the fault needs; elsewhere a collective is enough.
FAMILIES = {"stale-registration": "LIFE"}


class Found(Exception):  # noqa: N818 -- no error: it ends the search
    """The fault was found."""


def broken_by(library: str, fault: str, count: int) -> dict[str, str]:
    """Run Programs until the fault is found, and give the evidence by requirement."""
    settings = settings_of(backend=f"{library}+{fault}", ranks=2, deadline_s=DEADLINE_S)
    broken: dict[str, str] = {}
    with make_world(settings) as world:
        contract = contract_of(world.backend)

        def use(drawn: Program, _: int) -> None:
            program = contract.within(drawn)
            for name, outcome in judge(program, world.run(program)).items():
                for violation in outcome.violations:
                    broken.setdefault(name, violation.evidence)
            if set(broken) & set(FAULT_KINDS[fault].requirements):
                raise Found

        with contextlib.suppress(Found):
            draw_programs(FAMILIES.get(fault, "COLL"), count, use, seed=0, max_ranks=2)
    return broken


@pytest.mark.parametrize("fault", [name for name, kind in FAULT_KINDS.items() if kind.requirements])
def test_a_fault_is_found_where_it_belongs(library: str, fault: str) -> None:
    broken = broken_by(library, fault, MOST_PROGRAMS)
    assert set(broken) & set(FAULT_KINDS[fault].requirements), broken


def test_a_rank_that_is_only_slow_breaks_nothing(library: str) -> None:
    assert broken_by(library, "slow", 6) == {}


def test_the_library_itself_passes_the_same_programs(library: str) -> None:
    settings = settings_of(backend=library, ranks=2, programs=1)
    program = Program(rank_count=2, steps=())
    with make_world(settings) as world:
        assert world.run(program).first_trouble() is None
