"""A CUDA driver, loaded at run time: the real ``libcuda.so.1`` or the simulated one, through the same calls.

Methods are the driver's own calls under shorter names; none has semantics of its own. Sizes, offsets and addresses are
in bytes. Each raises `allranks.errors.DriverError` with the call, the code and its name unless the driver answers
``CUDA_SUCCESS``. On a library that is not the simulated driver the multicast calls are not even resolved, unless
``ALLRANKS_ALLOW_HARDWARE_MULTICAST=1`` is set and none of ``NCCL_NVLS_ENABLE=0``,
``TORCH_SYMM_MEM_DISABLE_MULTICAST=1``, ``NVSHMEM_DISABLE_NVLS=1``, ``MSCCLPP_FORCE_DISABLE_NVLS=1`` is in force.

Threads: any; the current device is the calling thread's. No call holds the interpreter's lock while it waits.

Source: cuda.h of CUDA 13.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy.typing as npt

from allranks._native import driver as _driver
from allranks.errors import DriverError

__all__ = ["Driver", "DriverError"]

_MULTICAST_GUARD: Final = "multicast is not supported (not allowed on this machine)"

Data = bytes | bytearray | memoryview | npt.NDArray[Any]


class Driver:
    """A loaded driver. Made by `Driver.load`."""

    __slots__ = ("native",)

    def __init__(self, native: _driver.Driver) -> None:
        self.native = native

    @staticmethod
    def load(path: str | Path) -> Driver:
        """Open a driver library and resolve its calls.

        Parameters
        ----------
        path : str or Path
            ``allranks.sim.library_path()``, or the name of a real driver such as ``"libcuda.so.1"``.

        Raises
        ------
        UsageError
            If it cannot be opened, or lacks an entry point.
        """
        return Driver(_driver.Driver.load(str(path)))

    @property
    def path(self) -> str:
        """The path that it was loaded from."""
        return self.native.path

    @property
    def simulated(self) -> bool:
        """Whether this is the simulated driver (it exports ``simcuVersion``)."""
        return self.native.simulated

    @property
    def multicast_allowed(self) -> bool:
        """Whether the hardware guard lets multicast calls be resolved at all."""
        return self.native.multicast_decision.allowed

    @property
    def multicast_reason(self) -> str:
        """What the guard's decision rests on, for messages."""
        decision = self.native.multicast_decision
        return decision.reason if decision.allowed else f"{_MULTICAST_GUARD}: {decision.reason}"

    def error_name(self, code: int) -> str:
        """Give the name of a ``CUresult``: ``"CUDA_ERROR_INVALID_VALUE"``."""
        return self.native.error_name(code)

    # -- devices and contexts

    def init(self) -> None:
        """Initialise the driver (``cuInit``)."""
        self.native.init()

    def version(self) -> int:
        """Give the driver's version, 1000 * major + 10 * minor."""
        return self.native.version()

    def device_count(self) -> int:
        """Give the number of devices."""
        return self.native.device_count()

    def device_attribute(self, attribute: int, device: int) -> int:
        """Give a device attribute by its number in ``CUdevice_attribute``."""
        return self.native.device_attribute(attribute, device)

    def set_device(self, device: int) -> None:
        """Retain the device's primary context and make it the calling thread's current one.

        Each call needs one `reset_device`.
        """
        self.native.set_device(device)

    def reset_device(self, device: int) -> None:
        """Release the device's primary context once."""
        self.native.reset_device(device)

    def synchronize(self) -> None:
        """Wait for everything that was enqueued in the current context."""
        self.native.synchronize()

    # -- virtual memory management

    def mem_create(self, size: int, device: int, shareable: bool = True) -> int:
        """Create physical memory; gives its handle.

        Parameters
        ----------
        size : int
            A multiple of the granularity.
        device : int
            Where it lies.
        shareable : bool
            Whether the handle can be exported as a file descriptor.
        """
        return self.native.mem_create(size, device, shareable)

    def mem_release(self, handle: int) -> None:
        """Give one reference to a handle back."""
        self.native.mem_release(handle)

    def mem_address_reserve(self, size: int, alignment: int = 0, address: int = 0) -> int:
        """Reserve a range of addresses, near `address` if that is not 0."""
        return self.native.mem_address_reserve(size, alignment, address)

    def mem_address_free(self, address: int, size: int) -> None:
        """Give a reservation back."""
        self.native.mem_address_free(address, size)

    def mem_map(self, address: int, size: int, handle: int, offset: int = 0) -> None:
        """Map physical memory, or a multicast object, at a reserved address."""
        self.native.mem_map(address, size, handle, offset)

    def mem_unmap(self, address: int, size: int) -> None:
        """Unmap whole mappings."""
        self.native.mem_unmap(address, size)

    def mem_set_access(self, address: int, size: int, devices: Sequence[int]) -> None:
        """Let devices read and write mapped addresses."""
        self.native.mem_set_access(address, size, list(devices))

    def mem_granularity(self, device: int, recommended: bool = False) -> int:
        """Give what sizes of physical memory are multiples of, in bytes."""
        return self.native.mem_granularity(device, recommended)

    def mem_retain(self, address: int) -> int:
        """Give the handle of the memory mapped at an address, with one more reference."""
        return self.native.mem_retain(address)

    def mem_export(self, handle: int) -> int:
        """Export a handle as a file descriptor, which the caller closes."""
        return self.native.mem_export(handle)

    def mem_import(self, descriptor: int) -> int:
        """Import a handle from a file descriptor, which stays the caller's."""
        return self.native.mem_import(descriptor)

    # -- plain memory, ranges and contents

    def mem_alloc(self, size: int) -> int:
        """Allocate memory of the current device; gives its address."""
        return self.native.mem_alloc(size)

    def mem_free(self, address: int) -> None:
        """Free what `mem_alloc` gave."""
        self.native.mem_free(address)

    def mem_get_info(self) -> tuple[int, int]:
        """Give free and total memory of the current device, in bytes."""
        return self.native.mem_get_info()

    def mem_address_range(self, address: int) -> tuple[int, int]:
        """Give base and size of the allocation or mapping around an address."""
        return self.native.mem_address_range(address)

    def buffer_id(self, address: int) -> int:
        """Give the number that names an allocation or mapping and is never used again in the process."""
        return self.native.buffer_id(address)

    def copy_to_device(self, address: int, data: Data) -> None:
        """Copy a contiguous buffer of the host to device memory."""
        self.native.copy_to_device(address, data)

    def copy_from_device(self, address: int, size: int) -> bytes:
        """Copy device memory to the host."""
        return self.native.copy_from_device(address, size)

    def memset8(self, address: int, value: int, count: int) -> None:
        """Fill device memory with one byte value."""
        self.native.memset8(address, value, count)

    # -- multicast

    def multicast_create(self, size: int, device_count: int) -> int:
        """Create a multicast object; gives its handle.

        Raises
        ------
        UsageError
            If the guard does not allow multicast here; so for every multicast call.
        """
        return self.native.multicast_create(size, device_count)

    def multicast_add_device(self, handle: int, device: int) -> None:
        """Add a device to an object's team."""
        self.native.multicast_add_device(handle, device)

    def multicast_bind_mem(self, handle: int, offset: int, memory: int, memory_offset: int, size: int) -> None:
        """Bind physical memory, by its handle, at an offset of the object. Blocks until the team is complete."""
        self.native.multicast_bind_mem(handle, offset, memory, memory_offset, size)

    def multicast_bind_address(self, handle: int, offset: int, address: int, size: int) -> None:
        """Bind mapped memory, by its address, at an offset of the object. Blocks until the team is complete."""
        self.native.multicast_bind_address(handle, offset, address, size)

    def multicast_unbind(self, handle: int, device: int, offset: int, size: int) -> None:
        """Undo a bind of the device; offset and size as they were bound."""
        self.native.multicast_unbind(handle, device, offset, size)

    def multicast_granularity(self, size: int, device_count: int, recommended: bool = False) -> int:
        """Give what offsets and sizes of bindings are multiples of, in bytes."""
        return self.native.multicast_granularity(size, device_count, recommended)

    def multicast_supported(self, device: int) -> bool:
        """Whether multicast is allowed here and the device has it."""
        return self.native.multicast_supported(device)
