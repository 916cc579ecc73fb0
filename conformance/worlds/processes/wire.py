"""What the supervisor and its workers send each other: frames on a stream, and records of plain data.

Both sides check what they read. A worker runs somebody else's code, so what comes from it may be anything: nothing of
it is ever executed or unpickled here, and what is no frame, or no record, is `Garbled`.
"""

from __future__ import annotations

import enum
import json
import socket
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

_MAGIC: Final = 0x4B4E5241
_HEADER: Final = struct.Struct("<IIIIQ")  # magic, run, kind, bytes of the text, bytes of the blob
_MOST_TEXT: Final = 1 << 28
_MOST_BLOB: Final = 1 << 32
_RECORD: Final = struct.Struct("<II")  # bytes of the text, check sum of all that follows
_BYTES: Final = "$bytes"


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


_KINDS: Final = frozenset(Kind)


@dataclass(frozen=True, slots=True)
class Frame:
    """One message: what it is, which run it belongs to, a value, and bytes."""

    kind: Kind
    run: int
    value: Any = None
    blob: bytes = b""

    def packed(self) -> bytes:
        """Give the bytes to send."""
        text = b"" if self.value is None else json.dumps(self.value).encode()
        return b"".join((_HEADER.pack(_MAGIC, self.run, self.kind, len(text), len(self.blob)), text, self.blob))


class Inbox:
    """Makes frames of what comes along a stream."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Take in what was read, and give the frames that are complete with it.

        Raises
        ------
        Garbled
            If it is none.
        """
        held = self._held
        held += data
        while len(held) >= _HEADER.size:
            magic, run, kind, text, blob = _HEADER.unpack_from(held)
            if magic != _MAGIC or kind not in _KINDS or text > _MOST_TEXT or blob > _MOST_BLOB:
                raise Garbled(f"{bytes(held[:16]).hex()} is no message")
            end = _HEADER.size + text + blob
            if len(held) < end:
                return
            middle = _HEADER.size + text
            value = _parsed(bytes(held[_HEADER.size : middle])) if text else None
            frame = Frame(Kind(kind), run, value, bytes(held[middle:end]))
            del held[:end]
            yield frame


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Garbled(f"a message cannot be read: {error}") from None


def receive(stream: socket.socket, inbox: Inbox, waiting: list[Frame]) -> Frame:
    """Wait for the next frame; EOFError at the end of the stream."""
    while not waiting:
        data = stream.recv(1 << 18)
        if not data:
            raise EOFError
        waiting.extend(inbox.feed(data))
    return waiting.pop(0)


def record(value: Any) -> bytes:
    """Write a value of dicts, lists, tuples, texts, numbers and bytes; tuples come back as lists."""
    blobs: list[bytes] = []
    offset = 0

    def aside(found: object) -> int | dict[str, tuple[int, int]]:
        nonlocal offset
        if isinstance(found, np.integer):
            return int(found)
        if not isinstance(found, bytes | bytearray | memoryview):
            raise TypeError(f"value={found!r}: a record holds plain data only")
        blobs.append(bytes(found))
        offset += len(blobs[-1])
        return {_BYTES: (offset - len(blobs[-1]), len(blobs[-1]))}

    text = json.dumps(value, default=aside).encode()
    body = b"".join((text, *blobs))
    return _RECORD.pack(len(text), zlib.crc32(body)) + body


def read_record(data: bytes) -> Any:
    """Give the value of a record.

    Raises
    ------
    Garbled
        If it is none.
    """
    if len(data) < _RECORD.size:
        raise Garbled("a record is cut off")
    size, check = _RECORD.unpack_from(data)
    body = data[_RECORD.size :]
    if size > len(body) or zlib.crc32(body) != check:
        raise Garbled("a record is damaged")

    def put_back(found: dict[str, Any]) -> Any:
        place = found.get(_BYTES)
        if place is None:
            return found
        start, length = size + place[0], place[1]
        return body[start : start + length]

    try:
        return json.loads(body[:size], object_hook=put_back)
    except (ValueError, RecursionError, TypeError) as error:
        raise Garbled(f"a record cannot be read: {error}") from None
