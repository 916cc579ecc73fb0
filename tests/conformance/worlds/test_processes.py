"""World `processes`: what becomes of ranks that stop, die or lie, and that nothing of them is left."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from allranks.conformance import program as p
from allranks.conformance.checks import judge
from allranks.conformance.commands.bench.processes import stalls
from allranks.conformance.program import Operand, Program, Region
from allranks.conformance.story import left_behind
from allranks.conformance.worlds.processes.workers import Worker
from allranks.conformance.worlds.processes.world import ProcessesWorld, check_backend
from allranks.errors import UsageError
from allranks.processes import watch
from allranks.processes.stillness import STILL_S
from allranks.processes.watch import children

UNRULY = "tests.conformance.worlds.host_unruly"
HOST = "tests.conformance.worlds.host_communicator:HostBackend"
REGION = Operand(Region())
STEP = 4  # the all_reduce
DEADLINE_S = 1.0
ENDS_S = 20.0


def summing(count: int, rank_count: int = 2) -> Program:
    """Some steps that go well, and an all_reduce."""
    return Program(
        rank_count=rank_count,
        steps=(
            p.Allocate(size_bytes=4096),
            p.Allocate(size_bytes=100_000, kind="plain"),
            p.Connect(region=REGION),
            p.Put(),
            p.AllReduce(send=REGION, receive=Operand(Region(buffer=1)), count=count),
            p.AllGather(send=REGION, receive=Operand(Region(buffer=1)), count=1),
        ),
    )


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[ProcessesWorld]:
    """Give a world of the backend that the test names; it leaves nothing behind."""
    name: str = request.param
    before = len(os.listdir("/proc/self/fd"))
    made = ProcessesWorld(name if ":" in name else f"{UNRULY}:{name}", deadline_s=DEADLINE_S)
    yield made
    pids = [made.workers._nursery.pid, *(worker.pid for worker in made.workers.by_rank.values())]
    made.close()
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    assert len(os.listdir("/proc/self/fd")) == before


def of(name: str) -> pytest.MarkDecorator:
    """Have the world run this backend."""
    return pytest.mark.parametrize("world", [name], indirect=True)


def goes_on(world: ProcessesWorld) -> None:
    """The next Program, in which nobody misbehaves, ends well."""
    trace = world.run(summing(1))
    assert trace.first_trouble() is None
    assert [event.status for event in trace.closing] == ["ok", "ok"]


def ended(worker: Worker) -> None:
    """Wait until a worker has ended."""
    assert select.select([worker.handle], [], [], ENDS_S)[0]


@of(HOST)
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_the_same_program_gives_the_same_trace_in_the_same_processes(world: ProcessesWorld, ranks: int) -> None:
    first = world.run(summing(9, ranks))
    pids = [worker.pid for worker in world.workers.by_rank.values()]
    assert first.first_trouble() is None
    assert len(first.contents) == 2 * ranks
    assert first.placed[0, 1].same_base_as == -1
    assert world.run(summing(9, ranks)).digest() == first.digest()
    assert [worker.pid for worker in world.workers.by_rank.values()] == pids


@of(HOST)
def test_a_program_has_to_end_before_another_begins(world: ProcessesWorld) -> None:
    with pytest.raises(RuntimeError, match="no Program has begun"):
        world.end()
    world.begin(summing(1))
    with pytest.raises(RuntimeError, match="before the end of another one"):
        world.begin(summing(1))
    assert world.end().first_trouble() is None
    goes_on(world)


@of("Blocks")
def test_a_world_that_is_closed_while_ranks_are_at_work_leaves_none(world: ProcessesWorld) -> None:
    world.begin(summing(8))  # the fixture closes it, and looks


@of(HOST)
@pytest.mark.parametrize("ranks", [2, 3])
def test_compound_steps_are_run_part_by_part(world: ProcessesWorld, ranks: int) -> None:
    """Some ranks write into the others' regions as soon as they have connected themselves."""
    exchange = p.Exchange(region=Operand(Region(), {1: Region(offset_bytes=64)}), piece_bytes=13)
    again = p.Reallocate(ranks=(1,), size_bytes=5000, placement="reuse")
    program = Program(
        rank_count=ranks,
        steps=(p.Allocate(size_bytes=4096), p.Repeat(times=3, steps=(exchange, again)), exchange),
    )
    trace = world.run(program)
    assert trace.first_trouble() is None
    assert [event.status for event in trace.closing] == ["ok"] * ranks
    outcomes = judge(program, trace)
    assert not any(outcome.violations for outcome in outcomes.values())
    assert outcomes["RDV-1"].evaluated == 8
    assert sum(outcomes[f"CACHE-{number}"].evaluated for number in (2, 3, 4)) >= 4
    assert [trace.placed[1, buffer].same_base_as for buffer in (1, 2, 3)] == [0, 1, 2]
    assert world.run(program).digest() == trace.digest()


