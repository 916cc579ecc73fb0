"""Memory of rows: allocation with a pitch, and fills of rows, from the text of `cuda.h`."""

from __future__ import annotations

import pytest

from tests.sim.rows.driver_client import ON_HARDWARE, RESULT, driver, expect, ok, read

pytestmark = pytest.mark.usefixtures("process")


def allocate(width: int, height: int) -> tuple[int, int]:
    address, pitch = ok(driver.cuMemAllocPitch(width, height, 4))
    return int(address), int(pitch)


def test_rows_lie_a_pitch_apart() -> None:
    address, pitch = allocate(1000, 5)
    assert pitch >= 1000
    ok(driver.cuMemsetD8(address, 1, pitch * 5))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemsetD8(address, 1, pitch * 5 + 1))


def test_a_fill_of_rows_leaves_what_lies_between_them() -> None:
    address, pitch = allocate(1000, 3)
    ok(driver.cuMemsetD2D8(address, pitch, 7, 1000, 3))
    row = b"\7" * 1000 + bytes(pitch - 1000)
    assert read(address, 3 * pitch) == row * 3


@pytest.mark.parametrize("bits", [16, 32])
def test_wider_elements_on_a_stream(bits: int) -> None:
    address, pitch = allocate(64, 2)
    stream = ok(driver.cuStreamCreate(0))
    value = 0x04030201 & ((1 << bits) - 1)
    ok(getattr(driver, f"cuMemsetD2D{bits}Async")(address, pitch, value, 3, 2, stream))
    ok(driver.cuStreamSynchronize(stream))
    filled = value.to_bytes(bits // 8, "little") * 3
    assert read(address, len(filled) + 1) == filled + b"\0"
    assert read(address + pitch, len(filled) + 1) == filled + b"\0"


def test_the_synchronous_ones() -> None:
    address, pitch = allocate(64, 2)
    ok(driver.cuMemsetD2D16(address, pitch, 0x0201, 2, 2))
    ok(driver.cuMemsetD2D32(address + 8, pitch, 0x04030201, 1, 1))
    assert read(address, 13) == b"\1\2\1\2" + bytes(4) + b"\1\2\3\4" + b"\0"
    assert read(address + pitch, 5) == b"\1\2\1\2\0"


def test_rows_that_cannot_be_filled() -> None:
    address, pitch = allocate(1000, 3)
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemsetD2D8(address, pitch, 7, 1000, 4))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemsetD2D8(address, 10, 7, 11, 2))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemsetD2D32(address + 2, pitch, 7, 1, 1))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemsetD2D32(address, pitch + 2, 7, 1, 2))
    ok(driver.cuMemsetD2D32(address, pitch + 2, 0, 1, 1))  # one row has no next one
    for huge in () if ON_HARDWARE else ((1 << 62) + 1, (1 << 64) - 1):  # a device answers success
        expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemsetD2D32(address, pitch, 7, huge, 1))
        expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemsetD2D8(address, pitch, 7, 1, huge))
    assert read(address, 3 * pitch) == bytes(3 * pitch)
    ok(driver.cuMemsetD2D8(address, pitch, 7, 0, (1 << 64) - 1))


def test_rows_that_cannot_be_allocated() -> None:
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemAllocPitch(1000, 3, 5))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemAllocPitch(0, 3, 4))
    expect(RESULT.CUDA_ERROR_INVALID_VALUE, driver.cuMemAllocPitch(1 << 40, 1 << 40, 4))
    expect(RESULT.CUDA_ERROR_OUT_OF_MEMORY, driver.cuMemAllocPitch(1 << 30, 1 << 20, 4))
