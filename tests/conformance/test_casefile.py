"""Case files: exact round trip, and one clear error for everything that is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allranks.conformance.casefile import Case, dumps, load, loads
from allranks.conformance.cases import shipped
from allranks.conformance.plan import planned
from allranks.conformance.program import Allocate, Operand, Program, Repeat, Step
from allranks.conformance.strategies import TABLES, programs
from allranks.errors import UsageError

any_program = st.sampled_from(sorted(TABLES)).flatmap(lambda family: programs(family, max_ranks=5))


@settings(max_examples=60, deadline=None, database=None)
@given(any_program)
def test_a_case_comes_back_as_it_was(program: Program) -> None:
    case = Case(program=program, title="t", origins=("a/b#1",), requirements=("RDV-1",), machine="h200")
    assert loads(dumps(case)) == case


@settings(max_examples=60, deadline=None, database=None)
@given(any_program, st.data())
def test_every_sublist_of_steps_is_a_program(program: Program, data: st.DataObject) -> None:
    kept = data.draw(st.lists(st.booleans(), min_size=len(program.steps), max_size=len(program.steps)))
    steps: tuple[Step, ...] = tuple(step for step, keep in zip(program.steps, kept, strict=True) if keep)
    shorter = Program(rank_count=program.rank_count, steps=steps)
    plan = list(planned(shorter))
    assert [step.number for step in plan] == list(range(len(plan)))
    for step in plan:
        if step.applies and step.collective:
            assert step.ranks == tuple(range(program.rank_count))


def _text(**changes: object) -> str:
    value = json.loads(dumps(Case(program=Program(rank_count=2, steps=(Allocate(size_bytes=64),)))))
    value.update(changes)
    return json.dumps(value)


def _failing(rank: int = 0, call: str = "cuMemAlloc", code: int = 2) -> dict[str, object]:
    return {"rank_count": 2, "steps": [], "faults": [{"rank": rank, "call": call, "k": 0, "code": code}]}


def test_a_call_that_fails_is_read() -> None:
    assert loads(_text(program=_failing())).program.faults[0].call == "cuMemAlloc"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "cut off"),
        ("[]", "allranks_case is missing"),
        (_text(allranks_case=2), "reads 1"),
        (_text(other=1), "case.other=1: Case has no such field"),
        (_text(program={"steps": []}), "program.rank_count=None: Program needs it"),
        (_text(program={"rank_count": 0, "steps": []}), "from 1 to 1024"),
        (_text(program={"rank_count": True, "steps": []}), "wants int"),
        (_text(program={"rank_count": -1, "steps": []}), "is not negative"),
        (_text(program={"rank_count": 2, "steps": [{"step": "Fly"}]}), "program.steps[0].step='Fly': one of Allocate"),
        (_text(program={"rank_count": 2, "steps": [{"step": "Allocate"}]}), "size_bytes=None: Allocate needs it"),
        (_text(program={"rank_count": 2, "steps": [{"step": "Allocate", "size_bytes": 0}]}), "at least 1 byte"),
        (
            _text(program={"rank_count": 2, "steps": [{"step": "Allocate", "size_bytes": 1, "placement": "up"}]}),
            "placement='up': one of low",
        ),
        (
            _text(program={"rank_count": 2, "steps": [{"step": "Connect", "region": {"default": {}, "but": {}}}]}),
            "wants default",
        ),
        (
            _text(program={"rank_count": 2, "steps": [{"step": "Bind", "buffer": {"default": 0, "except": {"x": 1}}}]}),
            "keys are ranks",
        ),
        (
            _text(
                program={
                    "rank_count": 2,
                    "steps": [{"step": "Bind", "buffer": {"default": 0, "except": {"9" * 5000: 1}}}],
                }
            ),
            "keys are ranks",
        ),
        (_text(program={"rank_count": 2, "steps": [], "shift_bytes": {"default": 1 << 47}}), "is below"),
        (_text(program=_failing(rank=2)), "faults[0].rank=2: there are 2 ranks"),
        (_text(program=_failing(call="cuNope")), "no driver call of that name"),
        (_text(program=_failing(code=0)), "from 1 to"),
        (_text(program=_failing(code=1 << 31)), "from 1 to"),
    ],
)
def test_what_is_no_case_is_refused_with_place_and_rule(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        loads(text, "file")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_prefix_of_a_case_is_refused() -> None:
    text = dumps(next(iter(shipped().values())))
    for length in range(0, len(text.rstrip()), 7):
        with pytest.raises(UsageError):
            loads(text[:length])


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"missing\.json: cannot be read"):
        load(tmp_path / "missing.json")


def test_defaults_are_left_out_of_files() -> None:
    program = Program(rank_count=2, steps=(Repeat(times=2, steps=(Allocate(size_bytes=64),)),))
    assert json.loads(dumps(Case(program=program)))["program"] == {
        "rank_count": 2,
        "steps": [{"step": "Repeat", "times": 2, "steps": [{"step": "Allocate", "size_bytes": 64}]}],
    }


def test_operands_are_a_default_and_exceptions() -> None:
    assert [Operand("a", {1: "b"}).of(rank) for rank in range(3)] == ["a", "b", "a"]
