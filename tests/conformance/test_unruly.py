"""A backend that blocks, spins, raises on one rank or ends its process is named with its stack, and the run goes on."""

from __future__ import annotations

import gc

import pytest

from allranks import sim
from allranks.conformance.backend import make_backend
from allranks.conformance.casefile import Case
from allranks.conformance.checks import judge
from allranks.conformance.engine import CASES, MOST_INTERRUPTIONS, Engine
from allranks.conformance.isolated import run_jobs
from allranks.conformance.program import Allocate, AllReduce, Operand, Program, Region
from allranks.conformance.result import Result
from allranks.conformance.worker import Job
from allranks.conformance.worlds.session import Session
from allranks.conformance.worlds.stacks import from_dump
from allranks.conformance.worlds.threads import QUIET_TIMEOUT_S, ThreadsWorld
from tests.conformance import unruly


def summing(count: int) -> Program:
    """Two ranks add `count` numbers up; rank 1 of an unruly communicator misbehaves from two on."""
    region = Operand(Region())
    steps = (Allocate(size_bytes=4096), AllReduce(send=region, receive=region, count=count))
    return Program(rank_count=2, steps=steps)


# Long enough for a busy machine, where a time-out is what is waited for; elsewhere the usual one.
QUIET_S: dict[type, float] = {unruly.Blocks: 1.0, unruly.Spins: 1.0, unruly.HoldsTheLock: 1.0}


def job(kind: type, source: str = "COLL", count: int = 0, case: Case | None = None) -> Job:
    return Job(
        backend=f"tests.conformance.unruly:{kind.__name__}",
        machine=sim.machine("tiny", devices=4),
        requirements=("RDV-1", "COLL-1"),
        seed=0,
        max_ranks=2,
        quiet_timeout_s=QUIET_S.get(kind, QUIET_TIMEOUT_S),
        source=source,
        count=count,
        case=case,
    )


def replayed(kind: type) -> Result:
    """Run the sum in a process of its own."""
    ((result, _),) = run_jobs([job(kind, case=Case(program=summing(4)))])
    return result


@pytest.mark.parametrize(
    ("kind", "how", "function"),
    [
        (unruly.Exits, "the backend's process ended: os._exit(7) in rank 1:", "in misbehave"),
        (unruly.ExitsInC, "the backend's process ended with exit code 9:", ""),
        (unruly.Crashes, "the backend's process ended: SIGSEGV:", "in misbehave"),
        (unruly.HoldsTheLock, "the backend's process gave no sign of life, and was ended:", "in misbehave"),
        (unruly.Blocks, "a rank kept its turn without coming by the driver:", "in misbehave"),
        (unruly.Spins, "a rank kept its turn without coming by the driver:", "in misbehave"),
    ],
)
def test_a_program_without_an_end_is_a_finding_with_step_and_stack(kind: type, how: str, function: str) -> None:
    result = replayed(kind)
    (finding,) = result.interruptions
    evidence = finding.violation.evidence
    assert evidence.splitlines()[0] == how
    assert function in evidence
    assert "rank 1" in evidence
    assert "in step 1 (all_reduce)" in evidence
    assert finding.program == summing(4)
    assert result.findings["RDV-1"].violation.evidence == evidence
    assert result.programs == 1


@pytest.mark.parametrize(
    ("kind", "error"), [(unruly.Raises, "LookupError: no such channel"), (unruly.Leaves, "SystemExit: 3")]
)
def test_an_exception_on_one_rank_is_named_with_where_it_came_from(kind: type, error: str) -> None:
    result = replayed(kind)
    violation = result.findings["RDV-1"].violation
    assert violation.rank == 1
    assert violation.evidence.startswith(f"{error}, raised at unruly.py:")
    assert " in misbehave < unruly.py:" in violation.evidence
    assert result.interruptions == []


def test_an_exception_in_open_is_named_with_where_it_came_from() -> None:
    violation = replayed(unruly.RefusesToOpen).findings["RDV-1"].violation
    assert violation.operation == "open"
    assert violation.evidence.startswith("open: LookupError: no such device, raised at unruly.py:")


def test_an_exception_in_a_property_is_named_with_where_it_came_from() -> None:
    violation = replayed(unruly.CannotCount).findings["RDV-1"].violation
    assert "LookupError: lost count, raised at unruly.py:" in violation.evidence