@of("RefusesLargeRegions")
def test_after_a_connect_that_fails_no_rank_puts(world: ProcessesWorld) -> None:
    program = Program(rank_count=2, steps=(p.Allocate(size_bytes=2 << 20), p.Exchange(region=REGION)))
    trace = world.run(program)
    for rank in range(2):
        assert [event.status for event in trace.events[rank]] == ["ok", "error", "not_reached"]
        assert "no room for so large a region" in trace.events[rank][1].error
    outcomes = judge(program, trace)
    assert [violation.step for violation in outcomes["RDV-1"].violations] == [1]
    assert not outcomes["CACHE-1"].violations
    assert outcomes["CACHE-1"].inconclusive
    goes_on(world)


@pytest.mark.parametrize(
    ("world", "verdict", "text"),
    [
        ("Blocks", "blocked", "waits in recvfrom on a socket, without a time-out, for ever"),
        ("BlocksOnALock", "blocked", "waits in futex, without a time-out, for ever"),
        ("Sleeps", "waiting", "waits in clock_nanosleep, with a time-out; no end within 1 s"),
        ("Polls", "waiting", "; no end within 1 s"),
        ("WaitsWithATimer", "waiting", "waits in read on a socket, with a time-out; no end within 1 s"),
        ("HasAHelper", "waiting", "while another thread waits in clock_nanosleep, with a time-out"),
        ("Computes", "waiting", "computes; no end within 1 s"),
        ("StopsItself", "waiting", "is stopped by a signal; no end within 1 s"),
        ("Floods", "waiting", "; no end within 1 s"),
    ],
    indirect=["world"],
)
def test_a_stall_is_judged_by_what_the_threads_wait_for(world: ProcessesWorld, verdict: str, text: str) -> None:
    trace = world.run(summing(8))
    assert [moment["verdict"] for moment in trace.moments] == [verdict]
    assert trace.stalled
    assert trace.waited == (verdict == "waiting")
    for rank in range(2):
        assert [event.status for event in trace.events[rank]] == [*["ok"] * STEP, "stalled", "not_reached"]
    assert text in trace.events[1][STEP].error
    if "computes" not in text and "stopped" not in text:
        assert any("host_unruly.py" in line and "misbehave" in line for line in trace.notes[1].stack)
    goes_on(world)


@pytest.mark.parametrize(
    ("world", "kind", "text"),
    [
        ("Dies", "Died", "its process ended: SIGKILL"),
        ("Crashes", "Died", "its process ended: SIGSEGV"),
        ("Exits", "Died", "its process ended: exit code 7"),
        ("Garbles", "Garbled", "what its process says cannot be: b'garbage garbage ' is no message"),
        ("ClosesAll", "Garbled", "what its process says cannot be: it has closed its link to the world"),
        ("Misnumbers", "Garbled", "the result of step 5 is told where that of step 4 should be"),
        ("Damages", "Garbled", "what its process says cannot be: a record is damaged"),
    ],
    indirect=["world"],
)
@pytest.mark.parametrize("ranks", [2, 3])
def test_a_rank_that_dies_or_lies_is_named_and_replaced(
    world: ProcessesWorld, kind: str, text: str, ranks: int
) -> None:
    trace = world.run(summing(8, ranks))
    (broken,) = [event for event in trace.events[1] if event.error_type == kind]
    assert text in broken.error
    assert not [
        event for events in (trace.events[0], *trace.events[2:]) for event in events if event.error_type == kind
    ]
    goes_on(world)


