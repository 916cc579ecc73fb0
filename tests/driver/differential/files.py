"""Sequences and transcripts in files: one JSON object a line, compressed if the name ends in ``.gz``."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Read the objects of a file. One whose writer was ended has no last line, and is read as far as it goes."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        try:
            for line in file:
                if not line.endswith("\n"):
                    return
                yield json.loads(line)
        except (EOFError, zlib.error):
            return


class Lines:
    """A file that objects are written to, each at once, so that they are there whatever ends the program.

    The file takes the place of an older one only once what is `kept` of that is in it.
    """

    def __init__(self, path: Path, kept: Iterable[dict[str, Any]] = ()) -> None:
        unfinished = path.with_name(f"{path.name}.new")
        self._raw = unfinished.open("wb")
        self._file: IO[bytes] | gzip.GzipFile = self._raw
        if path.suffix == ".gz":
            self._file = gzip.GzipFile("", "wb", 9, self._raw, 0)
        self._put(kept)
        os.replace(unfinished, path)

    def _put(self, lines: Iterable[dict[str, Any]]) -> None:
        for line in lines:
            self._file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        self._file.flush()
        self._raw.flush()

    def write(self, line: dict[str, Any]) -> None:
        """Write one object."""
        self._put((line,))

    def __enter__(self) -> Lines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._raw.close()


def write_lines(path: Path, lines: Iterable[dict[str, Any]]) -> None:
    """Write objects to a file, the same bytes for the same objects."""
    with Lines(path, lines):
        pass
