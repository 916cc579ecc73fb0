"""Worlds: where a Program runs on a backend."""

from __future__ import annotations

import contextlib
import gc
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Protocol, Self

from allranks.conformance.plan import Planned
from allranks.conformance.program import Program
from allranks.conformance.trace import Trace


class World(Protocol):
    """Runs Programs, one after the other."""

    runs: int  # so far

    @property
    def deterministic(self) -> bool:
        """Whether the same Program gives the same Trace, byte for byte."""

    def run(self, program: Program, *, plan: list[Planned] | None = None) -> Trace:
        """Run a Program; `plan` is what `allranks.conformance.plan.planned` gives, for a caller that has it already."""

    def close(self) -> None:
        """End whatever the world consists of."""


class Closing(ABC):
    """What is closed at the end of a ``with``."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """End whatever it consists of."""


@contextlib.contextmanager
def few_collected() -> Iterator[None]:
    """Have Python look for garbage only among what is made from now on: that takes long where much was imported.

    Where the user has frozen objects that is left: unfreezing would let go of theirs, too.
    """
    frozen = gc.get_freeze_count()
    if not frozen:
        gc.collect()
        gc.freeze()
    try:
        yield
    finally:
        if not frozen:
            gc.unfreeze()


class Ahead(Closing):
    """A world whose ranks play in processes of their own: meanwhile its caller can draw the next Program."""

    @abstractmethod
    def begin(self, program: Program, *, plan: list[Planned] | None = None) -> None:
        """Give a Program to the ranks; the one before has to be at its end."""

    @abstractmethod
    def end(self) -> Trace:
        """Wait until the Program that has begun is over, and give what became of it."""

    def run(self, program: Program, *, plan: list[Planned] | None = None) -> Trace:
        """Run a Program; what it raises is what `begin` and `end` raise."""
        self.begin(program, plan=plan)
        return self.end()
