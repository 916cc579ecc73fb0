"""What is known of a communicator of the corpus."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from allranks.conformance.backend import Backend


@dataclass(frozen=True, slots=True, kw_only=True)
class Specimen:
    """A communicator of the corpus.

    Parameters
    ----------
    name : str
        What ``--backend`` calls it.
    kind : str
        Kind of fault, A to L; empty for a right one.
    origins : tuple of str
        Public reports, as ``owner/repo#number``.
    requirement : str
        What it breaks; empty for a right one.
    make : callable
        Gives a new backend.
    machine : str
        Simulated machine that it is meant for.
    """

    name: str
    kind: str
    origins: tuple[str, ...]
    requirement: str
    make: Callable[[], Backend]
    machine: str = "h100"
