"""`allranks sim run`: what it starts, what it says at the end, and that nothing is left of it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from allranks.processes.watch import descendants
from tests.sim.run.conftest import ALLRANKS, ROOT, Ran, environment, program, python

SimRun = Callable[..., Ran]
START = "start(RANK)\n"


def test_a_program_that_gives_everything_back(sim_run: SimRun) -> None:
    ran = sim_run(2, python(START + "ok('cuMemFree_v2', answer('cuMemAlloc_v2', 100))\nprint('done', RANK, SIZE)"))
    assert ran.code == 0, ran.err
    assert sorted(ran.out.splitlines()) == ["[0] done 0 2", "[1] done 1 2"]
    assert ran.report["findings"] == []
    assert ran.report["used_afterwards"] == {"memory_bytes": 0, "multicast_bytes": 0}


@pytest.mark.parametrize("way", ["socket", "pidfd"])
def test_two_processes_share_memory_by_a_descriptor(sim_run: SimRun, way: str) -> None:
    ran = sim_run(2, program("share", way))
    assert ran.code == 0, ran.err
    assert sorted(ran.out.splitlines()) == ["[0] shared", "[1] shared"]


def test_binding_waits_for_the_devices_of_other_processes(sim_run: SimRun) -> None:
    ran = sim_run(4, program("team"))
    assert ran.code == 0, ran.err
    assert len(ran.out.splitlines()) == 4
    assert ran.report["used_afterwards"]["multicast_bytes"] == 0


def test_who_waits_in_what_for_whom(sim_run: SimRun) -> None:
    ran = sim_run(4, program("team", "missing"))
    assert ran.code == 1
    assert ran.report["hang"] == "blocked"
    waits = [finding for finding in ran.report["findings"] if finding["kind"] == "hang" and finding["rank"] is not None]
    assert [wait["rank"] for wait in waits] == [0, 1, 2, 3]
    assert {wait["text"] for wait in waits} == {"waits in cuMulticastBindAddr for multicast object 0, for rank 3"}
    assert "waits in cuMulticastBindAddr" in ran.err


def test_whoever_waits_for_one_that_has_ended(sim_run: SimRun) -> None:
    ran = sim_run(3, program("team", "gone"))
    assert ran.report["hang"] == "blocked"
    assert set(ran.texts("hang")[1:]) == {"waits in cuMulticastBindAddr for multicast object 0; rank 2 had ended"}
    assert [kind for kind in ran.kinds(2) if kind != "alive"] == []


def test_a_wait_outside_of_the_driver_is_named_too(sim_run: SimRun) -> None:
    ran = sim_run(2, python(START + "import signal\nif RANK == 1: signal.pause()"))
    assert ran.code == 1
    assert ran.report["hang"] == "blocked"
    assert ran.kinds(0) == []
    assert ran.texts("hang")[1:] == ["waits outside of the driver, in pause"]


def test_a_program_that_polls_is_ended_at_its_time_limit(sim_run: SimRun) -> None:
    ran = sim_run(1, python(START + "while True: call('cuCtxSynchronize')"), "--timeout", "3")
    assert ran.code == 1
    assert ran.report["hang"] == "timeout"


def test_handles_that_are_alive_are_named_with_the_call_that_made_them(sim_run: SimRun) -> None:
    ran = sim_run(2, python(START + "if RANK == 1: mapped(create(1), GRANULE, 1)"))
    assert ran.code == 1
    assert ran.kinds(0) == []
    assert ran.texts("alive") == [
        "1 allocation made by cuMemCreate, 2097152 bytes",
        "1 reservation made by cuMemAddressReserve, 2097152 bytes",
        "1 mapping made by cuMemMap, 2097152 bytes",
    ]


def test_a_failure_that_is_swallowed(sim_run: SimRun) -> None:
    ran = sim_run(2, python(START + "if RANK == 0: call('cuMemFree_v2', 12345)"))
    assert ran.code == 1
    assert ran.texts("swallowed") == ["cuMemFree answered CUDA_ERROR_INVALID_VALUE, and the exit code is 0"]
    assert ran.kinds(1) == []


def test_a_query_that_fails_is_no_finding(sim_run: SimRun) -> None:
    query = "value = ctypes.c_uint64()\nassert call('cuPointerGetAttribute', ctypes.byref(value), 9, 4096) == 1"
    ran = sim_run(1, python(START + query))
    assert ran.code == 0, ran.err
    assert "(cuPointerGetAttribute answered CUDA_ERROR_INVALID_VALUE)" in ran.err


def test_what_hardware_tolerates_is_a_finding_of_its_process(sim_run: SimRun) -> None:
    unmap = "if RANK == 1:\n a = answer('cuMemAddressReserve', GRANULE, 0, 0, 0)\n unmapped(a, GRANULE)"
    ran = sim_run(2, python(START + unmap))
    assert ran.code == 1
    assert ran.kinds(0) == []
    assert ran.kinds(1) == ["unmap_of_nothing"]


def test_calls_that_are_not_simulated_are_named(sim_run: SimRun) -> None:
    ran = sim_run(1, python(START + "assert call('cuGraphCreate', None, 0) == 801"))
    assert ran.code == 1
    assert ran.texts("unsupported") == ["cuGraphCreate"]


@pytest.mark.parametrize("image", ["b'\\x7fELF' + bytes(60)", "b'.version 8.0'", "b'\\x50\\xed\\x55\\xba' + bytes(60)"])
def test_machine_code_is_accepted_and_its_launches_are_counted(sim_run: SimRun, image: str) -> None:
    launch = (
        f"module = answer('cuModuleLoadData', {image})\n"
        "function = answer('cuModuleGetFunction', module, b'some_kernel')\n"
        "for _ in range(3): ok('cuLaunchKernel', function, 2, 2, 2, 8, 8, 1, 0, None, None, None)\n"
        "ok('cuCtxSynchronize')\nok('cuModuleUnload', module)"
    )
    ran = sim_run(1, python(START + launch))
    assert ran.code == 0, ran.err
    assert ran.report["processes"][0]["clients"][0]["kernels"] == {"some_kernel": 3}
    assert "kernel some_kernel: launched 3 times, recorded and not executed" in ran.err


def test_exit_codes_and_signals_are_findings(sim_run: SimRun) -> None:
    ran = sim_run(3, python("import sys\nif RANK == 1: sys.exit(7)\nif RANK == 2: os.kill(os.getpid(), 10)"))
    assert ran.code == 1
    assert [ran.kinds(rank) for rank in range(3)] == [[], ["exit"], ["killed"]]
    assert ran.texts("killed") == ["killed by SIGUSR1"]


def test_a_program_started_by_another_belongs_to_its_rank(sim_run: SimRun) -> None:
    inner = python(START + "print('inner')")
    ran = sim_run(1, ["/bin/sh", "-c", '"$@"; exit 0', "sh", *inner])
    assert ran.code == 0, ran.err
    assert [client["rank"] for client in ran.report["processes"][0]["clients"]] == [0]


def test_what_is_left_behind_is_killed_and_said(sim_run: SimRun) -> None:
    ran = sim_run(1, ["/bin/sh", "-c", "sleep 1000 > /dev/null 2>&1 &"])
    assert ran.code == 1
    assert ran.kinds(None) == ["left_behind"]


def test_variables_of_three_launchers(sim_run: SimRun) -> None:
    names = [
        "RANK",
        "LOCAL_RANK",
        "OMPI_COMM_WORLD_RANK",
        "SLURM_PROCID",
        "WORLD_SIZE",
        "OMPI_COMM_WORLD_SIZE",
        "SLURM_NTASKS",
    ]
    ran = sim_run(2, python(f"print([os.environ[name] for name in {names}], os.environ['MASTER_ADDR'])"))
    assert sorted(ran.out.splitlines()) == [f"[{r}] {[str(r)] * 4 + ['2'] * 3} 127.0.0.1" for r in range(2)]


def test_a_machine_of_a_file(sim_run: SimRun, tmp_path: Path) -> None:
    file = tmp_path / "machine.toml"
    file.write_text('base = "h200"\nmulticast_supported = false\n', encoding="utf-8")
    count = "value = ctypes.c_int()\nok('cuDeviceGetCount', ctypes.byref(value))\nprint(value.value)\n"
    refused = "assert call('cuMulticastAddDevice', 0, 0) == 801"
    ran = sim_run(1, python(START + count + refused), "--machine", str(file), "--devices", "3")
    assert ran.out == "[0] 3\n", ran.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "there is one subcommand"),
        (["run", "-n", "2", "true"], "the command comes after --"),
        (["run", "--"], "no command after --"),
        (["run", "-n", "0", "--", "true"], "'0': a whole number from 1 on"),
        (["run", "--", "no-such-program"], "command='no-such-program': no such program"),
        (["run", "--machine", "h900", "--", "true"], "machine='h900': no such machine"),
        (["run", "--machine", "none.toml", "--", "true"], "machine='none.toml': cannot be read"),
        (["run", "--devices", "129", "--", "true"], "device_count=129: from 1 to 128"),
        (["run", "-n", "2", "--fault", "2:cuInit:0=kill", "--", "true"], "fault=2:cuInit:0=kill: a rank below 2"),
        (["run", "--fault", "0:cuInit=kill", "--", "true"], "fault=0:cuInit=kill: RANK:CALL:K=ACTION"),
        (["run", "--fault", "0:cuInitt:0=kill", "--", "true"], "fault=0:cuInitt:0=kill: no driver call of that name"),
        (["run", "--fault", "x:cuInit:0=kill", "--", "true"], "fault=x:cuInit:0=kill: RANK is a number from 0, or *"),
        (["run", "--fault", "0:cuInit:x=kill", "--", "true"], "fault=0:cuInit:x=kill: K is a number from 0"),
        (["run", "--fault", "0:cuInit:0=die", "--", "true"], "fault=0:cuInit:0=die: ACTION is an error of cuda.h"),
        (["run", "--fault", "0:cuInit:0=delay:x", "--", "true"], "delay takes milliseconds"),
    ],
)
def test_wrong_usage_is_one_line(arguments: list[str], says: str) -> None:
    ran = subprocess.run(
        [*ALLRANKS, "sim", *arguments], env=environment(), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 2, ran.stderr
    assert ran.stderr.startswith("allranks: error: ")
    assert says in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


WAITING = python(
    START + "import signal, sys\nprint('here', flush=True)\nos.fork()\nwhile True: signal.sigtimedwait([], 9)"
)


@contextlib.contextmanager
def started(size: int) -> Iterator[subprocess.Popen[str]]:
    """Start a job whose ranks have each called the driver and forked, and wait with a time-out; it ends with the test.

    What starts tests in the background may have it ignore interrupts, and so would all that it starts.
    """
    job = subprocess.Popen(
        [*ALLRANKS, "sim", "run", "-n", str(size), "--", *WAITING],
        env=environment(),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    with job:
        try:
            assert job.stdout is not None
            for _ in range(size):
                job.stdout.readline()
            yield job
        finally:
            job.kill()


def runs(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def all_gone(pids: list[int]) -> bool:
    """Look until none of these processes runs any more."""
    until = time.monotonic() + 30
    while any(map(runs, pids)) and time.monotonic() < until:
        os.sched_yield()
    return not any(map(runs, pids))


@pytest.mark.parametrize("victim", ["command", "keeper", "rank"])
def test_nothing_outlives_the_command_whatever_is_killed(victim: str) -> None:
    with started(2) as job:
        family = descendants(job.pid)
        keeper, first_rank, *_ = family
        os.kill({"command": job.pid, "keeper": keeper, "rank": first_rank}[victim], signal.SIGKILL)
        if victim == "rank":
            job.send_signal(signal.SIGINT)
        job.communicate(timeout=60)
        assert all_gone([job.pid, *family])
    assert job.returncode == {"command": -9, "keeper": 4, "rank": 130}[victim]


def test_an_interrupt_ends_all_and_says_what_they_were_at() -> None:
    with started(2) as job:
        family = descendants(job.pid)
        job.send_signal(signal.SIGINT)
        _, err = job.communicate(timeout=60)
        assert all_gone(family)
    assert job.returncode == 130
    assert "waits outside of the driver, in rt_sigtimedwait, with a time-out" in err


def test_cuda_bindings_unmodified(sim_run: SimRun) -> None:
    ran = sim_run(2, [sys.executable, "-m", "tests.sim.run.programs.bindings"])
    assert ran.code == 0, ran.err
    assert len(ran.out.splitlines()) == 2
    assert ran.report["findings"] == []


CREATE = START + (
    "handle = ctypes.c_uint64()\n"
    "codes = [call('cuMemCreate', ctypes.byref(handle), 0, None, 0) for _ in range(3)]\n"
    "print(codes)\n"
)


def test_a_call_fails_with_the_code_of_a_fault_on_its_rank_alone(sim_run: SimRun) -> None:
    ran = sim_run(
        2, python(CREATE), "--fault", "1:cuMemCreate:1=CUDA_ERROR_OUT_OF_MEMORY", "--fault", "1:cuMemCreate:2=3"
    )
    assert sorted(ran.out.splitlines()) == ["[0] [1, 1, 1]", "[1] [1, 2, 3]"], ran.err
    assert [fault["met"] for fault in ran.report["faults"]] == [True, True]


def test_faults_are_read_from_the_environment(sim_run: SimRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMCU_FAULTS", "*:cuMemCreate:0=CUDA_ERROR_INVALID_CONTEXT;0:cuMemCreate:2=CUDA_ERROR_UNKNOWN;")
    ran = sim_run(2, python(CREATE))
    assert sorted(ran.out.splitlines()) == ["[0] [201, 1, 999]", "[1] [201, 1, 1]"], ran.err


def test_a_fault_that_does_not_come_about_is_told(sim_run: SimRun) -> None:
    ran = sim_run(1, python(START), "--fault", "0:cuMemCreate:5=kill")
    assert ran.code == 1
    assert ran.texts("fault") == ["0:cuMemCreate:5=kill did not come about: no such call"]


@pytest.mark.parametrize("action", ["kill", "kill-after"])
def test_a_process_is_killed_in_a_call(sim_run: SimRun, action: str) -> None:
    ran = sim_run(2, python(CREATE), "--fault", f"0:cuMemCreate:0={action}")
    assert ran.kinds(0) == ["killed"], ran.err
    assert ran.out == "[1] [1, 1, 1]\n"


def test_a_delayed_call_lets_others_go_on(sim_run: SimRun) -> None:
    """Rank 0 would be the first by far; rank 1 has written before it comes to its call."""
    code = START + (
        "import os, sys\nhandle = ctypes.c_uint64()\n"
        "call('cuMemCreate', ctypes.byref(handle), 0, None, 0)\nprint('done', flush=True)\n"
    )
    ran = sim_run(2, python(code), "--fault", "0:cuMemCreate:0=delay:1500")
    assert ran.out.splitlines() == ["[1] done", "[0] done"], ran.err
