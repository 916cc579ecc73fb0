"""A broker and its clients, one by one: how calls travel, what becomes of a client that goes, and who is let in."""

from __future__ import annotations

import ctypes
import importlib.resources
import os
import re
import socket
import subprocess
from pathlib import Path

import pytest

from allranks import sim
from allranks.errors import UsageError
from allranks.sim.broker import NODE_VARIABLE, Broker, client_folder
from tests.sim.run.conftest import (
    LIMIT_S,
    ROOT,
    client,
    client_environment,
    eventually,
    none_alive,
    python,
    waiting_client,
)

ENTRY = ROOT / "csrc" / "simcuda" / "entry"
DEFINITION = re.compile(r"^CUresult CUDAAPI (cu[A-Z]\w*)\(", re.MULTILINE)
RENAMING = re.compile(r"^\s*#define\s+(cu[A-Z]\w*)\s+(?:__CUDA_API_PT\w+\()?(cu[A-Z]\w*_v\d+)\)?\s*$", re.MULTILINE)


def test_every_entry_point_is_carried_over() -> None:
    """Those that the client library answers itself are in two files; of the others none is left out."""
    local = {"errors.cpp", "proc_address.cpp"}
    texts = [path.read_text(encoding="utf-8") for path in ENTRY.glob("*.cpp") if path.name not in local]
    header = importlib.resources.files("nvidia.cu13").joinpath("include").joinpath("cuda.h").read_text(encoding="utf-8")
    newest = dict(RENAMING.findall(header))
    names = sorted(newest.get(name, name) for text in texts for name in DEFINITION.findall(text))
    assert len(names) > 80
    with Broker(sim.machine("tiny")) as broker:
        # Null and zero everywhere: whatever each of them answers, it is the broker that does.
        client(broker, f"for name in {names}: call(name, *[0] * 11)")
        report = eventually(broker, none_alive)
    assert report["clients"][0]["unsupported"] == []
    assert report["clients"][0]["calls"] == len(names)


def test_copies_both_ways_and_on_streams(broker: Broker) -> None:
    client(
        broker,
        """
start(0)
size = (3 << 20) + 5
data = os.urandom(size)
a, b = answer('cuMemAlloc_v2', size), answer('cuMemAlloc_v2', size)
ok('cuMemcpyHtoD_v2', a, data, size)
stream = answer('cuStreamCreate', 1)
ok('cuMemcpyDtoDAsync_v2', b, a, size, stream)
back = ctypes.create_string_buffer(size)
ok('cuMemcpyDtoHAsync_v2', back, b, size, stream)
ok('cuStreamSynchronize', stream)
assert back.raw == data
ok('cuMemcpyHtoDAsync_v2', a, data[::-1], size, stream)
ok('cuStreamSynchronize', stream)
assert read(a, size) == data[::-1]
other = ctypes.create_string_buffer(size)
ok('cuMemcpy', ctypes.addressof(other), ctypes.addressof(back), size)
assert other.raw == data
""",
    )


def test_work_goes_on_while_its_process_does_something_else() -> None:
    with Broker(sim.machine("h100", devices=1)) as broker:
        client(
            broker,
            """
start(0)
a = answer('cuMemAlloc_v2', 100)
ok('cuMemsetD8Async', a, 7, 100, None)
back = ctypes.create_string_buffer(100)
ok('cuMemcpyDtoHAsync_v2', back, a, 100, None)
while back.raw[99] != 7: os.sched_yield()
""",
        )


def test_a_host_pointer_that_leads_nowhere(broker: Broker) -> None:
    client(
        broker,
        """
start(0)
a = answer('cuMemAlloc_v2', 1 << 20)
for pointer in (8, 1 << 46, 1 << 62):
    assert call('cuMemcpyHtoD_v2', a, pointer, 1 << 20) == 1
    assert call('cuMemcpyHtoDAsync_v2', a, pointer, 1 << 20, None) == 1
assert read(a, 4) == bytes(4)
""",
    )
    eventually(broker, none_alive)


