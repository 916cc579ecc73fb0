"""Real GPUs as far as they can be tested without any: the environment's guard, who is asked, and bad input.

The simulated driver stands for the real one under its name, in child processes whose library path holds it; no test
changes the variables of the guard in a process that loads a driver.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from allranks import sim
from allranks.conformance.backend import load_backend
from allranks.conformance.kept import replay_line
from allranks.conformance.settings import settings_of
from allranks.conformance.worlds import hardware
from allranks.conformance.worlds.hardware import DISABLING, Gpus, check_driver, guarded, kernel_module
from allranks.conformance.worlds.processes.workers import Workers
from allranks.errors import UsageError

ALLOW = {"ALLRANKS_ALLOW_HARDWARE_MULTICAST": "1"}
ROOT = Path(__file__).resolve().parents[3]
DEVICE = "tests.conformance.worlds.device_communicator"
ENDS_S = 120


def seen(environment: dict[str, str]) -> dict[str, str]:
    """Give what a plain child process has of the variables, if it is started with an environment."""
    script = "import os, sys; print('\\n'.join(f'{n}={os.environ[n]}' for n in sys.argv[1:] if n in os.environ))"
    said = subprocess.run(
        [sys.executable, "-c", script, *DISABLING], env=environment, capture_output=True, text=True, check=True
    )
    return dict(line.split("=", 1) for line in said.stdout.splitlines() if line)


@pytest.mark.parametrize("name", DISABLING)
def test_multicast_is_disabled_whatever_the_user_left_out_or_enabled(name: str) -> None:
    opposite = {"0": "1", "1": "0"}[DISABLING[name]]
    for given in ({}, {name: opposite}, {name: DISABLING[name]}, {name: ""}):
        assert seen(guarded({**os.environ, **given})) == DISABLING


@pytest.mark.parametrize("value", ["0", "", "yes", " 1"])
def test_only_1_allows(value: str) -> None:
    assert seen(guarded({"ALLRANKS_ALLOW_HARDWARE_MULTICAST": value})) == DISABLING


def test_what_is_allowed_is_as_the_user_has_it() -> None:
    assert seen(guarded(ALLOW)) == {}
    assert seen(guarded({**ALLOW, "NCCL_NVLS_ENABLE": "2"})) == {"NCCL_NVLS_ENABLE": "2"}


@pytest.mark.parametrize("name", DISABLING)
def test_a_value_that_disables_is_stronger_than_the_permission(name: str) -> None:
    for value in (DISABLING[name], "off" if name == "NCCL_NVLS_ENABLE" else "yes"):
        assert seen(guarded({**ALLOW, name: value})) == DISABLING  # in words that the libraries know


def test_what_else_is_in_the_environment_stays() -> None:
    assert guarded({"HOME": "/nowhere"}) == {"HOME": "/nowhere", **DISABLING}


@pytest.mark.parametrize("driver", ["sim", "cuda"])
def test_where_ranks_are_forked_from_multicast_is_disabled(
    driver: hardware.DriverName, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*DISABLING, *ALLOW):
        monkeypatch.delenv(name, raising=False)
    workers = Workers(f"{DEVICE}:DeviceBackend", driver)
    try:
        words = Path(f"/proc/{workers._nursery.pid}/environ").read_bytes().decode().split("\0")
        found = dict(word.split("=", 1) for word in words if "=" in word)
    finally:
        workers.close()
    assert {name: found[name] for name in DISABLING if name in found} == (DISABLING if driver == "cuda" else {})


def test_the_gpus_that_there_are() -> None:
    hardware.gpus.cache_clear()
    found = hardware.gpus(str(sim.library_path()))
    assert found.names
    assert found.driver_version >= 13000
    assert found.cuda.startswith("13.")
    assert found.described == f"{len(found.names)} x {found.names[0]}"


def test_gpus_are_counted_by_name() -> None:
    assert Gpus(("A", "B", "A"), 13010).described == "2 x A, 1 x B"
    assert Gpus(("A",), 12090).cuda == "12.9"


@pytest.mark.parametrize(
    ("library", "wanted"),
    [
        ("libno-such-driver.so.1", r"driver='cuda': libno-such-driver\.so\.1 cannot be loaded \(.*No such file"),
        ("libc.so.6", r"driver='cuda': asking libc\.so\.6 for GPUs ends with exit code 1, and says Attr.*cuInit"),
    ],
)
def test_a_driver_that_is_none(library: str, wanted: str) -> None:
    with pytest.raises(UsageError, match=wanted):
        hardware.gpus(library)


def test_the_kernel_module_says_its_version(tmp_path: Path) -> None:
    file = tmp_path / "version"
    assert kernel_module(file) == ""
    file.write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.82.07  Release Build\nGCC version: 12\n"
    )
    assert kernel_module(file) == "580.82.07"


@pytest.mark.parametrize(
    ("backend", "driver", "world", "wanted"),
    [
        (f"{DEVICE}:DeviceBackend", "sim", "processes", "driver='sim': backend device works on real GPUs only"),
        ("plain", "cuda", "threads", "driver='cuda': only for world processes, and this is world threads"),
        (f"{DEVICE}:DeviceBackend", "cuda", "mpi", "driver='cuda': only for world processes, and this is world mpi"),
        (
            "tests.conformance.worlds.host_communicator:HostBackend",
            "cuda",
            "processes",
            "driver='cuda': backend host works on host memory",
        ),
        ("plain", "rocm", "processes", "driver='rocm': one of sim, cuda"),
    ],
)
def test_what_does_not_go_together(backend: str, driver: hardware.DriverName, world: str, wanted: str) -> None:
    with pytest.raises(UsageError, match=wanted):
        check_driver(load_backend(backend), driver, world)


@pytest.fixture
def on_the_simulated_one(tmp_path: Path) -> dict[str, str]:
    """Give an environment in which the real driver's name leads to the simulated one, of two devices."""
    (tmp_path / "lib").mkdir()
    shutil.copy(sim.library_path(), tmp_path / "lib" / "libcuda.so.1")  # a file that nothing else has mapped
    own = {name: value for name, value in os.environ.items() if name not in (*DISABLING, *ALLOW)}
    path = os.pathsep.join(filter(None, [str(tmp_path / "lib"), os.environ.get("LD_LIBRARY_PATH")]))
    return {**own, "LD_LIBRARY_PATH": path, "SIMCU_MACHINE": "h200", "SIMCU_DEVICES": "2"}


