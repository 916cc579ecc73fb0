"""The turnstile: exactly one task at a time, in an order that the schedule alone decides.

Not verified here: blocks of kernels and streams as tasks, which only host-compiled kernels make.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from allranks import sim
from tests.sim.turnstile_world import World, wait_for


def three_words(world: World) -> Callable[[int], None]:
    def body(rank: int) -> None:
        for word in range(3):
            world.say(f"{rank}.{word}")
            sim.yield_turn()

    return body


IN_ORDER = [f"{rank}.{word}" for rank in range(3) for word in range(3)]


def test_ranks_go_in_order_of_entering_numbers(make_world: Callable[[int], World]) -> None:
    world = make_world(3)
    assert world.run(three_words(world)) == IN_ORDER
    assert world.node.deviations() == []
    assert world.node.decisions > 0


def test_a_deviation_lets_another_rank_go_first(make_world: Callable[[int], World]) -> None:
    world = make_world(3)
    log = world.run(three_words(world), [(0, 2)])
    assert log[:3] == ["2.0", "2.1", "2.2"]
    assert sorted(log) == IN_ORDER
    assert world.node.deviations() == [(0, 2)]


def test_a_deviation_at_a_yield(make_world: Callable[[int], World]) -> None:
    """Decision 0 is who begins; decision 1 is the first yield of rank 0."""
    world = make_world(3)
    assert world.run(three_words(world), [(1, 1)])[:2] == ["0.0", "1.0"]


def test_a_choice_is_taken_modulo_the_runnable_tasks(make_world: Callable[[int], World]) -> None:
    world = make_world(3)
    assert world.run(three_words(world), [(0, 5)])[0] == "2.0"
    assert world.node.deviations() == [(0, 2)]


def test_a_task_that_holds_pythons_lock_can_lose_its_turn(make_world: Callable[[int], World]) -> None:
    """Whatever calls into the driver may be sent to wait there, what Python does when an object dies included."""
    world = make_world(2)

    class Notifies:
        def __del__(self) -> None:
            sim.notify(7)

    def body(rank: int) -> None:
        for word in range(5):
            sim.notify(7)
            world.say(f"{rank}.{word}")
            Notifies()

    log = world.run(body, lambda decision, runnable: 1 % runnable)
    assert sorted(log) == sorted(f"{rank}.{word}" for rank in range(2) for word in range(5))
    assert log != sorted(log)


def test_a_callable_schedule_is_asked_and_its_deviations_replay(make_world: Callable[[int], World]) -> None:
    world = make_world(3)
    asked: list[tuple[int, int]] = []

    def choose(decision: int, runnable: int) -> int:
        asked.append((decision, runnable))
        return decision * 7 % runnable

    log = world.run(three_words(world), choose)
    deviations = world.node.deviations()
    assert [decision for decision, _ in asked] == list(range(world.node.decisions))
    assert all(runnable >= 2 for _, runnable in asked)
    assert deviations
    assert world.run(three_words(world), deviations) == log
    assert world.node.deviations() == deviations


def test_the_same_schedule_gives_the_same_order_on_another_node(make_world: Callable[[int], World]) -> None:
    logs = []
    for _ in range(2):
        world = make_world(3)
        logs.append((world.run(three_words(world), [(0, 1), (2, 1), (4, 2)]), world.node.decisions))
    assert logs[0] == logs[1]


def test_a_wait_goes_on_when_it_is_notified(make_world: Callable[[int], World]) -> None:
    world = make_world(2)
    flags: list[str] = []

    def body(rank: int) -> None:
        if rank == 0:
            world.say("waits")
            assert wait_for(lambda: bool(flags), key=1) is sim.WaitResult.READY
            world.say("goes on")
        else:
            flags.append("set")
            world.say("sets")
            sim.notify(1)

    assert world.run(body) == ["waits", "sets", "goes on"]
    assert not world.node.stalled


def test_notify_of_another_key_wakes_nobody(make_world: Callable[[int], World]) -> None:
    world = make_world(2)
    flags: list[str] = []

    def body(rank: int) -> None:
        if rank == 0:
            world.say(wait_for(lambda: bool(flags), key=1).name)
        else:
            flags.append("set")
            sim.notify(2)

    assert world.run(body) == ["STALLED"]


def test_a_true_condition_does_not_wait(make_world: Callable[[int], World]) -> None:
    world = make_world(1)
    assert world.run(lambda _: world.say(wait_for(lambda: True).name)) == ["READY"]


def test_an_error_in_the_condition_is_raised_where_it_waits(make_world: Callable[[int], World]) -> None:
    world = make_world(1)

    def broken() -> bool:
        raise LookupError("no such flag")

    def body(_: int) -> None:
        with pytest.raises(LookupError, match="no such flag"):
            wait_for(broken)
        world.say("raised")

    assert world.run(body) == ["raised"]


def test_outside_of_a_run_a_wait_with_a_deadline_ends(make_world: Callable[[int], World]) -> None:
    make_world(1).processes[0].bind()
    assert wait_for(lambda: False, timeout_s=0.01) is sim.WaitResult.TIMEOUT
    assert wait_for(lambda: True) is sim.WaitResult.READY
    sim.unbind()


def test_a_run_needs_a_task_and_takes_each_order_once(make_world: Callable[[int], World]) -> None:
    world = make_world(1)
    with pytest.raises(ValueError, match="task_count=0"):
        world.node.run_begin(0)
    world.node.run_begin(1)
    with pytest.raises(ValueError, match="in progress"):
        world.node.run_begin(1)
    with pytest.raises(RuntimeError, match="order=3"):
        world.processes[0].enter(3)
    world.processes[0].enter(0)
    sim.leave()
    assert world.node.run_wait(1.0)


def test_run_wait_tells_a_task_that_keeps_quiet(make_world: Callable[[int], World]) -> None:
    world = make_world(1)
    go_on = threading.Event()

    def quiet() -> None:
        world.processes[0].enter(0)
        go_on.wait()
        sim.leave()

    world.node.run_begin(1)
    thread = threading.Thread(target=quiet)
    thread.start()
    while world.node.run_wait(0.02):
        pass
    go_on.set()
    assert world.node.run_wait(60.0)
    thread.join()
