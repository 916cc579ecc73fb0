"""The driver's calls by plain `ctypes`: which ones may be made at all, and the structures that they take.

Needs nothing but the interpreter, so that it works where a GPU is and nothing can be installed. `Library.call` is the
only way to a driver from here, and refuses every name that is not in `ALLOWED`: multicast, managed memory, settings and
the end of contexts are not there.

Threads: one; contexts are current to a thread.

Source: cuda.h of CUDA 13.0.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from typing import Any, Final

GRANULE: Final = 2 << 20  # of physical memory and of reservations on H200 and H100

# What disables multicast in the libraries that are known to use it: what `--driver cuda` of the product sets as well.
DISABLING: Final = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
    "MSCCLPP_FORCE_DISABLE_NVLS": "1",
}

# Calls that sequences are made of, by the symbols that cuda.h of CUDA 13 gives them.
SEQUENCE_SYMBOLS: Final = """
    cuCtxGetCurrent cuCtxGetDevice cuCtxSynchronize cuDeviceCanAccessPeer cuDeviceGet cuDeviceGetAttribute
    cuDeviceGetDefaultMemPool cuDeviceGetMemPool cuDeviceGetP2PAttribute cuDeviceSetMemPool cuEventCreate
    cuEventDestroy_v2 cuEventElapsedTime_v2 cuEventQuery cuEventRecord cuEventRecordWithFlags cuEventSynchronize
    cuIpcCloseMemHandle cuIpcGetEventHandle cuIpcGetMemHandle cuIpcOpenMemHandle_v2 cuMemAddressFree
    cuMemAddressReserve cuMemAlloc_v2 cuMemAllocAsync cuMemAllocFromPoolAsync cuMemcpyDtoD_v2
    cuMemcpyDtoDAsync_v2 cuMemcpyDtoH_v2 cuMemcpyHtoD_v2 cuMemCreate cuMemExportToShareableHandle cuMemFree_v2
    cuMemFreeAsync cuMemGetAccess cuMemGetAddressRange_v2 cuMemGetAllocationGranularity
    cuMemGetAllocationPropertiesFromHandle cuMemImportFromShareableHandle cuMemMap cuMemPoolCreate
    cuMemPoolDestroy cuMemPoolExportPointer cuMemPoolExportToShareableHandle cuMemPoolGetAccess
    cuMemPoolGetAttribute cuMemPoolSetAccess cuMemPoolSetAttribute cuMemPoolTrimTo cuMemRelease
    cuMemRetainAllocationHandle cuMemSetAccess cuMemsetD16_v2 cuMemsetD32_v2 cuMemsetD8_v2 cuMemsetD8Async
    cuMemUnmap cuPointerGetAttribute cuPointerGetAttributes cuPointerSetAttribute cuStreamCreate
    cuStreamCreateWithPriority cuStreamDestroy_v2 cuStreamGetCtx cuStreamGetFlags cuStreamGetPriority
    cuStreamQuery cuStreamSynchronize cuStreamWaitEvent
"""
# What the runner itself needs around them.
RUNNER_SYMBOLS: Final = """
    cuInit cuDriverGetVersion cuDeviceGetCount cuDeviceGetName cuDevicePrimaryCtxRetain
    cuDevicePrimaryCtxRelease_v2 cuCtxSetCurrent
"""
SEQUENCE_CALLS: Final = tuple(symbol.partition("_v")[0] for symbol in SEQUENCE_SYMBOLS.split())
ALLOWED: Final[Mapping[str, str]] = {
    symbol.partition("_v")[0]: symbol for symbol in (SEQUENCE_SYMBOLS + RUNNER_SYMBOLS).split()
}

CODES: Final[Mapping[int, str]] = {
    0: "SUCCESS", 1: "INVALID_VALUE", 2: "OUT_OF_MEMORY", 3: "NOT_INITIALIZED", 4: "DEINITIALIZED",
    100: "NO_DEVICE", 101: "INVALID_DEVICE", 201: "INVALID_CONTEXT", 205: "MAP_FAILED", 206: "UNMAP_FAILED",
    208: "ALREADY_MAPPED", 211: "NOT_MAPPED", 217: "PEER_ACCESS_UNSUPPORTED", 304: "OPERATING_SYSTEM",
    400: "INVALID_HANDLE", 401: "ILLEGAL_STATE", 500: "NOT_FOUND", 600: "NOT_READY", 700: "ILLEGAL_ADDRESS",
    702: "LAUNCH_TIMEOUT", 704: "PEER_ACCESS_ALREADY_ENABLED", 705: "PEER_ACCESS_NOT_ENABLED",
    709: "CONTEXT_IS_DESTROYED", 712: "HOST_MEMORY_ALREADY_REGISTERED", 713: "HOST_MEMORY_NOT_REGISTERED",
    714: "HARDWARE_STACK_ERROR", 715: "ILLEGAL_INSTRUCTION", 716: "MISALIGNED_ADDRESS", 717: "INVALID_ADDRESS_SPACE",
    718: "INVALID_PC", 719: "LAUNCH_FAILED", 800: "NOT_PERMITTED", 801: "NOT_SUPPORTED", 999: "UNKNOWN",
}  # fmt: skip

Handle = ctypes.c_uint64  # of a context, stream, event, pool or allocation, and an address


class RefusedError(Exception):
    """A call that must not be made from here."""


class Location(ctypes.Structure):
    """``CUmemLocation``."""

    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class AllocationProperties(ctypes.Structure):
    """``CUmemAllocationProp``."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", Location),
        ("win32", ctypes.c_void_p),
        ("compression", ctypes.c_ubyte),
        ("rdma", ctypes.c_ubyte),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 4),
    )