def child(environment: dict[str, str], script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own, with this one's paths."""
    start = f"import json, sys; sys.path[:] = json.loads(sys.argv.pop(1))\n{script}"
    paths = json.dumps([*sys.path, str(ROOT)])
    return subprocess.run(
        [sys.executable, "-P", "-c", start, paths, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=ENDS_S,
        check=False,
    )


COMMAND = "from allranks.cli import main; sys.exit(main(sys.argv[1:]))"


def test_more_ranks_than_gpus(on_the_simulated_one: dict[str, str]) -> None:
    said = child(on_the_simulated_one, COMMAND, "check", "--driver", "cuda", "--backend", f"{DEVICE}:DeviceBackend")
    assert said.returncode == 2
    assert said.stderr.startswith("allranks: error: driver='cuda': ranks=4: one GPU for each rank, and there are 2 x ")
    assert said.stderr.count("\n") == 1


def test_the_line_that_runs_a_finding_again_names_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allranks.conformance.settings.check_gpus", lambda ranks: Gpus(("A", "A"), 13000))
    settings = settings_of(backend=f"{DEVICE}:DeviceBackend", ranks=2, driver="cuda")
    assert settings.world == "processes"
    line = replay_line(Path("case.json"), settings)
    assert line == f"allranks replay case.json --backend {DEVICE}:DeviceBackend --world processes --driver cuda"


# The same Program twice in world `processes`, each rank on a device of its own.
RUNS = """
from pathlib import Path
from allranks.conformance import program as p
from allranks.conformance.checks import judge
from allranks.conformance.program import Operand, Program, Region
from allranks.conformance.worlds.processes.world import ProcessesWorld

SEND, RECEIVE = Operand(Region()), Operand(Region(buffer=1))
STEPS = [
    *(p.Allocate(size_bytes=100_000, kind=kind) for kind in ("plain", "vmm", "segments")),
    p.AllReduce(send=SEND, receive=RECEIVE, count=1000, dtype="bfloat16"),
    p.AllGather(send=RECEIVE, receive=Operand(Region(buffer=2)), count=1000, dtype="int64"),
    p.Free(buffer=0),
    p.Allocate(size_bytes=100_000, placement="reuse"),
    p.AllReduce(send=SEND, receive=SEND, count=500, dtype="float64", operation="max"),
]
with ProcessesWorld(sys.argv[1], driver="cuda") as world:
    for _ in range(2):
        program = Program(rank_count=2, steps=tuple(STEPS[: int(sys.argv[2])]))
        trace = world.run(program)
        pids = [world.workers.by_rank[rank].pid for rank in sorted(world.workers.by_rank)]
        mapped = [Path(f"/proc/{pid}/maps").read_text().count("libcuda.so.1") for pid in pids]
        broken = {name: found.violations[0].evidence for name, found in judge(program, trace).items()
                  if found.violations}
        looked = sum(found.evaluated for found in judge(program, trace).values())
        errors = [event.error for events in trace.events for event in events if event.error]
        print(json.dumps([trace.machine, looked, broken, errors, pids, mapped]))
    here = "libcuda.so.1" in Path("/proc/self/maps").read_text()
    forked_from = "libcuda.so.1" in Path(f"/proc/{world.workers._nursery.pid}/maps").read_text()
print(json.dumps([here, forked_from]))
"""


def runs(environment: dict[str, str], backend: str, steps: int = 99) -> list[list[object]]:
    """Run the Programs on a backend, as far as so many steps, and give what is printed."""
    said = child(environment, RUNS, f"{DEVICE}:{backend}", str(steps))
    assert said.returncode == 0, said.stderr
    return [json.loads(line) for line in said.stdout.splitlines()]


def test_ranks_work_on_devices_of_their_own(on_the_simulated_one: dict[str, str]) -> None:
    first, second, (here, forked_from) = runs(on_the_simulated_one, "DeviceBackend")
    for machine, looked, broken, errors, _, mapped in (first, second):
        assert machine == "cuda"
        assert isinstance(looked, int)
        assert looked > 5
        assert (broken, errors) == ({}, [])
        assert isinstance(mapped, list)
        assert all(mapped)  # each rank has loaded the driver
    assert first[4] == second[4]  # the same processes
    assert not here  # what a process has initialised is lost to what is forked from it
    assert not forked_from


def test_what_is_written_beside_is_seen(on_the_simulated_one: dict[str, str]) -> None:
    (_, _, broken, _, _, _), *_ = runs(on_the_simulated_one, "WritesBeyond", 4)
    assert isinstance(broken, dict)
    assert list(broken) == ["COLL-3"]
    assert "which no step touches, was written" in broken["COLL-3"]


def test_after_an_error_ranks_are_new_processes(on_the_simulated_one: dict[str, str]) -> None:
    first, second, _ = runs(on_the_simulated_one, "Refuses")
    assert isinstance(first[3], list)
    assert isinstance(second[3], list)
    assert first[3]
    assert not set(first[3]) & set(second[3])  # each says which process it is


def test_ranks_have_multicast_disabled(on_the_simulated_one: dict[str, str]) -> None:
    (_, _, _, errors, _, _), *_ = runs(on_the_simulated_one, "TellsEnvironment")
    assert isinstance(errors, list)
    assert set(errors) == {" ".join(f"{name}={value}" for name, value in DISABLING.items())}
