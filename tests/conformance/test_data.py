"""Data that cannot be right by accident: shifts, swaps and stale chunks are seen, and reductions are exact."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from allranks.conformance import data
from allranks.conformance.program import DTYPES, OPERATIONS


def _operands(dtype: str, operation: str, ranks: int, count: int = 64) -> list[data.Bits]:
    return [
        data.operand(seed=3, rank=r, step=5, count=count, dtype=dtype, operation=operation, rank_count=ranks)
        for r in range(ranks)
    ]


@pytest.mark.parametrize("ranks", [2, 7, 72])
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_order_of_ranks_gives_the_same_bits(dtype: str, operation: str, ranks: int) -> None:
    operands = _operands(dtype, operation, ranks)
    forward = data.reduced(operands, dtype, operation)
    backward = data.reduced(operands[::-1], dtype, operation)
    assert forward.tobytes() == backward.tobytes()


@pytest.mark.parametrize("operation", ["sum", "prod"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_results_are_what_float64_gives(dtype: str, operation: str) -> None:
    kind = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    operands = _operands(dtype, operation, 8)
    exact = np.stack([bits.view(kind).astype(np.float64) for bits in operands])
    wanted = exact.sum(axis=0) if operation == "sum" else exact.prod(axis=0)
    result = data.reduced(operands, dtype, operation).view(kind).astype(np.float64)
    assert np.array_equal(result, wanted)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_shift_a_swap_and_a_stale_chunk_are_seen(dtype: str) -> None:
    first, second = _operands(dtype, "sum", 2, count=32)
    stale = data.operand(seed=3, rank=0, step=4, count=32, dtype=dtype, operation="sum", rank_count=2)
    assert first.tobytes() != np.roll(first, 1).tobytes()
    assert first.tobytes() != second.tobytes()
    assert first.tobytes() != stale.tobytes()


def test_words_are_the_same_everywhere() -> None:
    assert data.random_words(1, 2, 3, 3).tolist() == data.random_words(1, 2, 3, 5).tolist()[:3]
    assert data.random_bytes(0, 0, 0, 5).hex() == data.random_words(0, 0, 0, 1).tobytes()[:5].hex()
