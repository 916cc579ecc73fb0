"""What the benchmarks share: how Programs are drawn and timed, and how figures are shown."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from allranks import __version__
from allranks.conformance.corpus import MUTANTS
from allranks.conformance.draws import draw_values
from allranks.errors import UsageError


def environment() -> dict[str, Any]:
    """Give what figures depend on beside the command."""
    return {
        "allranks": __version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processors": os.cpu_count(),
    }


def emit(result: dict[str, Any], as_json: bool) -> None:
    """Write figures to standard output: as JSON, or a line for each row."""
    if as_json:
        sys.stdout.write(json.dumps({**environment(), **result}, indent=1) + "\n")
        return
    for name, value in result.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            for row in value:
                sys.stdout.write("  ".join(f"{key}={item}" for key, item in row.items()) + "\n")
        else:
            sys.stdout.write(f"{name}: {value}\n")


def drawn_in(strategy: st.SearchStrategy[Any], count: int, use: Callable[[Any], None], seed: int = 0) -> float:
    """Draw `count` values; gives the seconds of processor time for drawing and using them."""
    started = time.process_time()
    draw_values(strategy, count, use, seed=seed)
    return time.process_time() - started


def check_mutants(names: list[str]) -> None:
    """Check the names of mutants.

    Raises
    ------
    allranks.errors.UsageError
        If there is no mutant of such a name.
    """
    for name in names:
        if name not in MUTANTS:
            raise UsageError(f"mutant={name!r}: one of {', '.join(sorted(MUTANTS))}")
