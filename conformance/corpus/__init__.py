"""The corpus: communicators that are wrong on purpose, each with one public bug put back, and unusual right ones.

A mutant is written from the report before the check that finds it is run, and passes the plain sweep: fresh, equal
buffers, nothing freed, no fault. So none is caught for being broken outright.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from allranks.conformance.backend import Backend
from allranks.conformance.corpus import reference_mutants, small_mutants


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
    """

    name: str
    kind: str
    origins: tuple[str, ...]
    requirement: str
    make: Callable[[], Backend]


MUTANTS: Final[dict[str, Specimen]] = {
    str(specimen["name"]): Specimen(**specimen)  # type: ignore[arg-type]
    for specimen in (*reference_mutants.SPECIMENS, *small_mutants.SPECIMENS)
}
VARIANTS: Final[dict[str, Specimen]] = {}
