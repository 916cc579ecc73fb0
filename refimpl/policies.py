"""Decisions of the communicator that can be taken otherwise, for tests that put a known mistake back.

The defaults are right, and written in C++. A subclass that overrides a method replaces that decision alone.
"""

from __future__ import annotations

from typing import Literal

from allranks._native.refimpl import (
    ChannelCachePolicy,
    MulticastPolicy,
    RegionIdentity,
    ReleasePolicy,
    SegmentIdentity,
)

Resource = Literal[
    "physical_memory",
    "reservation",
    "mapping",
    "imported_handle",
    "retained_handle",
    "multicast_object",
    "multicast_binding",
    "descriptor",
    "event",
    "module",
    "context",
]

__all__ = [
    "ChannelCachePolicy",
    "MulticastPolicy",
    "RegionIdentity",
    "ReleasePolicy",
    "Resource",
    "SegmentIdentity",
]