def test_arguments_of_every_shape_come_back(broker: Broker) -> None:
    client(
        broker,
        """
start(1)
name = ctypes.create_string_buffer(b'x' * 63)
ok('cuDeviceGetName', name, 8, 0)
assert name.raw == b'Simulat\\0' + b'x' * 55 + b'\\0', name.raw
bus = ctypes.create_string_buffer(13)
ok('cuDeviceGetPCIBusId', bus, 13, 1)
assert answer('cuDeviceGetByPCIBusId', bus) == 1
a = answer('cuMemAlloc_v2', 100)
attributes = (ctypes.c_int * 3)(9, 12, 11)
values = [ctypes.c_uint64(2**64 - 1) for _ in attributes]
pointers = (ctypes.c_void_p * 3)(*map(ctypes.addressof, values))
ok('cuPointerGetAttributes', 3, attributes, pointers, a)
assert [value.value for value in values] == [2**64 - 2**32 + 1, 100, a], values
two = answer('cuMemAddressReserve', 2 * GRANULE, 0, 0, 0)
ok('cuMemMap', two, GRANULE, 0, create(0), 0)
rights = b''.join(struct.pack('iii', 1, device, 3) for device in (0, 1))
ok('cuMemSetAccess', two, GRANULE, rights, 2)
assert answer('cuMemGetAccess', struct.pack('ii', 1, 0), two) == 3
assert call('cuMemSetAccess', two, GRANULE, rights, 1 << 60) == 1
ok('cuMemsetD8_v2', two, 1, 10)
""",
    )


def test_threads_have_their_own_current_context(broker: Broker) -> None:
    client(
        broker,
        """
import threading
start(1)
seen = []
def other():
    device = ctypes.c_int(-1)
    seen.append(call('cuCtxGetDevice', ctypes.byref(device)))
    ok('cuCtxSetCurrent', answer('cuDevicePrimaryCtxRetain', 0))
    ok('cuCtxGetDevice', ctypes.byref(device))
    seen.append(device.value)
for _ in range(3):
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
assert seen == [201, 0] * 3, seen
device = ctypes.c_int(-1)
ok('cuCtxGetDevice', ctypes.byref(device))
assert device.value == 1
""",
    )


def test_a_forked_child_is_not_initialised_and_does_not_keep_its_parent_alive() -> None:
    with (
        Broker(sim.machine("h100", devices=1)) as broker,
        waiting_client(
            broker,
            """
start(0)
answer('cuMemAlloc_v2', 4 << 20)
child = os.fork()
if child == 0:
    import signal
    assert [call('cuInit', 0), call('cuCtxSynchronize'), call('cuGraphCreate', None, 0)] == [3] * 3
    signal.pause()
""",
        ) as running,
    ):
        child = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text(encoding="utf-8").split()[0]
        assert broker.report()["used"]["memory_bytes"] == 4 << 20
        running.kill()
        report = eventually(broker, none_alive)
        assert Path(f"/proc/{child}").exists()
        os.kill(int(child), 9)
    assert report["used"]["memory_bytes"] == 0


def test_a_child_forked_before_the_first_call_has_a_driver_of_its_own() -> None:
    with Broker(sim.machine("h100", devices=1)) as broker:
        client(broker, "if os.fork() == 0: start(0)\nelse: start(0); assert os.wait()[1] == 0")
        assert len(eventually(broker, none_alive)["clients"]) == 2


def test_a_program_that_another_one_becomes_is_a_new_process() -> None:
    again = python("start(0)\nok('cuMemFree_v2', answer('cuMemAlloc_v2', 100))")
    with Broker(sim.machine("h100", devices=1)) as broker:
        client(broker, f"start(0)\nanswer('cuMemAlloc_v2', 100)\nos.execv({again[0]!r}, {again!r})")
        first, second = eventually(broker, none_alive)["clients"]
    assert first["pid"] == second["pid"]
    assert [entry["kind"] for entry in first["ledger"]] == ["plain", "context"]
    assert [entry["kind"] for entry in second["ledger"]] == ["context"]