def test_a_failure_of_the_world_itself_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(session: Session) -> None:
        raise ZeroDivisionError(f"in rank {session.rank}")

    with ThreadsWorld(make_backend(unruly.Raises), sim.machine("tiny")) as world:
        with monkeypatch.context() as patched:
            patched.setattr(Session, "play", fail)
            with pytest.raises(ZeroDivisionError, match="in rank 0"):
                world.run(summing(4))
        assert not world.run(summing(1)).outside  # its threads are as good as before


def test_a_capability_that_there_is_not_is_named() -> None:
    violation = replayed(unruly.Misspelt).findings["RDV-1"].violation
    assert "capabilities=allreduce: known are channels, multicast, all_reduce" in violation.evidence


def test_the_run_goes_on_after_the_process_has_ended() -> None:
    numbers: list[int] = []
    ((result, done),) = run_jobs([job(unruly.Exits, count=8)], progress=lambda ran: numbers.append(ran.examples))
    assert numbers == list(range(1, result.programs + 1))  # none is left out, none is run twice
    ended = [finding.examples for finding in result.interruptions]
    assert len(ended) == MOST_INTERRUPTIONS
    assert ended[0] < ended[-1] == result.stopped["COLL"]
    assert result.tallies["COLL-1"].evaluated  # those in between were judged
    assert not done.draws  # not all were drawn in one process


def test_jobs_are_done_side_by_side_and_given_in_order() -> None:
    jobs = [job(unruly.Exits, source=CASES), job(unruly.Raises, count=3), job(unruly.Raises, source=CASES)]
    (first, _), (second, done), (third, _) = run_jobs(jobs, processes=2)
    assert [first.backend, second.backend, third.backend] == ["exits", "raises", "raises"]
    assert second.programs == 3
    assert second.draws == {"COLL": done.draws}


@pytest.mark.parametrize("kind", [unruly.Blocks, unruly.Spins])
def test_the_world_is_rebuilt_in_the_same_process(kind: type) -> None:
    with ThreadsWorld(make_backend(kind), sim.machine("tiny"), quiet_timeout_s=QUIET_S[kind]) as world:
        stuck = world.run(summing(4))
        well = world.run(summing(1))
    assert "in misbehave" in stuck.outside
    assert not well.outside
    assert judge(summing(1), well, ("COLL-1",))["COLL-1"].violations == []
    assert [event.status for events in well.events for event in events] == ["ok"] * 4


def test_an_engine_gives_a_source_up_that_never_ends() -> None:
    engine = Engine(
        make_backend(unruly.Blocks),
        sim.machine("tiny", devices=4),
        ("RDV-1", "COLL-1"),
        seed=0,
        max_ranks=2,
        quiet_timeout_s=1.0,
    )
    engine.run_family("COLL", 12)
    engine.close()
    assert len(engine.result.interruptions) == MOST_INTERRUPTIONS
    assert engine.result.stopped["COLL"] == engine.result.interruptions[-1].examples == engine.result.programs


def test_a_dump_of_the_interpreter_is_told_without_those_that_wait_for_their_turn() -> None:
    turns = sim.wait.__code__.co_filename
    dump = (
        "Fatal Python error: Bus error\n\n"
        'Thread 0x01 (most recent call first):\n  File "/x/backend.py", line 3 in inner\n'
        '  File "/x/backend.py", line 9 in outer\n\n'
        f'Thread 0x02 (most recent call first):\n  File "{turns}", line 64 in wait\n'
        '  File "/x/other.py", line 5 in call\n'
    )
    assert from_dump(dump) == ["Fatal Python error: Bus error", "backend.py:9 in outer", "backend.py:3 in inner"]


def test_a_finaliser_that_comes_after_the_run_waits_for_nobody() -> None:
    """It would wait in real time for ranks that are gone."""
    backend = unruly.MeetsAtTheEnd()
    with ThreadsWorld(backend, sim.machine("tiny", devices=4)) as world:
        world.run(summing(4))
        gc.collect()
    over = "finaliser: the run is over, and nobody comes any more"
    assert sorted(backend.communicator.said) == [f"rank {rank}: {over}" for rank in range(2)]
