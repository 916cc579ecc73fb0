"""Data types and operations by name."""

from __future__ import annotations

from typing import Final, Literal, get_args

from allranks.errors import UsageError

DataType = Literal[
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
]
Operation = Literal["sum", "prod", "min", "max"]

DATA_TYPES: Final[tuple[str, ...]] = get_args(DataType)
OPERATIONS: Final[tuple[str, ...]] = get_args(Operation)

# A number that no type or operation has: the native side refuses it on every rank, as any other bad argument.
_UNKNOWN: Final = 2**32 - 1
_DATA_TYPE_NUMBERS: Final = {name: number for number, name in enumerate(DATA_TYPES)}
_OPERATION_NUMBERS: Final = {name: number for number, name in enumerate(OPERATIONS)}


def data_type_number(name: str) -> int:
    """Give the number of a data type; of one that does not exist, a number that every rank will refuse."""
    return _DATA_TYPE_NUMBERS.get(name, _UNKNOWN)


def operation_number(name: str) -> int:
    """Give the number of an operation; of one that does not exist, a number that every rank will refuse."""
    return _OPERATION_NUMBERS.get(name, _UNKNOWN)


def check_names(data_type: str, operation: str) -> None:
    """Check a type and an operation where no other rank takes part.

    Raises
    ------
    UsageError
        If one does not exist.
    """
    if data_type not in _DATA_TYPE_NUMBERS:
        raise UsageError(f"data_type={data_type!r}: known are {', '.join(DATA_TYPES)}")
    if operation not in _OPERATION_NUMBERS:
        raise UsageError(f"operation={operation!r}: known are {', '.join(OPERATIONS)}")
