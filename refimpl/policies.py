"""Decisions of the communicator that can be taken otherwise, for tests that put a known mistake back.

The defaults are right, and written in C++. A subclass that overrides a method replaces that decision alone.

`ChannelCachePolicy`
    ``key(region) -> bytes`` is what a region is recognised by: by default its ordered segments, each by (allocation
    handle or BUFFER_ID, offset, size). ``decide(mine, exchange) -> list[int]`` gives for each operand of a step the
    slots of the cache (a bit each) that it may use; ``mine`` are those that hold the operand on this rank, and
    ``exchange(masks)`` is a collective step that gives every rank's masks. By default: those that every rank has.
`MulticastPolicy`
    ``offset_of(bound, size, capacity) -> int | None`` places a new binding, given the ``(begin, end)`` ranges that any
    rank has bound; None is no room. ``address_of(base, offset) -> int`` is where the binding is reached.
`ReleasePolicy`
    ``gives_back(resource) -> bool`` says whether an owner that ends gives its resource (a `Resource`) back.
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
