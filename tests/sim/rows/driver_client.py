"""What the rows have in common: NVIDIA's `cuda-bindings` as the client, and short ways to say what a row is about.

A row states one fact about the driver: which call, which arguments, which code. Rows run in a child process of
`tests/sim/test_driver_rows.py`, whose library path holds the simulated driver under the name ``libcuda.so.1``; what
needs nothing simulated runs on real GPUs as well, see `tests/sim/rows/on_hardware.py`.
"""

from __future__ import annotations

import ctypes
import importlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from tests.sim.rows.on_hardware import Guarded

MARKER: Final = "ALLRANKS_DRIVER_ROWS"
ON_HARDWARE: Final = os.environ.get(MARKER) == "hardware"
# Its modules are compiled and have no type stubs.
_client: Final[Any] = importlib.import_module("cuda.bindings.driver")
driver: Final[Any] = Guarded(_client) if ON_HARDWARE else _client

MIB: Final = 1 << 20
GRANULE: Final = 2 * MIB
RESULT: Final = driver.CUresult
POSIX: Final = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
FABRIC: Final = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_FABRIC
NO_HANDLE: Final = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_NONE
READ_WRITE: Final = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE


def simulated_only(reason: str) -> pytest.MarkDecorator:
    """Mark a row that states what only a simulated driver does."""
    return pytest.mark.skipif(ON_HARDWARE, reason=reason)


def loaded_driver() -> tuple[ctypes.CDLL, Path]:
    """Give the library that the client loaded as ``libcuda.so.1``, and its file; loads nothing."""
    ok(driver.cuDriverGetVersion())  # the client loads its driver at its first call
    library = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    address = ctypes.cast(library.cuInit, ctypes.c_void_p).value
    assert address is not None
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        fields = line.split(maxsplit=5)
        begin, end = (int(part, 16) for part in fields[0].split("-"))
        if begin <= address < end and len(fields) == 6:
            return library, Path(fields[5])
    raise AssertionError(f"cuInit={address:#x}: in no mapped file")


def require_simulated(expected: Path) -> None:
    """Fail unless the client's driver, and every mapped file that could be one, is the simulated driver."""
    library, path = loaded_driver()
    assert path == expected.resolve(), f"the client loaded {path}, not {expected.resolve()}"
    assert hasattr(library, "simcuVersion"), f"{path} is not the simulated driver: it has no simcuVersion"
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    files = {line.split(maxsplit=5)[5] for line in lines if "/" in line}
    drivers = sorted(name for name in files if Path(name).name.startswith("libcuda.so"))
    assert not drivers, f"a driver that is not simulated is loaded as well: {drivers}"


def ok(result: Sequence[Any]) -> Any:
    """Give what a successful call answered: nothing, one value, or a tuple."""
    code, *values = result
    assert code == RESULT.CUDA_SUCCESS, f"expected CUDA_SUCCESS, got {code!r}"
    return values[0] if len(values) == 1 else tuple(values) or None


def expect(code: Any, result: Sequence[Any]) -> None:
    """Assert the code that a call answered."""
    assert result[0] == code, f"expected {code!r}, got {result[0]!r}"


def properties(device: int = 0, handle_types: Any = POSIX) -> Any:
    """Give the properties of pinned memory of a device."""
    wanted = driver.CUmemAllocationProp()
    wanted.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location = location(device)
    wanted.requestedHandleTypes = handle_types
    return wanted


def location(device: int) -> Any:
    """Give a device as a place of memory."""
    place = driver.CUmemLocation()
    place.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    place.id = device
    return place


def create(size: int = GRANULE, device: int = 0, handle_types: Any = POSIX) -> Any:
    """Create physical memory."""
    return ok(driver.cuMemCreate(size, properties(device, handle_types), 0))


def reserve(size: int = GRANULE, wanted: int = 0) -> int:
    """Reserve addresses."""
    return int(ok(driver.cuMemAddressReserve(size, 0, wanted, 0)))


def access(address: int, size: int, *devices: int) -> Sequence[Any]:
    """Call `cuMemSetAccess` for reading and writing from the devices."""
    descriptions = []
    for device in devices:
        description = driver.CUmemAccessDesc()
        description.location = location(device)
        description.flags = READ_WRITE
        descriptions.append(description)
    result: Sequence[Any] = driver.cuMemSetAccess(address, size, descriptions, len(descriptions))
    return result


def mapped(handle: Any, size: int = GRANULE, *devices: int) -> int:
    """Reserve, map and open `size` bytes of an allocation or multicast object to the devices (0 if none is named)."""
    address = reserve(size)
    ok(driver.cuMemMap(address, size, 0, handle, 0))
    ok(access(address, size, *(devices or (0,))))
    return address


def buffer_id(address: int) -> int:
    """Give the BUFFER_ID at an address."""
    attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_BUFFER_ID
    return int(ok(driver.cuPointerGetAttribute(attribute, address)))


def address_range(address: int) -> tuple[int, int]:
    """Give base and size of what an address lies in."""
    base, size = ok(driver.cuMemGetAddressRange(address))
    return int(base), int(size)


def read(address: int, size: int) -> bytes:
    """Copy device memory to the host."""
    data = bytearray(size)
    ok(driver.cuMemcpyDtoH(data, address, size))
    return bytes(data)


def write(address: int, data: bytes) -> None:
    """Copy host memory to the device."""
    ok(driver.cuMemcpyHtoD(address, data, len(data)))


def in_threads(*bodies: Callable[[], None]) -> None:
    """Run the bodies at once, one thread each, and raise the first error of any of them."""
    with ThreadPoolExecutor(len(bodies)) as pool:
        futures = [pool.submit(body) for body in bodies]
    for future in futures:
        future.result()
