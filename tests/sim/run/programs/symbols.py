"""Which functions a shared library exports."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

_DYNSYM: Final = 11
_FUNCTION: Final = 2


def exported(path: str | Path, prefix: str) -> list[str]:
    """Give the names of its functions that begin with `prefix`, from the table of dynamic symbols."""
    data = Path(path).read_bytes()
    (table,) = struct.unpack_from("<Q", data, 40)
    size_each, count = struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * size_each) for i in range(count)]
    names = []
    for _, kind, _, _, offset, size, link, _, _, entry in sections:
        if kind != _DYNSYM:
            continue
        texts = sections[link][4]
        for position in range(offset, offset + size, entry):
            name, info, _, section = struct.unpack_from("<IBBH", data, position)
            text = data[texts + name : data.index(b"\0", texts + name)].decode()
            if section != 0 and info & 15 == _FUNCTION and text.startswith(prefix):
                names.append(text)
    return sorted(names)
