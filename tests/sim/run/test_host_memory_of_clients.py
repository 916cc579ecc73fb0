"""Page-locked memory of clients, in either way in which the broker reaches it."""

from __future__ import annotations

from collections.abc import Callable

from allranks import sim
from allranks.sim.broker import Broker
from tests.sim.run.conftest import Ran, client, eventually, none_alive, python

HOST = """
start(0)
host = answer('cuMemHostAlloc', 4096, 2)
device = answer('cuMemAlloc_v2', 4096)
"""


def test_allocated_memory_is_the_clients_own(broker: Broker) -> None:
    client(
        broker,
        HOST
        + """
assert ctypes.string_at(host, 4096) == bytes(4096)
ctypes.memset(host, 5, 4096)
ok('cuMemcpyHtoD_v2', device, host, 4096)
assert read(device, 4096) == b'\\5' * 4096
ok('cuMemsetD32_v2', host, 0x04030201, 2)
assert ctypes.string_at(host, 9) == b'\\1\\2\\3\\4\\1\\2\\3\\4\\5'
ok('cuMemsetD8_v2', device, 9, 16)
ok('cuMemcpy', host, device, 16)
assert ctypes.string_at(host, 17) == b'\\t' * 16 + b'\\5'
ok('cuMemcpyDtoD_v2', device, host, 17)
assert read(device, 17) == b'\\t' * 16 + b'\\5'
assert answer('cuMemHostGetDevicePointer_v2', host, 0) == host
flags = ctypes.c_uint()
ok('cuMemHostGetFlags', ctypes.byref(flags), host)
assert flags.value == 2
ok('cuMemFreeHost', host)
assert call('cuMemFreeHost', host) == 1
assert f'{host:x}-' not in open('/proc/self/maps').read()
other = answer('cuMemAllocHost_v2', 100)
ctypes.memset(other, 1, 100)
""",
    )
    report = eventually(broker, none_alive)
    assert [entry["kind"] for entry in report["clients"][0]["ledger"]] == ["plain", "context", "host"]


def test_it_is_unmapped_with_its_context(broker: Broker) -> None:
    client(
        broker,
        HOST
        + """
ok('cuDevicePrimaryCtxReset_v2', 0)
assert f'{host:x}-' not in open('/proc/self/maps').read()
""",
    )


def test_what_cannot_be_allocated(broker: Broker) -> None:
    client(
        broker,
        """
start(0)
before = open('/proc/self/maps').read().count('\\n')
pointer = ctypes.c_void_p(7)
assert call('cuMemHostAlloc', ctypes.byref(pointer), 0, 0) == 0
assert pointer.value is None
pointer.value = 7
assert call('cuMemHostAlloc', ctypes.byref(pointer), 1 << 60, 0) == 2
for _ in range(100):
    assert call('cuMemHostAlloc', ctypes.byref(pointer), 1 << 20, 64) == 1
assert call('cuMemHostAlloc', None, 100, 0) == 1
assert pointer.value == 7
assert open('/proc/self/maps').read().count('\\n') < before + 10
""",
    )


def test_registered_memory(broker: Broker) -> None:
    client(
        broker,
        """
import mmap
start(0)
memory = mmap.mmap(-1, 8192)
pointer = ctypes.addressof(ctypes.c_char.from_buffer(memory))
assert call('cuMemHostRegister_v2', 4096, 100, 0) == 1
assert call('cuMemHostRegister_v2', pointer, 1 << 45, 0) == 1
assert call('cuMemHostRegister_v2', 1 << 48, 100, 0) == 1
ok('cuMemHostRegister_v2', pointer, 8192, 2)
assert call('cuMemHostRegister_v2', pointer + 4096, 100, 0) == 712
ok('cuMemsetD8_v2', pointer + 4096, 3, 100)
assert memory[4095:4097] == b'\\0\\3'
ok('cuMemHostUnregister', pointer)
assert call('cuMemHostUnregister', pointer) == 713
assert call('cuMemsetD8_v2', pointer, 3, 100) == 1
""",
    )


def test_memory_that_the_program_unmaps_itself_is_no_crash(broker: Broker) -> None:
    client(
        broker,
        HOST
        + """
libc = ctypes.CDLL(None)
assert libc.munmap(ctypes.c_void_p(host), ctypes.c_size_t(4096)) == 0
code = call('cuMemcpyHtoD_v2', device, host, 4096)
assert code == 1, code
again = answer('cuMemHostAlloc', 4096, 0)
ctypes.memset(again, 6, 4096)
ok('cuMemcpyHtoD_v2', device, again, 4096)
assert read(device, 4096) == b'\\6' * 4096
ok('cuMemFreeHost', again)
""",
    )


def test_a_copy_from_it_takes_the_source_when_the_stream_gets_there() -> None:
    """Where the kernel lets the broker read it then."""
    with Broker(sim.machine("h100", devices=1)) as broker:
        client(
            broker,
            HOST
            + """
word = answer('cuMemHostAlloc', 8, 0)
stream = answer('cuStreamCreate', 1)
ok('cuStreamWaitValue32_v2', stream, word, 1, 0)
ok('cuMemcpyHtoDAsync_v2', device, host, 64, stream)
assert call('cuStreamQuery', stream) == 600
ctypes.memset(host, 2, 64)
ctypes.memset(word, 1, 1)
ok('cuStreamSynchronize', stream)
assert read(device, 64) == b'\\2' * 64
""",
        )


def test_a_wait_for_a_word_that_the_kernel_keeps_private_is_refused_by_name() -> None:
    with Broker(sim.machine("h100", devices=1), host_memory="socket") as broker:
        client(broker, HOST + "assert call('cuStreamWaitValue32_v2', None, host, 1, 0) == 801")
        report = eventually(broker, none_alive)
    (incident,) = report["clients"][0]["incidents"]
    assert incident["kind"] == "unsupported"
    assert "a word of host memory" in incident["call"]


def test_words_of_device_memory_are_written_and_waited_for_by_batches(broker: Broker) -> None:
    client(
        broker,
        """
start(0)
words = answer('cuMemAlloc_v2', 64)
ok('cuMemsetD8_v2', words, 0, 64)
first, second = answer('cuStreamCreate', 1), answer('cuStreamCreate', 1)
def operation(kind, offset, value):
    return struct.pack('iIQQII', kind, 0, words + offset, value, 0, 0) + bytes(16)
both = operation(1, 0, 7) + operation(2, 8, 9)
ok('cuStreamBatchMemOp_v2', first, 2, both, 0)
ok('cuStreamWriteValue32_v2', second, words, 7, 0)
ok('cuStreamSynchronize', first)
assert read(words, 12) == bytes([7] + [0] * 7 + [9, 0, 0, 0])
assert call('cuStreamBatchMemOp_v2', first, 257, both * 129, 0) == 1
""",
    )


def test_who_waits_for_a_word_that_nobody_writes(sim_run: Callable[..., Ran]) -> None:
    ran = sim_run(
        1,
        python(
            "start(0)\nhost = answer('cuMemHostAlloc', 8, 0)\nok('cuStreamWaitValue32_v2', None, host, 1, 0)\n"
            "ok('cuStreamSynchronize', None)"
        ),
    )
    assert ran.report["hang"] == "blocked"
    assert "waits in cuStreamWaitValue32 for default stream, a word of memory" in ran.texts("hang")
