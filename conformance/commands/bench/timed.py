"""Where the time of a rank goes: any backend, with a watch on what is called of it.

``allranks.conformance.commands.bench.timed:torch`` is backend `torch`, timed. Each rank adds up, in a file that
`TIMES` names, for how long it was in ``open``, in ``close``, and in all else that a communicator and its channels do.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from allranks.conformance.backend import Backend, MemorySpace, RankContext, load_backend

TIMES: Final = "ALLRANKS_BENCH_TIMES"
_MOST_RANKS: Final = 1024
_PARTS: Final = ("open", "communicate", "close")
_ROW: Final = struct.Struct("<3d")


class Times:
    """Seconds by rank and part, in a file that all ranks map."""

    def __init__(self, path: str) -> None:
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), _MOST_RANKS * _ROW.size)

    def add(self, rank: int, part: str, seconds: float) -> None:
        """Add to one rank's; nobody else does."""
        row = list(_ROW.unpack_from(self._map, rank * _ROW.size))
        row[_PARTS.index(part)] += seconds
        _ROW.pack_into(self._map, rank * _ROW.size, *row)

    def mean(self, rank_count: int) -> dict[str, float]:
        """Give the seconds of each part, on average over the ranks."""
        rows = [_ROW.unpack_from(self._map, rank * _ROW.size) for rank in range(rank_count)]
        return {part: sum(column) / rank_count for part, column in zip(_PARTS, zip(*rows, strict=True), strict=True)}

    def close(self) -> None:
        """Give the mapping back."""
        self._map.close()


@contextmanager
def watched(backend: str) -> Iterator[tuple[str, Times]]:
    """Give the name by which ranks load a backend timed, and what they add to."""
    with tempfile.NamedTemporaryFile(prefix="allranks-times-") as file:
        file.truncate(_MOST_RANKS * _ROW.size)
        before = os.environ.get(TIMES)
        os.environ[TIMES] = file.name
        times = Times(file.name)
        try:
            yield f"{__name__}:{backend}", times
        finally:
            times.close()
            if before is None:
                del os.environ[TIMES]
            else:
                os.environ[TIMES] = before


class TimedBackend:
    """A backend, timed.

    Parameters
    ----------
    inner : Backend
        The communicator as it is.
    """

    def __init__(self, inner: Backend) -> None:
        self.inner = inner
        self.name = inner.name
        self.memory_spaces: tuple[MemorySpace, ...] = getattr(inner, "memory_spaces", ("device",))
        self.world: str = getattr(inner, "world", "processes")
        self.launcher: str = getattr(inner, "launcher", "mpiexec")
        self.narrowings: tuple[Any, ...] = getattr(inner, "narrowings", ())
        self.driver: str = getattr(inner, "driver", "sim")
        self.prepare: Callable[[], None] = getattr(inner, "prepare", lambda: None)
        self.versions: Callable[[], dict[str, str]] = getattr(inner, "versions", dict)
        self._times: Times | None = None

    def capabilities(self, context: RankContext) -> frozenset[str]:
        """Say what there is."""
        return self.inner.capabilities(context)

    def open(self, context: RankContext) -> Any:
        """Give one rank's side."""
        times = self._times = self._times or Times(os.environ[TIMES])
        rank = context.rank

        def add(part: str, seconds: float) -> None:
            times.add(rank, part, seconds)

        return _Timed(_timed(self.inner.open, "open", add)(context), add, closes="close")


class _Timed:
    """A communicator, or its channels: what is called of it is timed, and so is what that gives."""

    def __init__(self, inner: Any, add: Callable[[str, float], None], *, closes: str = "communicate") -> None:
        self._inner = inner
        self._add = add
        self._closes = closes

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found
        call = _timed(found, self._closes if name == "close" else "communicate", self._add)

        def called(*given: Any) -> Any:
            made = call(*given)
            return made if made is None or isinstance(made, int | bytes) else _Timed(made, self._add)

        return called


def _timed(call: Callable[..., Any], part: str, add: Callable[[str, float], None]) -> Callable[..., Any]:
    def timed(*given: Any) -> Any:
        began = time.perf_counter()
        try:
            return call(*given)
        finally:
            add(part, time.perf_counter() - began)

    return timed


def __getattr__(name: str) -> TimedBackend:
    """Give the backend of that name, timed: a backend is loaded as an attribute of a module."""
    if name.startswith("__"):
        raise AttributeError(name)
    return TimedBackend(load_backend(name))
