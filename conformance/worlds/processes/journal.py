"""What a worker has seen so far, in memory that outlives it.

The worker appends records and the supervisor reads them, at the end of a run or when the worker is gone. No call of the
system is made for a record, and nothing of what was written is lost when the worker is killed. Beside them there is the
*board*: the label of what the rank is at.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator, MutableSequence
from typing import Any, Final

from allranks.conformance.worlds.processes.wire import Garbled, read_record, record

_BYTES: Final = 1 << 30  # address space; memory is taken for what is written
_BOARD: Final = 64  # where the labels begin
_HEAD: Final = 1 << 16  # whole pages, on any machine
_LENGTH: Final = struct.Struct("<Q")
_KEPT: Final = 8 << 20  # memory beyond this is given back after a run


class Journal:
    """One worker's journal: a file in memory, mapped by both sides.

    Parameters
    ----------
    descriptor : int
        The file; it is the caller's to close, and may be closed at once.
    """

    def __init__(self, descriptor: int) -> None:
        self._map = mmap.mmap(descriptor, _BYTES)
        self._view = memoryview(self._map)
        self._words = self._view[:_HEAD].cast("Q")
        self.board: MutableSequence[int] = self._words[_BOARD // 8 :]  # type: ignore[assignment]  # as a sequence of numbers

    @staticmethod
    def create() -> int:
        """Make the file."""
        descriptor = os.memfd_create("allranks-journal")
        os.truncate(descriptor, _BYTES)
        return descriptor

    def clear(self, rank: int, label: int) -> None:
        """Begin a run; neither side reads or writes meanwhile."""
        if self._words[0] > _KEPT:
            self._map.madvise(mmap.MADV_REMOVE, _HEAD, _BYTES - _HEAD)
        self._words[0] = 0
        self.board[rank] = label

    def append(self, value: Any) -> None:
        """Add a record.

        Raises
        ------
        MemoryError
            If there is no room for it.
        """
        written = record(value)
        start = _HEAD + self._words[0]
        end = start + _LENGTH.size + len(written)
        if end > _BYTES:
            raise MemoryError(f"a run's results have no room in {_BYTES} bytes")
        _LENGTH.pack_into(self._view, start, len(written))
        self._view[start + _LENGTH.size : end] = written
        self._words[0] = end - _HEAD  # last: what is counted is there

    def progress(self, rank: int) -> tuple[int, int]:
        """Give what changes whenever the rank comes to something else."""
        return self._words[0], self.board[rank]

    def records(self) -> Iterator[Any]:
        """Give what was written.

        Raises
        ------
        Garbled
            At what is no record.
        """
        place, end = _HEAD, _HEAD + self._words[0]
        if end > _BYTES:
            raise Garbled("the journal is longer than its file")
        while place < end:
            (size,) = _LENGTH.unpack_from(self._view, place)
            place += _LENGTH.size
            if size > end - place:
                raise Garbled("a record is longer than the journal")
            yield read_record(bytes(self._view[place : place + size]))
            place += size

    def close(self) -> None:
        """Give the mapping back."""
        self.board.release()  # type: ignore[attr-defined]
        self._words.release()
        self._view.release()
        self._map.close()
