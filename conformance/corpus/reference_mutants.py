"""Mutants of the reference communicator: its public policies, replaced."""

from __future__ import annotations

from typing import Final

SPECIMENS: Final[tuple[dict[str, object], ...]] = ()
