"""Margins of what steps touch: where a world has no log of writes, they show whether something was written beside it.

New memory is zero in host memory, so whatever no step has any business with is zero at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from allranks.conformance import program as p
from allranks.conformance.plan import Planned

_MARGIN_BYTES: Final = 4096

Ranges = dict[tuple[int, int], list[tuple[int, int]]]


def with_margins(ranges: Ranges, plan: list[Planned]) -> Ranges:
    """Give the ranges (offset, size) by (rank, buffer), and beside each a margin, as ranges of their own.

    Buffers that no step touches have margins at both ends.
    """
    wider: Ranges = {}
    for step in plan:
        if step.applies and isinstance(step.step, p.Allocate):
            for rank in step.ranks:
                part = step.parts[rank]
                assert part is not None
                touched = ranges.get((rank, part.buffer), [])
                wider[rank, part.buffer] = [*touched, *_margins(touched, part.size_bytes)]
    return wider


def _margins(touched: list[tuple[int, int]], size_bytes: int) -> Iterator[tuple[int, int]]:
    start = 0
    for offset, size in [*sorted(touched), (size_bytes, 0)]:
        gap = offset - start
        if gap > 2 * _MARGIN_BYTES:
            yield start, _MARGIN_BYTES
            yield offset - _MARGIN_BYTES, _MARGIN_BYTES
        elif gap > 0:
            yield start, gap
        start = offset + size
