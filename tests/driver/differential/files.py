"""Sequences and transcripts in files: one JSON object a line, compressed if the name ends in ``.gz``."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Read the objects of a file."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def write_lines(path: Path, lines: Iterable[dict[str, Any]]) -> int:
    """Write objects to a file, the same bytes for the same objects; give how many."""
    count = 0
    with path.open("wb") as raw:
        file = gzip.GzipFile("", "wb", 9, raw, 0) if path.suffix == ".gz" else raw
        try:
            for line in lines:
                file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
                count += 1
        finally:
            if file is not raw:
                file.close()
    return count
