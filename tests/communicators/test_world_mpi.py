"""World `mpi`: ranks that die are replaced, whoever ends leaves nothing, and each rank of a job has the result."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from allranks.conformance import program as p
from allranks.conformance.checks import judge
from allranks.conformance.launchers import launch
from allranks.conformance.program import Operand, Program, Region
from allranks.conformance.running import make_world
from allranks.conformance.settings import settings_of
from allranks.conformance.worlds.crew import LaunchedCrew
from allranks.conformance.worlds.launched import LaunchedWorld
from allranks.conformance.worlds.sentinel import marked
from allranks.errors import UsageError

pytestmark = pytest.mark.usefixtures("mpi")

REGION = Operand(Region())
LINE_S = 120.0
REDUCING = Program(
    rank_count=2,
    steps=(
        p.Allocate(size_bytes=4096),
        p.Allocate(size_bytes=4096),
        p.AllReduce(send=REGION, receive=Operand(Region(buffer=1)), count=64),
    ),
)
ALLRANKS = [sys.executable, "-P", "-c", "import sys; from allranks.cli import main; sys.exit(main())"]


def world(backend: str = "mpi", *, ranks: int = 2, nodes: int | None = None) -> LaunchedWorld:
    settings = settings_of(backend=backend, ranks=ranks, deadline_s=1.0, nodes=nodes)
    made = make_world(settings)
    assert isinstance(made, LaunchedWorld)
    return made


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def test_a_program_with_fewer_ranks_than_there_are_runs() -> None:
    with world(ranks=3) as made:
        for count in (1, 3, 2):
            program = Program(rank_count=count, steps=REDUCING.steps)
            trace = made.run(program)
            assert trace.first_trouble() is None
            assert judge(program, trace)["COLL-1"].evaluated == 1
        with pytest.raises(UsageError, match="ranks=4: 3 were started"):
            made.run(Program(rank_count=4, steps=()))


def test_what_it_runs_on_is_known() -> None:
    with world() as made:
        assert {"library", "MPI", "mpi4py"} <= set(made.facts)


@pytest.mark.parametrize(("fault", "said"), [("die", "its process ended"), ("stop", "its process is stopped")])
def test_a_rank_that_is_gone_is_named_and_replaced(fault: str, said: str) -> None:
    with world(f"mpi+{fault}") as made:
        before = set(made.pids)
        trace = made.run(REDUCING)
        assert not before & set(made.pids)
        assert said in trace.events[1][2].error
        # A small operand may have left already; and an earlier message may not, so that rank 0 is not even open.
        at_0 = [event.status for event in (trace.opening[0], *trace.events[0], trace.closing[0])]
        assert "stalled" in at_0 or set(at_0) <= {"ok", "skipped"}, at_0
        assert made.run(Program(rank_count=1, steps=REDUCING.steps)).first_trouble() is None


def test_nodes_can_be_simulated() -> None:
    with world(ranks=4, nodes=2) as made:
        program = Program(rank_count=4, steps=(*REDUCING.steps, p.Connect(region=REGION), p.Put()))
        trace = made.run(program)
        if made.facts["library"].startswith("Open MPI v4"):  # has no windows over TCP for ranks with threads
            assert all("MPI_ERR_WIN" in events[3].error for events in trace.events)
            return
        judged = judge(program, trace)
        assert (judged["COLL-1"].evaluated, judged["CACHE-1"].evaluated) == (1, 1)
        assert not [name for name, outcome in judged.items() if outcome.violations]


STARTS = """
import sys, time
from allranks.conformance.launchers import launch
from allranks.conformance.worlds.crew import LaunchedCrew
crew = LaunchedCrew(launch("mpiexec", 2), 2, {"backend": "mpi", "wire": "mpi", "deadline_s": 5.0})
print(sys.argv[1], flush=True)
time.sleep(600)
"""


def test_nothing_is_left_when_whoever_started_it_is_killed() -> None:
    mark = f"allranks-test-{os.getpid()}"
    starter = subprocess.Popen(
        [sys.executable, "-P", "-c", STARTS, mark],
        stdout=subprocess.PIPE,
        env={**environment(), "ALLRANKS_TEST": mark},
    )
    assert starter.stdout is not None
    assert starter.stdout.readline().decode().strip() == mark
    started = [pid for pid in marked(f"ALLRANKS_TEST={mark}".encode()) if pid != starter.pid]
    assert len(started) >= 4  # the sentinel, the launcher, and two ranks
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    starter.stdout.close()
    until = time.monotonic() + 30.0
    while any(Path(f"/proc/{pid}").exists() for pid in started):
        assert time.monotonic() < until, started
        time.sleep(0.02)


def test_a_launcher_of_another_kind_starts_jobs_of_one_rank() -> None:
    alone = launch("mpiexec", 1)
    with pytest.raises(UsageError, match=r"started (1 ranks|2 jobs of one rank), not one job of 2"):
        LaunchedCrew(alone, 2, {"backend": "mpi", "wire": "mpi", "deadline_s": 1.0})


def in_every_rank(*command: str) -> subprocess.CompletedProcess[str]:
    started = launch("mpiexec", 2)
    return subprocess.run(
        [*started.command, *command],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=LINE_S,
        env={**environment(), **started.environment},
    )


# COLL-2, for Open MPI breaks COLL-1 by itself.
CHECK = ("check", "COLL-2", "RDV-1", "--launcher", "none", "--ranks", "2", "--programs", "3", "--deadline", "1")


def test_a_job_of_ones_own_checks_from_within() -> None:
    ran = in_every_rank(*ALLRANKS, *CHECK, "--backend", "mpi")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    said = re.sub(r"\x1b\[[0-9;]*m", "", ran.stdout)  # Open MPI gives ranks a terminal
    assert said.count("0 requirements broken") == 1  # one rank reports


def test_a_job_of_ones_own_ends_when_a_rank_is_stuck() -> None:
    ran = in_every_rank(*ALLRANKS, *CHECK, "--backend", "mpi+drop-call")
    assert ran.returncode != 0
    assert "RDV-1 is broken in step" in ran.stdout
    assert "COLL: given up after" in ran.stdout


@pytest.mark.parametrize(("backend", "failed"), [("mpi", 0), ("mpi+corrupt-byte", 3), ("mpi+drop-call", 3)])
def test_pytest_in_every_rank_reports_in_every_rank(backend: str, failed: int) -> None:
    options = ["--allranks-launcher=none", "--allranks-ranks=2", "--allranks-programs=4", "--allranks-deadline=1"]
    which = [f"--allranks-backend={backend}", "--allranks-requirements=COLL-2,RDV-1"]
    suite = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--pyargs", "allranks.conformance"]
    ran = in_every_rank(sys.executable, "-P", *suite, *which, *options)
    assert (ran.returncode == 0) == (failed == 0), ran.stdout + ran.stderr
    assert ran.stdout.count(f"{failed} failed" if failed else "9 passed") == 2, ran.stdout
