"""Conformance of GPU communicators: Programs, Worlds, Traces, checks.

Data flows one way: a `Program` (plain data) is run by a World on a backend, which gives a `Trace` (plain data); checks
are pure functions of the two; reports are made of what they say. `run_conformance` does all of it for a backend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allranks.conformance.running import ConformanceError, run_conformance

__all__ = ["ConformanceError", "run_conformance"]


def __getattr__(name: str) -> Any:
    # Not before it is asked for: pytest imports this package to find its plugin, in every run.
    if name in __all__:
        from allranks.conformance import running

        return getattr(running, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