@pytest.mark.parametrize("name", ["Computes", "SleepsForAWhile"])
def test_a_rank_that_computes_or_sleeps_for_a_while_is_waited_for(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLRANKS_TEST_COMPUTES_S", str(4 * STILL_S))
    with ProcessesWorld(f"{UNRULY}:{name}", deadline_s=60.0) as world:
        goes_on(world)
        assert world.run(summing(8)).first_trouble() is None


def test_stalls_and_kills_in_a_row_are_judged_right_and_leave_nothing() -> None:
    said = stalls(4)
    for row in said["rows"]:
        if "times" in row:
            assert (row["right_verdicts"], row["next_program_well"]) == (4, 4)
    assert [said[name] for name in said if "left" in name] == [0, 0, 0, 0]


@of("AsksAHelper")
def test_a_rank_that_waits_for_a_process_of_its_own_is_not_blocked(world: ProcessesWorld) -> None:
    trace = world.run(summing(8))
    assert trace.first_trouble() is None
    assert trace.moments == ()


def test_a_backend_that_cannot_be_prepared_is_refused() -> None:
    with pytest.raises(UsageError, match=r"prepare\(\) raises LookupError: no such device"):
        ProcessesWorld(f"{UNRULY}:Unprepared")


def test_what_is_being_prepared_ends_with_the_supervisor() -> None:
    code = f"from {ProcessesWorld.__module__} import ProcessesWorld; ProcessesWorld('{UNRULY}:NeverPrepared')"
    with subprocess.Popen(
        [sys.executable, "-P", "-c", f"import sys; sys.path.append('.'); {code}"], stdout=subprocess.PIPE
    ) as supervisor:
        assert supervisor.stdout is not None
        nursery_pid = int(supervisor.stdout.readline())
        handle = os.pidfd_open(nursery_pid)
        supervisor.kill()
    assert select.select([handle], [], [], ENDS_S)[0]
    os.close(handle)


@of("Prepared")
def test_a_backend_is_prepared_where_ranks_are_forked_from(world: ProcessesWorld) -> None:
    goes_on(world)


@of("Crashes")
def test_a_crash_tells_the_stack_of_the_rank(world: ProcessesWorld) -> None:
    trace = world.run(summing(8))
    assert any("host_unruly.py" in line and "misbehave" in line for line in trace.notes[1].stack)


@of("Speaks")
def test_what_a_rank_printed_is_kept_whoever_printed_it(world: ProcessesWorld) -> None:
    trace = world.run(summing(8))
    assert set(trace.notes[1].output) == {"about to stop", "and so is the library", "no way out"}
    assert trace.notes[0].output == ()
    assert "rank 1 printed:" in left_behind(trace)


@of("LeavesThings")
def test_what_a_rank_started_and_shared_ends_with_it(world: ProcessesWorld) -> None:
    name = f"allranks-test-{world.workers._nursery.pid}"
    world.run(summing(8))
    goes_on(world)
    assert not Path("/dev/shm", name).exists()
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if b"allranks-left" in _read(path)]
    assert left == []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@of("EndsLater")
def test_a_process_that_ends_between_two_runs_is_a_finding_of_the_next(world: ProcessesWorld) -> None:
    assert world.run(summing(8)).first_trouble() is None
    ended(world.workers.by_rank[1])
    trace = world.run(summing(8))
    assert trace.opening[1].error == "its process ended: exit code 9, between two runs"
    goes_on(world)


@of("Meets")
def test_ranks_meet_among_themselves_and_are_late(world: ProcessesWorld) -> None:
    trace = world.run(summing(8, 3))
    assert trace.events[0][STEP].error_type == "Timeout"
    assert trace.events[0][STEP].error == "rank 0: in vain: still waiting for ranks [1, 2]"


@of(HOST)
def test_the_world_goes_on_when_the_process_it_forks_from_is_killed(world: ProcessesWorld) -> None:
    goes_on(world)
    forked_from = world.workers._nursery
    os.kill(forked_from.pid, signal.SIGKILL)
    forked_from.wait(ENDS_S)
    for worker in list(world.workers.by_rank.values()):
        ended(worker)
    trace = world.run(summing(1))
    assert all(event.error_type == "Died" for event in trace.opening)
    goes_on(world)


def test_children_are_found_where_the_kernel_does_not_list_them(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as child:
        listed = children(os.getpid())
        assert child.pid in listed

        def unlisted(path: str, **how: str) -> object:
            if path.endswith("/children"):
                raise FileNotFoundError(path)
            return open(path, **how)  # type: ignore[call-overload]

        monkeypatch.setattr(watch, "open", unlisted, raising=False)
        assert children(os.getpid()) == listed
        child.kill()


def test_nothing_is_left_when_the_supervisor_is_killed() -> None:
    text = (
        "import sys, json; sys.path[:] = json.loads(sys.argv[1])\n"
        "from tests.conformance.worlds.test_processes import *\n"
        "world = ProcessesWorld(f'{UNRULY}:Sleeps', deadline_s=3600)\n"
        "pids = [worker.pid for worker in world.workers.of(3)] + [world.workers._nursery.pid]\n"
        "print(json.dumps(pids), flush=True)\n"
        "world.run(summing(8, 3))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-P", "-c", text, json.dumps([*sys.path, os.getcwd()])], stdout=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        handles = [os.pidfd_open(pid) for pid in json.loads(running.stdout.readline())]
        running.kill()
        for handle in handles:
            assert select.select([handle], [], [], ENDS_S)[0]
            os.close(handle)


def test_a_backend_of_device_memory_is_refused() -> None:
    with pytest.raises(UsageError, match="the simulated driver executes no kernels"):
        check_backend("refimpl")


def test_a_backend_that_cannot_be_imported_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "once.py").write_text(
        "import os\nfrom tests.conformance.worlds.host_communicator import HostBackend\n"
        f"if os.getpid() != {os.getpid()}:\n    raise RuntimeError('no library here')\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(UsageError, match=r"once:HostBackend.*no library here"):
        ProcessesWorld("once:HostBackend")
    assert len(os.listdir("/proc/self/fd")) == before
