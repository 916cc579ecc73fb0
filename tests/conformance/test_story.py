"""Failures are short stories."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from allranks.conformance.cases import shipped
from allranks.conformance.checks import judge
from allranks.conformance.story import MOST_LINES, lanes, tell
from allranks.conformance.worlds.threads import ThreadsWorld

WorldOf = Callable[..., ThreadsWorld]


@pytest.mark.parametrize("case", ["rdv-one-rank-reallocates", "rdv-root-alone-switches"])
@pytest.mark.parametrize("backend", ["local-key", "plain-local-key"])
def test_the_story_names_who_waits_where_and_where_the_others_are(backend: str, case: str, world_of: WorldOf) -> None:
    program = shipped()[case].program
    trace = world_of(backend).run(program)
    (violation,) = judge(program, trace, ("RDV-2",))["RDV-2"].violations
    story = tell(program, trace, violation, f"allranks replay {case} --backend {backend}")
    text = "\n".join(story)
    assert len(story) <= MOST_LINES
    assert f"RDV-2 is broken in step {violation.step} (connect)" in text
    assert "ranks [0] entered 1 internal rendezvous, the others 0" in text
    assert story[-1] == f"Again: allranks replay {case} --backend {backend}"
    drawn = lanes(program, trace)
    assert drawn[0].split() == ["step", *(word for rank in range(4) for word in ("rank", str(rank)))]


def test_waiting_ranks_are_told_with_call_object_step_and_whom_they_wait_for(world_of: WorldOf) -> None:
    program = shipped()["rdv-one-rank-reallocates"].program
    trace = world_of("plain-local-key").run(program)
    (violation,) = judge(program, trace, ("RDV-1",))["RDV-1"].violations
    story = tell(program, trace, violation)
    assert "  rank 0 waits in exchange, on connect #1, for ranks 1, 2, 3 (step 7, connect)" in story
    assert "  ranks 1, 2, 3 wait in exchange, on world: start of step 8 #0, for rank 0 (step 8, put)" in story
