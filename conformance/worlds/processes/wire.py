"""What the supervisor and its workers send each other: frames on a stream, and records of plain data.

Plain data is what `marshal` writes: numbers, texts, bytes, lists, tuples, dicts. It is fast, and it executes nothing;
but it is not made for data that was damaged. A worker runs somebody else's code, so what comes from it may be anything.
So all of it carries a check sum, nothing is read without it, and what does not fit is `Garbled`.
"""

from __future__ import annotations

import enum
import marshal
import socket
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

_MAGIC: Final = 0x4B4E5241
_HEADER: Final = struct.Struct("<IIII")  # magic, run, kind, bytes of the record
_RECORD: Final = struct.Struct("<I")  # check sum of all that follows
_MOST: Final = 1 << 31
_READ: Final = 1 << 18


class Garbled(Exception):  # noqa: N818 -- says what was read
    """What was read follows no rule."""


class Kind(enum.IntEnum):
    """What a frame is."""

    RUN = 1  # to the worker: do this Program
    MEET = 2  # from the worker: it waits for other ranks
    MET = 3  # to the worker: all are there, with their values
    LATE = 4  # to the worker: some did not come in time
    DONE = 5  # from the worker: it is through
    FAILED = 6  # from the worker: something of this package went wrong
    END = 7  # to the worker: there is no more to do


_KINDS: Final = {int(kind): kind for kind in Kind}


def record(value: Any) -> bytes:
    """Write plain data. Numbers of NumPy are not: they would come back as their bytes.

    Raises
    ------
    TypeError
        If it is not plain.
    """
    try:
        body = marshal.dumps(value)
    except ValueError as error:
        raise TypeError(f"value={value!r}: a record holds plain data only ({error})") from None
    return _RECORD.pack(zlib.crc32(body)) + body


def read_record(data: bytes) -> Any:
    """Give the value of a record.

    Raises
    ------
    Garbled
        If it is none.
    """
    body = data[_RECORD.size :]
    if len(data) < _RECORD.size or _RECORD.unpack_from(data)[0] != zlib.crc32(body):
        raise Garbled("a record is damaged")
    try:
        return marshal.loads(body)
    except (ValueError, EOFError, TypeError) as error:
        raise Garbled(f"a record cannot be read: {error}") from None


@dataclass(frozen=True, slots=True)
class Frame:
    """One message: what it is, which run it belongs to, and plain data."""

    kind: Kind
    run: int
    value: Any = None

    def packed(self) -> bytes:
        """Give the bytes to send."""
        body = record(self.value)
        return _HEADER.pack(_MAGIC, self.run, self.kind, len(body)) + body


class Inbox:
    """Makes frames of what comes along a stream."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Take in what was read, and give the frames that are complete with it.

        Raises
        ------
        Garbled
            If it is none.
        """
        held = self._held = self._held + data if self._held else data
        place = 0
        while len(held) - place >= _HEADER.size:
            magic, run, number, size = _HEADER.unpack_from(held, place)
            kind = _KINDS.get(number)
            if magic != _MAGIC or kind is None or size > _MOST:
                raise Garbled(f"{held[place : place + 16]!r} is no message")
            start = place + _HEADER.size
            if len(held) - start < size:
                break
            place = start + size
            self._held = held[place:]
            yield Frame(kind, run, read_record(held[start:place]))


def receive(stream: socket.socket, inbox: Inbox, waiting: list[Frame]) -> Frame:
    """Wait for the next frame; EOFError at the end of the stream."""
    while not waiting:
        data = stream.recv(_READ)
        if not data:
            raise EOFError
        waiting.extend(inbox.feed(data))
    return waiting.pop(0)
