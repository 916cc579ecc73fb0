"""Stalls, deadlines and the clock: when nothing can run, that is known at once, reported, and unwound.

Not verified here: how long a verdict takes; `allranks bench stall` measures that.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest

from allranks import sim
from allranks.driver import Driver
from allranks.errors import DriverError
from tests.sim.turnstile_world import World, wait_for

LAUNCH_TIMEOUT = 702
NEVER = 0x4E


def test_a_stall_names_who_waits_in_what_for_whom(make_world: Callable[[int], World]) -> None:
    world = make_world(3)

    def body(rank: int) -> None:
        sim.label(10 + rank, "connect", owner=1)
        if rank < 2:
            result = sim.wait(
                lambda: False, call="bootstrap.all_gather", object="connect #3", waits_for=lambda: [2], key=NEVER
            )
            world.say(f"{rank} {result.name}")

    world.run(body)
    assert sorted(world.log) == ["0 STALLED", "1 STALLED"]
    assert world.node.stalled
    report = world.node.run_report()
    assert report["stalled"] is True
    (moment,) = report["moments"]
    assert moment["kind"] == "stall"
    waits = [
        {
            "task": f"rank {rank}",
            "rank": rank,
            "step": 10 + rank,
            "operation": "connect",
            "call": "bootstrap.all_gather",
            "object": "connect #3",
            "waits_for": [2],
        }
        for rank in range(2)
    ]
    assert moment["waits"] == waits
    (other,) = moment["others"]
    assert (other["rank"], other["step"], other["operation"], other["state"]) == (2, 12, "connect", "left")
    assert 0 < world.node.verdict_ns < 1_000_000_000


def test_a_report_survives_any_text(make_world: Callable[[int], World]) -> None:
    world = make_world(1)
    strange = 'a "name"\\ with\nlines, \t tabs and \N{GREEK SMALL LETTER ALPHA}'

    def body(_: int) -> None:
        sim.label(1, strange)
        sim.wait(lambda: False, call=strange, object=strange)

    world.run(body)
    (wait,) = world.node.run_report()["moments"][0]["waits"]
    assert (wait["operation"], wait["call"], wait["object"]) == (strange, strange, strange)


def test_a_run_that_ends_reports_no_moment(make_world: Callable[[int], World]) -> None:
    world = make_world(2)
    world.run(lambda _: None)
    assert world.node.run_report() == {"stalled": False, "moments": []}
    assert world.node.verdict_ns == 0


def test_the_clock_jumps_to_the_earliest_deadline(make_world: Callable[[int], World]) -> None:
    world = make_world(2)

    def body(rank: int) -> None:
        begin = sim.now()
        result = wait_for(lambda: False, timeout_s=3600.0 * (2 - rank))
        world.say(f"{rank} {result.name} after {round(sim.now() - begin)} s")

    assert world.run(body) == ["1 TIMEOUT after 3600 s", "0 TIMEOUT after 7200 s"]
    report = world.node.run_report()
    assert [moment["kind"] for moment in report["moments"]] == ["deadline", "deadline"]
    assert not world.node.stalled


def test_the_clock_stands_still_while_somebody_can_run(make_world: Callable[[int], World]) -> None:
    world = make_world(2)
    flags: list[str] = []

    def body(rank: int) -> None:
        begin = sim.now()
        if rank == 0:
            result = wait_for(lambda: bool(flags), key=1, timeout_s=1.0)
            world.say(f"{result.name} after {sim.now() - begin} s")
        else:
            for _ in range(1000):
                sim.yield_turn()
            flags.append("set")
            sim.notify(1)

    assert world.run(body) == ["READY after 0.0 s"]


def test_driver_calls_after_a_stall_return_its_code_and_the_next_node_works(
    make_world: Callable[[int], World],
) -> None:
    driver = Driver.load(sim.library_path())
    world = make_world(2)

    def body(rank: int) -> None:
        driver.init()
        driver.set_device(0)
        if rank == 0:
            wait_for(lambda: False)
            for call in (lambda: driver.mem_alloc(4096), driver.synchronize, driver.mem_get_info):
                with pytest.raises(DriverError) as caught:
                    call()
                assert caught.value.code == LAUNCH_TIMEOUT
            assert wait_for(lambda: False) is sim.WaitResult.STALLED
        world.say(f"{rank} unwound")

    assert sorted(world.run(body)) == ["0 unwound", "1 unwound"]

    def allocate(rank: int) -> None:
        driver.init()
        driver.set_device(0)
        address = driver.mem_alloc(4096)
        driver.mem_free(address)
        fresh.say(f"{rank} allocates")

    fresh = make_world(2)
    assert fresh.run(allocate) == ["0 allocates", "1 allocates"]


def test_stalls_leave_no_thread_and_no_descriptor() -> None:
    def stall() -> None:
        world = World(3)
        world.run(lambda _: world.say(wait_for(lambda: False).name))
        assert world.log == ["STALLED"] * 3
        world.close()

    stall()
    threads, descriptors = threading.active_count(), sorted(os.listdir("/proc/self/fd"))
    native_threads = len(os.listdir("/proc/self/task"))
    for _ in range(200):
        stall()
    assert threading.active_count() == threads
    assert sorted(os.listdir("/proc/self/fd")) == descriptors
    # A thread may outlive its join for a moment; one left behind by each stall would be many more.
    assert len(os.listdir("/proc/self/task")) < native_threads + 100
