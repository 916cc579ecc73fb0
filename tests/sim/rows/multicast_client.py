"""Teams and bindings in few words, for the rows about multicast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.sim.rows.driver_client import GRANULE, NO_HANDLE, POSIX, create, driver, mapped, ok, read


def object_properties(size: int = GRANULE, device_count: int = 2, handle_types: Any = NO_HANDLE, flags: int = 0) -> Any:
    """Describe a multicast object."""
    wanted = driver.CUmulticastObjectProp()
    wanted.size = size
    wanted.numDevices = device_count
    wanted.handleTypes = int(handle_types)
    wanted.flags = flags
    return wanted


def create_object(size: int = GRANULE, device_count: int = 2, handle_types: Any = NO_HANDLE) -> Any:
    """Create a multicast object without devices."""
    return ok(driver.cuMulticastCreate(object_properties(size, device_count, handle_types)))


def create_team(size: int = GRANULE, devices: Sequence[int] = (0, 1), handle_types: Any = NO_HANDLE) -> Any:
    """Create a multicast object and add its devices."""
    team = create_object(size, len(devices), handle_types)
    for device in devices:
        ok(driver.cuMulticastAddDevice(team, device))
    return team


def bind(team: Any, offset: int, memory: Any, size: int = GRANULE, memory_offset: int = 0) -> Sequence[Any]:
    """Call `cuMulticastBindMem`."""
    result: Sequence[Any] = driver.cuMulticastBindMem(team, offset, memory, memory_offset, size, 0)
    return result


def bound_memory(team: Any, offset: int = 0, size: int = GRANULE, devices: Sequence[int] = (0, 1)) -> list[int]:
    """Bind fresh memory of each device at the offset; give the plain address of each."""
    addresses = []
    for device in devices:
        memory = create(size, device, POSIX)
        ok(bind(team, offset, memory, size))
        addresses.append(mapped(memory, size, 0, 1))
    return addresses


def contents(addresses: Sequence[int], size: int, offset: int = 0) -> list[bytes]:
    """Read the same stretch of several buffers."""
    return [read(address + offset, size) for address in addresses]