def test_a_descriptor_counts_until_its_last_copy_is_closed() -> None:
    """Also when the exporter is gone: this process has the copy that is left."""
    with Broker(sim.machine("h100", devices=1)) as broker:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ran = subprocess.Popen(
                python(
                    "start(0)\nlink = socket.socket(fileno=int(os.environ['LINK']))\n"
                    "socket.send_fds(link, [b'x'], [export(create(0))])"
                ),
                env=client_environment(broker) | {"LINK": str(theirs.fileno())},
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
            )
            _, (descriptor,), _, _ = socket.recv_fds(ours, 10, 1)
            assert ran.wait(LIMIT_S) == 0
        assert eventually(broker, none_alive)["used"]["memory_bytes"] == 2 << 20
        copy = os.dup(descriptor)
        os.close(descriptor)
        assert broker.report()["used"]["memory_bytes"] == 2 << 20
        os.close(copy)
        assert broker.report()["used"]["memory_bytes"] == 0


def test_a_process_that_ends_in_a_wait_leaves_the_others_alone() -> None:
    with Broker(sim.machine("h100", devices=2)) as broker:
        begun = "start(0)\nteam = create_team(2)\nok('cuMulticastAddDevice', team, 0)\nmemory = create(0)\n"
        with subprocess.Popen(
            python(begun + "call('cuMulticastBindMem', team, 0, memory, 0, GRANULE, 0)"),
            env=client_environment(broker),
            cwd=ROOT,
        ) as running:
            report = eventually(broker, lambda now: any(client["waits"] for client in now["clients"]))
            (wait,) = report["clients"][0]["waits"]
            assert (wait["call"], wait["object"]) == ("cuMulticastBindMem", "multicast object 0")
            assert broker.at_rest
            running.kill()
        report = eventually(broker, none_alive)
        assert report["used"] == {"memory_bytes": 0, "multicast_bytes": 0}
        client(broker, "start(0)\nok('cuMemFree_v2', answer('cuMemAlloc_v2', 100))")


def test_who_does_not_know_the_secret_is_not_let_in() -> None:
    with Broker(sim.machine("h100", devices=1)) as broker:
        name = broker.environment(0)[NODE_VARIABLE].partition(":")[0]
        for wrong in (f"{name}:{'0' * 32}", f"{name}:short", "no-such-node:" + "0" * 32):
            ran = subprocess.run(
                python("print(call('cuInit', 0))"),
                env=client_environment(broker) | {NODE_VARIABLE: wrong},
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
            assert ran.stdout in ("802\n", "100\n"), ran.stderr
            assert ran.stderr.startswith("simcuda: ")
        assert broker.report()["clients"] == []


@pytest.mark.parametrize("said", [b"", b"x", b"\0" * 70, os.urandom(4096)])
def test_nonsense_from_a_stranger_is_survived(said: bytes) -> None:
    with Broker(sim.machine("h100", devices=1)) as broker:
        name = broker.environment(0)[NODE_VARIABLE].partition(":")[0]
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
            stranger.connect(f"\0{name}")
            stranger.send(said)
            stranger.shutdown(socket.SHUT_WR)
            assert stranger.recv(10) == b""
        client(broker, "start(0)")


def test_a_client_whose_broker_is_gone_says_so() -> None:
    broker = Broker(sim.machine("h100", devices=1))
    text = (
        "start(0)\nimport sys\nprint('done', flush=True)\nsys.stdin.readline()\n"
        "sys.exit(call('cuCtxSynchronize') != 802)"
    )
    with subprocess.Popen(
        python(text),
        env=client_environment(broker),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "done\n"
        broker.stop()
        _, err = running.communicate("go\n", timeout=LIMIT_S)
    broker.close()
    assert running.returncode == 0
    assert err == "simcuda: the simulated node is gone\n"


def test_libraries_for_clients_are_named_as_the_real_ones_and_marked_as_simulated() -> None:
    names = sorted(path.name for path in client_folder().iterdir())
    assert names == ["libcuda.so.1", "libcudart.so.13", "libnvidia-ml.so.1"]
    library = ctypes.CDLL(str(client_folder() / "libcuda.so.1"))  # calls nothing, so it reaches for no node
    assert hasattr(library, "simcuVersion")


@pytest.mark.parametrize(("field", "value"), [("device_count", 0), ("device_count", -1), ("lanes", 1 << 40)])
def test_a_machine_that_cannot_be(field: str, value: int) -> None:
    with pytest.raises(UsageError, match=f"{field}="):
        Broker(sim.machine("h100", **{field: value}))
