"""The corpus: communicators that are wrong on purpose, each with one public bug put back, and unusual right ones.

A mutant is written from the report before the check that finds it is run, and passes the plain sweep: fresh, equal
buffers, nothing freed, no fault. So none is caught for being broken outright.
"""

from __future__ import annotations

from typing import Final

from allranks.conformance.corpus import (
    cache_mutants,
    group_mutants,
    reference_mutants,
    small_mutants,
    teardown_mutants,
    variants,
)
from allranks.conformance.corpus.specimen import Specimen

MUTANTS: Final[dict[str, Specimen]] = {
    specimen.name: specimen
    for specimens in (
        reference_mutants.SPECIMENS,
        small_mutants.SPECIMENS,
        cache_mutants.SPECIMENS,
        group_mutants.SPECIMENS,
        teardown_mutants.SPECIMENS,
    )
    for specimen in specimens
}
VARIANTS: Final[dict[str, Specimen]] = {specimen.name: specimen for specimen in variants.SPECIMENS}
