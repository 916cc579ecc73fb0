"""Functions of a client that its streams call, in the client."""

from __future__ import annotations

from collections.abc import Callable

from allranks import sim
from allranks.sim.broker import Broker
from tests.sim.run.conftest import Ran, client, eventually, none_alive, python, waiting_client

FUNCTIONS = """
import threading
start(0)
HostFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
seen = []
"""


def test_they_are_called_in_order_with_their_data(broker: Broker) -> None:
    client(
        broker,
        FUNCTIONS
        + """
device = answer('cuMemAlloc_v2', 8)
host = answer('cuMemHostAlloc', 8, 0)
here = threading.get_ident()
function = HostFunction(lambda data: seen.append((data, ctypes.string_at(host, 8), threading.get_ident() != here)))
change = HostFunction(lambda data: ctypes.memset(host, 3, 8) and None)
ok('cuMemsetD8Async', device, 7, 8, None)
ok('cuMemcpyDtoHAsync_v2', ctypes.c_void_p(host), device, 8, None)
ok('cuLaunchHostFunc', None, function, ctypes.c_void_p(42))
ok('cuLaunchHostFunc', None, change, None)
ok('cuLaunchHostFunc', None, function, ctypes.c_void_p(43))
ok('cuStreamSynchronize', None)
assert seen == [(42, b'\\7' * 8, True), (43, b'\\3' * 8, True)], seen
""",
    )


def test_callbacks_get_the_stream_and_the_status(broker: Broker) -> None:
    client(
        broker,
        FUNCTIONS
        + """
stream = answer('cuStreamCreate', 1)
callback = Callback(lambda where, status, data: seen.append((where, status, data)))
ok('cuStreamAddCallback', stream, callback, ctypes.c_void_p(9), 0)
ok('cuStreamSynchronize', stream)
assert seen == [(stream, 0, 9)], seen
assert call('cuStreamAddCallback', stream, None, None, 0) == 1
assert call('cuStreamAddCallback', stream, callback, None, 1) == 1
assert call('cuLaunchHostFunc', 12345, HostFunction(print), None) == 400
""",
    )


def test_they_may_not_call_the_driver(broker: Broker) -> None:
    client(
        broker,
        FUNCTIONS
        + """
function = HostFunction(lambda data: seen.extend([call('cuCtxSynchronize'), call('cuGraphCreate', None, 0)]))
ok('cuLaunchHostFunc', None, function, None)
ok('cuCtxSynchronize')
assert seen[0] == 800, seen
""",
    )


def test_other_threads_go_on_meanwhile_and_many_are_called(broker: Broker) -> None:
    client(
        broker,
        FUNCTIONS
        + """
go = threading.Event()
waits, counts = HostFunction(lambda data: go.wait() and None), HostFunction(lambda data: seen.append(data or 0))
first, second = answer('cuStreamCreate', 1), answer('cuStreamCreate', 1)
ok('cuLaunchHostFunc', first, waits, None)
assert call('cuStreamQuery', first) == 600
ok('cuStreamSynchronize', second)
for number in range(200):
    ok('cuLaunchHostFunc', (first, second)[number % 2], counts, ctypes.c_void_p(number))
go.set()
ok('cuCtxSynchronize')
assert sorted(seen) == list(range(200))
assert [n for n in seen if n % 2] == list(range(1, 200, 2))
""",
    )


def test_a_process_that_is_killed_in_one_leaves_nothing() -> None:
    with Broker(sim.machine("h100", devices=1)) as broker:
        with waiting_client(
            broker,
            FUNCTIONS
            + """
answer('cuMemAlloc_v2', 4 << 20)
begun = threading.Event()
function = HostFunction(lambda data: (begun.set(), threading.Event().wait()) and None)
ok('cuLaunchHostFunc', None, function, None)
begun.wait()
""",
        ):
            pass
        report = eventually(broker, none_alive)
        assert report["used"]["memory_bytes"] == 0
        client(broker, "start(0)\nok('cuCtxSynchronize')")


def test_a_function_that_never_ends_is_a_hang(sim_run: Callable[..., Ran]) -> None:
    function = "function = HostFunction(lambda data: threading.Event().wait() and None)\n"
    ran = sim_run(
        1, python(FUNCTIONS + function + "ok('cuLaunchHostFunc', None, function, None)\nok('cuCtxSynchronize')")
    )
    assert ran.report["hang"] == "blocked"
    assert "waits in host function for a function of the program that a stream calls" in ran.texts("hang")


def test_a_forked_child_calls_none_and_its_parent_goes_on(broker: Broker) -> None:
    client(
        broker,
        FUNCTIONS
        + """
function = HostFunction(lambda data: seen.append(1))
ok('cuLaunchHostFunc', None, function, None)
ok('cuCtxSynchronize')
if os.fork() == 0: os._exit(call('cuLaunchHostFunc', None, function, None) != 3)
assert os.wait()[1] == 0
ok('cuLaunchHostFunc', None, function, None)
ok('cuCtxSynchronize')
assert seen == [1, 1]
""",
    )
