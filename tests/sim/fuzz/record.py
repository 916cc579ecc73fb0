"""What a process does, in memory that outlives it: its last calls, and how often each function was called."""

from __future__ import annotations

import mmap
import struct
from typing import Final

LAST: Final = 12
TEXT_BYTES: Final = 600
COUNT: Final = struct.Struct("<Q")
PAIR: Final = struct.Struct("<II")


class Record:
    """Written by one process, read by the one that forked it."""

    def __init__(self, functions: int) -> None:
        self._counts = 2 * COUNT.size + LAST * TEXT_BYTES
        self._map = mmap.mmap(-1, self._counts + functions * PAIR.size)

    def clear(self) -> None:
        """Forget everything."""
        self._map[:] = bytes(len(self._map))

    @property
    def calls(self) -> int:
        """How many calls were begun."""
        return int(COUNT.unpack_from(self._map)[0])

    @property
    def in_call(self) -> bool:
        """Whether the last call has not answered yet."""
        return self.calls != int(COUNT.unpack_from(self._map, COUNT.size)[0])

    def begin(self, function: int, text: str) -> None:
        """A call begins."""
        number = self.calls
        line = f"{number}: {text}".encode()[:TEXT_BYTES].ljust(TEXT_BYTES, b"\0")
        at = 2 * COUNT.size + number % LAST * TEXT_BYTES
        self._map[at : at + TEXT_BYTES] = line
        COUNT.pack_into(self._map, 0, number + 1)
        called, succeeded = self.counts(function)
        PAIR.pack_into(self._map, self._counts + function * PAIR.size, called + 1, succeeded)

    def end(self, function: int, code: int) -> None:
        """The call that was begun last has answered."""
        at = 2 * COUNT.size + (self.calls - 1) % LAST * TEXT_BYTES
        line = self._map[at : at + TEXT_BYTES].rstrip(b"\0")[: TEXT_BYTES - 16] + f" -> {code}".encode()
        self._map[at : at + TEXT_BYTES] = line.ljust(TEXT_BYTES, b"\0")
        COUNT.pack_into(self._map, COUNT.size, self.calls)
        if code == 0:
            called, succeeded = self.counts(function)
            PAIR.pack_into(self._map, self._counts + function * PAIR.size, called, succeeded + 1)

    def counts(self, function: int) -> tuple[int, int]:
        """How often a function was called, and how often it succeeded."""
        called, succeeded = PAIR.unpack_from(self._map, self._counts + function * PAIR.size)
        return called, succeeded

    def lines(self) -> list[str]:
        """Give the last calls, the last one at the end."""
        calls = self.calls
        found = []
        for number in range(max(0, calls - LAST), calls):
            at = 2 * COUNT.size + number % LAST * TEXT_BYTES
            found.append(self._map[at : at + TEXT_BYTES].rstrip(b"\0").decode(errors="replace"))
        return found
