"""
Native parts of allranks.
"""

from __future__ import annotations
from . import sim
from . import driver
from . import refimpl

__all__: list[str] = ["driver", "refimpl", "sim"]
