"""Margins: beside every range, never within one, never beyond the buffer."""

from __future__ import annotations

import pytest

from allranks.conformance.draws import draw_programs
from allranks.conformance.model import footprints
from allranks.conformance.plan import planned
from allranks.conformance.program import Allocate, Program
from allranks.conformance.requirements import FAMILIES
from allranks.conformance.worlds.margins import with_margins


@pytest.mark.parametrize("family", FAMILIES)
def test_margins_touch_what_is_touched_and_overlap_nothing(family: str) -> None:
    looked: list[int] = []

    def use(program: Program, number: int) -> None:
        plan = list(planned(program))
        ranges = footprints(program, plan)
        sizes = {
            (rank, part.buffer): part.size_bytes
            for step in plan
            if step.applies and isinstance(step.step, Allocate)
            for rank, part in enumerate(step.parts)
            if part is not None
        }
        wider = with_margins(ranges, plan)
        assert set(wider) == set(sizes)
        for key, found in wider.items():
            assert found[: len(ranges.get(key, []))] == ranges.get(key, [])
            end = 0
            for offset, size in sorted(found):
                assert size > 0
                assert offset >= end
                end = offset + size
            assert end == sizes[key]  # the last byte is in it, and so is the first
            assert min(found)[0] == 0
            looked.append(number)

    draw_programs(family, 15, use, seed=4, max_ranks=3)
    assert looked