class PoolProperties(ctypes.Structure):
    """``CUmemPoolProps``."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", Location),
        ("win32", ctypes.c_void_p),
        ("max_size", ctypes.c_size_t),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 54),
    )


class AccessDescription(ctypes.Structure):
    """``CUmemAccessDesc``."""

    _fields_ = (("location", Location), ("flags", ctypes.c_int))


class Opaque64(ctypes.Structure):
    """``CUipcMemHandle``, ``CUipcEventHandle`` and ``CUmemPoolPtrExportData``: 64 bytes, by value or by address."""

    _fields_ = (("bytes", ctypes.c_ubyte * 64),)


def refusal(simulated: bool, environment: Mapping[str, str]) -> str | None:
    """Say why no call may be made of a library; None if it may."""
    if simulated:
        return None
    wrong = [f"{name}={value}" for name, value in DISABLING.items() if environment.get(name) != value]
    if wrong:
        return f"the library has no simcuVersion, so it is a real driver: set {' '.join(wrong)}"
    return None


class Library:
    """A driver library, of which only allowed calls can be made.

    Parameters
    ----------
    path : str
        A path, or the name ``libcuda.so.1``.

    Raises
    ------
    RefusedError
        If it cannot be loaded, or is a real driver and the environment does not disable multicast everywhere.
    """

    __slots__ = ("_functions", "_native", "simulated")

    def __init__(self, path: str) -> None:
        try:
            self._native = ctypes.CDLL(path)
        except OSError as error:
            raise RefusedError(f"library={path!r}: cannot be loaded ({error})") from None
        self.simulated = hasattr(self._native, "simcuVersion")
        why_not = refusal(self.simulated, os.environ)
        if why_not is not None:
            raise RefusedError(f"library={path!r}: {why_not}")
        self._functions: dict[str, Any] = {}

    def call(self, name: str, *arguments: Any) -> int:
        """Make one call; give its code.

        Raises
        ------
        RefusedError
            If the call is not in `ALLOWED`.
        LookupError
            If the library does not have it.
        """
        function = self._functions.get(name)
        if function is None:
            if name not in ALLOWED or "multicast" in name.lower():
                raise RefusedError(f"call={name!r}: not in the list of allowed calls")
            try:
                function = getattr(self._native, ALLOWED[name])
            except AttributeError:
                raise LookupError(ALLOWED[name]) from None
            function.restype = ctypes.c_int
            self._functions[name] = function
        code: int = function(*arguments)
        return code

    def call_simulated(self, name: str, *arguments: Any) -> int:
        """Make any call at all, of a simulated driver only; give its code.

        Raises
        ------
        RefusedError
            If this is a real driver.
        """
        if not self.simulated:
            raise RefusedError(f"call={name!r}: of a simulated driver only, and this is a real one")
        code: int = getattr(self._native, name)(*arguments)
        return code

    def ok(self, name: str, *arguments: Any) -> None:
        """Make a call that the runner itself depends on.

        Raises
        ------
        RuntimeError
            If it fails.
        """
        code = self.call(name, *arguments)
        if code:
            raise RuntimeError(f"{name} answered {code_name(code)}")


def code_name(code: int) -> str:
    """Give a code's name without ``CUDA_ERROR_``; its number if it is not expected here."""
    return CODES.get(code, str(code))
