"""An arena of ordinary memory with an allocator that puts buffers where a Program wants them.

A freed address is given again at once, or never again, or the same one is given on every rank, as a CUDA driver and its
allocators do it. The range begins at the same address in every process if it is free there. Memory that is freed goes
back to the system: what is allocated there next is other memory, and zero.
"""

from __future__ import annotations

import bisect
import ctypes
import mmap
import os
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from allranks.conformance.worlds.site import Rule
from allranks.errors import WorldError

# Far from where programs, libraries, heaps and stacks are on x86-64 and aarch64, and above the sanitizers' shadow.
_BASE: Final = 0x2000_0000_0000
_MAP_FIXED_NOREPLACE: Final = 0x100000
_MAP_NORESERVE: Final = 0x4000
_FAILED: Final = ctypes.c_void_p(-1).value
_PAGE: Final = mmap.PAGESIZE
_ALIGNMENT: Final = 512

_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class OutOfRoom(WorldError):  # noqa: N818 -- says what happened, as the errors that it is one of
    """An arena has no room for a buffer."""


def _reserve(size_bytes: int) -> int:
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    for hint, more in ((_BASE, _MAP_FIXED_NOREPLACE), (0, 0)):
        address = _libc.mmap(hint, size_bytes, protection, flags | more, -1, 0)
        if address not in (None, _FAILED):
            return int(address)
    raise OutOfRoom(f"an arena of {size_bytes} bytes: {os.strerror(ctypes.get_errno())}")


class Arena:
    """Address space of this process from which buffers are given.

    Parameters
    ----------
    size_bytes : int
        How much; only what is used takes memory.
    equal_bytes : int
        How much of it, at its end, is for buffers that want the same address on every rank.
    """

    def __init__(self, size_bytes: int = 32 << 30, equal_bytes: int = 4 << 30) -> None:
        self.size_bytes = size_bytes
        self.base = _reserve(size_bytes)
        self.equal_base = self.base + size_bytes - equal_bytes
        self.equal_bytes = equal_bytes
        self._bytes = memoryview((ctypes.c_char * size_bytes).from_address(self.base)).cast("B")
        self._starts: list[int] = []  # of the live blocks, ascending
        self._ends: list[int] = []
        self._shift = 0
        self._ever: dict[int, int] = {}  # start -> end of what was ever given since the last reset

    def reset(self, shift_bytes: int = 0) -> None:
        """Take everything back, and shift what is given from now on, so that equal histories differ in addresses.

        A shift that is too far for the arena becomes another one, which is the same in every process.
        """
        for start in list(self._starts):
            self.free(start)
        self._shift = shift_bytes % ((self.equal_base - self.base) // 2 - _PAGE) // _PAGE * _PAGE
        self._ever.clear()

    def close(self) -> None:
        """Give the address space back."""
        self._bytes.release()
        _libc.munmap(self.base, self.size_bytes)

    def _gaps(self, taken: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """Give the gaps between stretches that are taken, which are in ascending order."""
        start = self.base + self._shift
        for begin, end in taken:
            if begin >= self.equal_base:
                break
            if begin > start:
                yield start, begin
            start = max(start, end)
        if start < self.equal_base:
            yield start, self.equal_base

    def _find(self, size: int, unit: int, rule: Rule) -> int | None:
        never = rule == "never_reuse"
        taken = sorted(self._ever.items()) if never else zip(self._starts, self._ends, strict=True)
        # Pages are given back one by one: a block of whole ones begins with one.
        gaps = [(-(-start // unit) * unit, end // unit * unit) for start, end in self._gaps(taken)]
        fitting = [(start, end - size) for start, end in gaps if end - start >= size]
        if not fitting:
            return None
        return fitting[-1][1] if rule == "high" else fitting[0][0]

    def _is_free(self, start: int, end: int) -> bool:
        place = bisect.bisect_right(self._starts, start)
        before = place == 0 or self._ends[place - 1] <= start
        after = place == len(self._starts) or end <= self._starts[place]
        return before and after and self.base <= start and end <= self.base + self.size_bytes

    def allocate(self, size_bytes: int, *, whole_pages: bool, rule: Rule = "low", wish: int = 0) -> int:
        """Give the address of a new block, all zero.

        Raises
        ------
        OutOfRoom
            If there is no room.
        """
        unit = _PAGE if whole_pages else _ALIGNMENT
        size = -(-size_bytes // unit) * unit
        start: int | None = wish
        if not wish or wish % unit or not self._is_free(wish, wish + size):
            start = self._find(size, unit, rule)
        if start is None:
            raise OutOfRoom(f"out of memory: no room for {size_bytes} bytes in an arena of {self.size_bytes}")
        place = bisect.bisect_left(self._starts, start)
        self._starts.insert(place, start)
        self._ends.insert(place, start + size)
        self._ever[start] = max(self._ever.get(start, 0), start + size)
        return start

    def free(self, address: int) -> None:
        """Give a block back; its memory is gone, and what is there next is zero."""
        place = bisect.bisect_left(self._starts, address)
        if place == len(self._starts) or self._starts[place] != address:
            raise ValueError(f"address={address:#x}: no block begins there")
        del self._starts[place]
        end = self._ends.pop(place)
        first, last = -(-address // _PAGE) * _PAGE, end // _PAGE * _PAGE
        if first < last:
            _libc.madvise(first, last - first, mmap.MADV_DONTNEED)
            ctypes.memset(address, 0, first - address)
            ctypes.memset(last, 0, end - last)
        else:
            ctypes.memset(address, 0, end - address)

    def _offset(self, address: int, size: int) -> int:
        place = bisect.bisect_right(self._starts, address) - 1
        if place < 0 or address + size > self._ends[place]:
            raise ValueError(f"address={address:#x} size={size}: not within a live block")
        return address - self.base

    def peek(self, address: int, size: int) -> bytes:
        """Read; ValueError if it is not within one live block."""
        offset = self._offset(address, size)
        return bytes(self._bytes[offset : offset + size])

    def poke(self, address: int, data: bytes | bytearray | memoryview | npt.NDArray[Any]) -> None:
        """Write; ValueError if it is not within one live block."""
        stored = data.tobytes() if isinstance(data, np.ndarray) else bytes(data)
        offset = self._offset(address, len(stored))
        self._bytes[offset : offset + len(stored)] = stored
