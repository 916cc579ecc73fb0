"""Ranks in processes play a Program while the next one is drawn: what comes of it is the same, in the same order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from allranks import sim
from allranks.conformance.backend import Backend, load_backend
from allranks.conformance.draws import draw_programs
from allranks.conformance.engine import DrawPrograms, Engine
from allranks.conformance.plan import Planned
from allranks.conformance.program import Program
from allranks.conformance.trace import Trace
from allranks.conformance.worlds import Ahead, World
from allranks.conformance.worlds.threads import ThreadsWorld

MACHINE = sim.machine("tiny", devices=2)
COUNT = 12


class Later(Ahead):
    """Runs a Program when its end is asked for, in threads."""

    deterministic = False

    def __init__(self, backend: Backend, log: list[str]) -> None:
        self.inner = ThreadsWorld(backend, MACHINE)
        self.log = log
        self.runs = 0
        self.begun: tuple[Program, list[Planned] | None] | None = None

    def begin(self, program: Program, *, plan: list[Planned] | None = None) -> None:
        assert self.begun is None
        self.begun = (program, plan)
        self.runs += 1
        self.log.append("begin")

    def end(self) -> Trace:
        assert self.begun is not None
        (program, plan), self.begun = self.begun, None
        self.log.append("end")
        return self.inner.run(program, plan=plan)

    def close(self) -> None:
        self.inner.close()


def checked(
    backend: str,
    make: Callable[[Backend], World],
    log: list[str],
    *,
    skip: int = 0,
    draw: DrawPrograms = draw_programs,
) -> Any:
    """Check a backend, and give what came of it, for comparison."""
    loaded = load_backend(backend)
    engine = Engine(
        loaded,
        MACHINE,
        ("COLL-1", "RDV-2"),
        seed=3,
        max_ranks=2,
        world=make(loaded),
        progress=lambda ran: log.append(f"judged {ran.examples}"),
        draw=draw,
    )
    for family in engine.families():
        engine.run_family(family, COUNT, skip=skip)
    engine.close()
    result = engine.result
    found = {name: (one.program, one.violation, one.source, one.examples) for name, one in result.findings.items()}
    return found, result.tallies, result.draws, result.programs, result.stopped


@pytest.mark.parametrize("backend", ["plain", "local-key"])
def test_what_comes_of_programs_is_the_same_as_one_after_the_other(backend: str) -> None:
    ahead: list[str] = []
    after: list[str] = []
    made = checked(backend, lambda loaded: Later(loaded, ahead), ahead)
    assert made == checked(backend, lambda loaded: ThreadsWorld(loaded, MACHINE), after)
    assert [line for line in ahead if line.startswith("judged")] == after


def test_a_program_is_drawn_while_the_one_before_is_played_which_is_judged_while_it_is_played_itself() -> None:
    log: list[str] = []

    def noted(family: str, count: int, use: Callable[[Program, int], None], **given: int) -> None:
        def drawn(program: Program, examples: int) -> None:
            log.append(f"drawn {examples}")
            use(program, examples)

        draw_programs(family, count, drawn, **given)

    checked("plain", lambda loaded: Later(loaded, log), log, skip=COUNT - 3, draw=noted)
    last = log[log.index(f"drawn {COUNT - 2}") :][:12]
    rounds = [[f"drawn {number}", "begin", "end", f"judged {number}"] for number in range(COUNT - 2, COUNT + 1)]
    (first, *others) = rounds
    wanted = first[:2]
    for before, one in zip(rounds, others, strict=False):
        wanted += [one[0], before[2], one[1], before[3]]
    assert last == [*wanted, *rounds[-1][2:]]
