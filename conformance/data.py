"""Data that cannot be right by accident, and what the definitions make of it.

Every element depends on (seed, rank, step, position). Values are chosen so that the result of a reduction over the
ranks is exact in the dtype whatever the order, so results are compared bit for bit: sums of small integers, products
in which one rank brings a value and the others signs, minima and maxima of anything. Integers use their whole range,
wrap-around included. The chance that a shifted or stale run of k elements looks right falls with the k-th power of the
number of values (at least 7, at 72 ranks in bfloat16).
"""

from __future__ import annotations

import functools
from typing import Any, Final

import numpy as np
import numpy.typing as npt

ITEM_BYTES: Final[dict[str, int]] = {
    "int8": 1,
    "uint8": 1,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "uint64": 8,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
}

# Integers up to this are exact.
_EXACT: Final = {"float16": 2**11, "bfloat16": 2**8, "float32": 2**24, "float64": 2**53}

Bits = npt.NDArray[Any]

_WORD: Final = 0xFFFF_FFFF_FFFF_FFFF
_REMEMBERED_BYTES: Final = 1 << 15  # larger ones are made again each time


def _mix(value: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014)."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def _mix_one(value: int) -> int:
    """The same for one word; an array of one costs ten times as much."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _WORD
    return value ^ (value >> 31)


def random_words(seed: int, rank: int, step: int, count: int) -> npt.NDArray[np.uint64]:
    """Give `count` words that depend on all arguments and the position."""
    start = _mix_one((seed * 1_000_003 + rank * 8191 + step * 131_071 + 1) & _WORD)
    return _mix(np.arange(count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(start))


def random_bytes(seed: int, rank: int, step: int, size: int) -> bytes:
    """Give `size` bytes that depend on all arguments and the position."""
    return (_remembered_bytes if size <= _REMEMBERED_BYTES else _fresh_bytes)(seed, rank, step, size)


def _fresh_bytes(seed: int, rank: int, step: int, size: int) -> bytes:
    return random_words(seed, rank, step, (size + 7) // 8).tobytes()[:size]


# A rank brings its data, and a check wants the same again.
_remembered_bytes = functools.lru_cache(maxsize=1024)(_fresh_bytes)


def _to_bits(values: npt.NDArray[Any], dtype: str) -> Bits:
    """Store values that the dtype holds exactly; bfloat16 is the upper half of a float32."""
    if dtype == "bfloat16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(dtype)


def _from_bits(bits: Bits, dtype: str) -> npt.NDArray[Any]:
    if dtype == "bfloat16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    return bits


def operand(*, seed: int, rank: int, step: int, count: int, dtype: str, operation: str, rank_count: int) -> Bits:
    """Give what a rank contributes to a reduction, as an array that holds the dtype's bits.

    Parameters
    ----------
    seed, rank, step : int
        What the values depend on.
    count : int
        Elements.
    dtype, operation : str
        What they will be reduced as and by.
    rank_count : int
        Over how many ranks.

    Returns
    -------
    array
        Read only: it may be the one that another caller has.
    """
    make = _remembered_operand if count * ITEM_BYTES[dtype] <= _REMEMBERED_BYTES else _fresh_operand
    return make(seed, rank, step, count, dtype, operation, rank_count)


def _fresh_operand(seed: int, rank: int, step: int, count: int, dtype: str, operation: str, rank_count: int) -> Bits:
    bits = _operand_bits(seed, rank, step, count, dtype, operation, rank_count)
    bits.flags.writeable = False
    return bits


_remembered_operand = functools.lru_cache(maxsize=512)(_fresh_operand)


def _operand_bits(seed: int, rank: int, step: int, count: int, dtype: str, operation: str, rank_count: int) -> Bits:
    words = random_words(seed, rank, step, count)
    if dtype not in _EXACT:
        return words.astype(dtype)
    limit = max(3, _EXACT[dtype] // (2 * rank_count))
    values = (words % np.uint64(2 * limit + 1)).astype(np.int64) - limit
    if operation == "prod":
        positions = np.arange(count)
        signs = np.where(words >> np.uint64(63), 1, -1)
        values = np.where(positions % rank_count == rank, values, signs)
    return _to_bits(values, dtype)


def reduced(operands: list[Bits], dtype: str, operation: str) -> Bits:
    """Give the reduction of the ranks' contributions: the definition, in order of ranks."""
    values = [_from_bits(bits, dtype) for bits in operands]
    combine = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}[operation]
    result = values[0]
    with np.errstate(over="ignore"):
        for value in values[1:]:
            result = combine(result, value)
    # A product that is zero may have either sign, by who multiplied last; all orders agree on the sign here.
    return _to_bits(result, dtype)
