"""A Program goes no further than the library's contract, in always the same way, and what was changed is counted."""

from __future__ import annotations

import pytest

from allranks.conformance import program as p
from allranks.conformance.backend import load_backend
from allranks.conformance.backends.plain import PlainBackend
from allranks.conformance.draws import draw_programs
from allranks.conformance.narrowing import Contract, Narrowing, contract_of, narrowings_of
from allranks.conformance.program import Operand, Program, Region, unrolled
from allranks.errors import UsageError

REGION = Operand(Region())
HALVES = Narrowing(requirement="COLL-1", reason="has no halves", source="a manual", dtypes=("float16", "bfloat16"))
EQUAL = Narrowing(requirement="RDV-5", reason="takes equal counts only", source="a manual", unequal_counts=True)


def gathering(dtype: str, empty_on: tuple[int, ...] = ()) -> Program:
    step = p.AllGather(send=REGION, receive=REGION, count=4, dtype=dtype, empty_on=empty_on)
    return Program(rank_count=2, steps=(p.Allocate(size_bytes=4096), p.Repeat(times=2, steps=(step,))))


def gathered(program: Program) -> p.AllGather:
    return next(one.step for one in unrolled(program) if isinstance(one.step, p.AllGather))


def test_a_type_that_is_not_there_becomes_one_of_its_size() -> None:
    contract = Contract((HALVES, EQUAL))
    changed = gathered(contract.within(gathering("bfloat16")))
    assert changed.dtype == "int8"  # no other type of two bytes is left
    assert gathered(Contract((EQUAL,)).within(gathering("bfloat16"))).dtype == "bfloat16"
    no_doubles = Narrowing(requirement="COLL-1", reason="r", source="s", dtypes=("float64",))
    assert gathered(Contract((no_doubles,)).within(gathering("float64"))).dtype == "int64"
    assert dict(contract.changed) == {HALVES: 1}


def test_an_operation_that_is_not_there_becomes_one_that_is() -> None:
    def reducing(operation: str) -> Program:
        step = p.AllReduce(send=REGION, receive=REGION, count=4, operation=operation)
        return Program(rank_count=2, steps=(p.Allocate(size_bytes=4096), step))

    sums = Narrowing(requirement="COLL-1", reason="r", source="s", operations=("sum",))
    products = Narrowing(requirement="COLL-1", reason="r", source="s", operations=("prod",))
    contract = Contract((sums, products))
    assert contract.within(reducing("sum")) == reducing("min")
    assert contract.within(reducing("prod")) == reducing("min")
    assert contract.within(reducing("max")) == reducing("max")
    assert dict(contract.changed) == {sums: 1, products: 1}


def test_ranks_without_elements_become_ranks_with_some() -> None:
    contract = Contract((EQUAL,))
    assert gathered(contract.within(gathering("int8", (1,)))).empty_on == ()
    assert dict(contract.changed) == {EQUAL: 1}


def test_what_is_within_the_contract_is_the_same_object() -> None:
    program = gathering("int32")
    assert Contract((HALVES, EQUAL)).within(program) is program


@pytest.mark.parametrize("family", ["COLL", "RDV"])
def test_no_drawn_program_goes_beyond(family: str) -> None:
    contract, seen = Contract((HALVES, EQUAL)), 0

    def use(program: Program, _: int) -> None:
        nonlocal seen
        for one in unrolled(contract.within(program)):
            if isinstance(one.step, p.AllReduce | p.AllGather):
                seen += 1
                assert one.step.dtype not in HALVES.dtypes
                assert one.step.empty_on == ()

    draw_programs(family, 60, use, seed=1, max_ranks=3)
    assert seen > 20
    assert set(contract.changed) == {HALVES, EQUAL}


def test_strictly_there_is_no_contract() -> None:
    backend = PlainBackend()
    backend.narrowings = (HALVES,)  # type: ignore[attr-defined]
    program = gathering("float16")
    assert contract_of(backend, strict=True).within(program) is program
    assert contract_of(backend).within(program) is not program


@pytest.mark.parametrize(
    ("declared", "wanted"),
    [
        ([HALVES], "wants a tuple of Narrowing"),
        (("COLL-1",), "wants a tuple of Narrowing"),
        ((Narrowing(requirement="COLL-1", reason=" ", source="s", dtypes=("int8",)),), "wants a reason and a source"),
        ((Narrowing(requirement="COLL-1", reason="r", source="s"),), "takes nothing out"),
        ((Narrowing(requirement="COLL-1", reason="r", source="s", dtypes=("int3",)),), "dtypes=['int3']: known are"),
        ((Narrowing(requirement="COLL-1", reason="r", source="s", dtypes=p.DTYPES),), "leaves no dtype"),
        ((Narrowing(requirement="COLL-1", reason="r", source="s", operations=("xor",)),), "operations=['xor']: known"),
        (
            tuple(Narrowing(requirement="COLL-1", reason="r", source="s", operations=(one,)) for one in p.OPERATIONS),
            "leaves no operation",
        ),
    ],
)
def test_a_declaration_that_says_nothing_is_refused(declared: object, wanted: str) -> None:
    backend = PlainBackend()
    backend.narrowings = declared  # type: ignore[attr-defined]
    with pytest.raises(UsageError) as caught:
        narrowings_of(backend)
    assert wanted in str(caught.value)


def test_a_backend_that_declares_nothing_has_none() -> None:
    assert narrowings_of(load_backend("plain")) == ()
