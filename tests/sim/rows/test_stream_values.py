"""Waiting for words of memory and writing them in stream order, from the text of `cuda.h`."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from allranks import sim
from tests.sim.rows.conftest import start
from tests.sim.rows.driver_client import ON_HARDWARE, RESULT, driver, expect, ok, read, write

pytestmark = pytest.mark.usefixtures("process")

WAIT = driver.CUstreamWaitValue_flags
GEQ, EQ = WAIT.CU_STREAM_WAIT_VALUE_GEQ.value, WAIT.CU_STREAM_WAIT_VALUE_EQ.value
AND, NOR = WAIT.CU_STREAM_WAIT_VALUE_AND.value, WAIT.CU_STREAM_WAIT_VALUE_NOR.value


def stream() -> Any:
    return ok(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))


def word() -> int:
    return int(ok(driver.cuMemAlloc(8)))


def goes_on(where: Any) -> bool:
    return bool(driver.cuStreamQuery(where)[0] == RESULT.CUDA_SUCCESS)


@pytest.mark.parametrize(
    ("flags", "value", "before", "after"),
    [
        (GEQ, 5, 4, 5),
        (GEQ, 2, 0xFFFFFFFF, 2),  # cyclic: 2 comes after 2^32 - 1
        (EQ, 5, 6, 5),
        (AND, 6, 9, 4),
        (NOR, 0xFFFFFFFE, 1, 2),
    ],
)
def test_a_stream_waits_for_a_word(flags: int, value: int, before: int, after: int) -> None:
    address, where = word(), stream()
    write(address, before.to_bytes(4, "little"))
    ok(driver.cuStreamWaitValue32(where, address, value, flags))
    assert not goes_on(where)
    ok(driver.cuMemsetD32(address, after, 1))
    ok(driver.cuStreamSynchronize(where))


def test_a_word_of_64_bits() -> None:
    address, waiting, writing = word(), stream(), stream()
    ok(driver.cuStreamWaitValue64(waiting, address, 1 << 40, EQ))
    ok(driver.cuStreamWriteValue32(writing, address, 7, 0))
    ok(driver.cuStreamSynchronize(writing))
    assert not goes_on(waiting)
    ok(driver.cuStreamWriteValue64(writing, address, 1 << 40, 0))
    ok(driver.cuStreamSynchronize(waiting))
    assert read(address, 8) == (1 << 40).to_bytes(8, "little")


def test_what_comes_later_in_the_stream_waits_too() -> None:
    address, result, where = word(), word(), stream()
    ok(driver.cuStreamWaitValue32(where, address, 1, EQ))
    ok(driver.cuMemsetD8Async(result, 9, 1, where))
    assert read(result, 1) == b"\0"
    ok(driver.cuMemsetD8(address, 1, 1))
    ok(driver.cuStreamSynchronize(where))
    assert read(result, 1) == b"\t"


def test_the_host_writes_the_word_itself() -> None:
    pointer, where = int(ok(driver.cuMemHostAlloc(8, driver.CU_MEMHOSTALLOC_DEVICEMAP))), stream()
    ok(driver.cuStreamWaitValue32(where, pointer, 3, EQ))
    assert not goes_on(where)
    ctypes.c_uint32.from_address(pointer).value = 3
    ok(driver.cuStreamSynchronize(where))
    ok(driver.cuStreamWaitValue64(where, pointer, 4, GEQ))
    assert not goes_on(where)
    ctypes.c_uint64.from_address(pointer).value = 4
    ok(driver.cuStreamSynchronize(where))


def test_words_that_cannot_be_waited_for_or_written() -> None:
    address, where = word(), stream()
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuStreamWaitValue32(where, address + 2, 1, EQ))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuStreamWaitValue64(where, address + 4, 1, EQ))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuStreamWaitValue32(where, address, 1, 4))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuStreamWaitValue32(where, 4096, 1, EQ))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuStreamWriteValue32(where, 4096, 1, 0))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuStreamWriteValue32(where, address + 2, 1, 0))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuStreamWriteValue32(where, address, 1, 1))
    expect(RESULT.CUDA_ERROR_NOT_SUPPORTED, driver.cuStreamWaitValue32(where, address, 1, 1 << 30))
    if not ON_HARDWARE:  # a number that is no stream ends the process there
        expect(RESULT.CUDA_ERROR_INVALID_HANDLE, driver.cuStreamWaitValue32(12345, address, 1, EQ))


def operation(name: str, address: int, value: int, flags: int = 0) -> Any:
    made = driver.CUstreamBatchMemOpParams()
    kind = getattr(driver.CUstreamBatchMemOpType, f"CU_STREAM_MEM_OP_{name}")
    made.operation = kind
    part = made.waitValue if name.startswith("WAIT") else made.writeValue
    part.operation = kind
    part.address = address
    part.value64 = driver.cuuint64_t(value)
    part.flags = flags
    return made


def test_a_batch_is_done_in_its_order() -> None:
    first, second, where, other = word(), word(), stream(), stream()
    batch = [operation("WAIT_VALUE_32", first, 1, EQ), operation("WRITE_VALUE_64", second, 1 << 33)]
    ok(driver.cuStreamBatchMemOp(where, len(batch), batch, 0))
    assert not goes_on(where)
    assert read(second, 8) == bytes(8)
    ok(driver.cuStreamBatchMemOp(other, 1, [operation("WRITE_VALUE_32", first, 1)], 0))
    ok(driver.cuStreamSynchronize(where))
    assert read(second, 8) == (1 << 33).to_bytes(8, "little")


def test_a_batch_with_one_that_cannot_be_done_does_nothing() -> None:
    first, where = word(), stream()
    batch = [operation("WRITE_VALUE_32", first, 1), operation("WRITE_VALUE_32", 4096, 1)]
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuStreamBatchMemOp(where, 2, batch, 0))
    ok(driver.cuStreamSynchronize(where))
    assert read(first, 4) == bytes(4)


def test_a_word_of_another_process(node: sim.Node, process: sim.Process) -> None:
    address, where = word(), stream()
    handle = ok(driver.cuIpcGetMemHandle(address))
    ok(driver.cuStreamWaitValue32(where, address, 1, EQ))
    assert not goes_on(where)
    context = ok(driver.cuCtxGetCurrent())
    start(node.create_process(1))
    here = int(ok(driver.cuIpcOpenMemHandle(handle, 1)))
    ok(driver.cuStreamWriteValue32(0, here, 1, 0))
    ok(driver.cuStreamSynchronize(0))
    process.bind()
    ok(driver.cuCtxSetCurrent(context))
    assert goes_on(where)
