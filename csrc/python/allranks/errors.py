"""Failures, split by what the caller can do about them: the caller's own, and the world's."""

from __future__ import annotations


class UsageError(ValueError):
    """A wrong argument, option or file; the message names it, its value and the rule that it breaks.

    Commands end with exit code 2.

    Parameters
    ----------
    message : str
        What is wrong.
    rank : int, optional
        The rank on which it was found, when it is a collective step's.
    """

    def __init__(self, message: str, *, rank: int | None = None) -> None:
        super().__init__(message)
        self.rank = rank


class WorldError(RuntimeError):
    """What the caller did not cause; `rank` is the rank on which it happened (None: no rank in particular)."""

    def __init__(self, message: str, *, rank: int | None = None) -> None:
        super().__init__(message)
        self.rank = rank


class DriverError(WorldError):
    """A CUDA driver call did not return ``CUDA_SUCCESS``.

    Parameters
    ----------
    message : str
        What happened.
    call, code, name : str, int, str
        The entry point, its ``CUresult`` and that code's name: ``"cuMemMap"``, 1, ``"CUDA_ERROR_INVALID_VALUE"``.
    rank : int, optional
        The rank on which it happened.
    """

    def __init__(self, message: str, *, call: str, code: int, name: str, rank: int | None = None) -> None:
        super().__init__(message, rank=rank)
        self.call = call
        self.code = code
        self.name = name


class PeerLost(WorldError):  # noqa: N818 -- says which thing failed, as the C++ type of that name does
    """Some ranks are gone or have given up; `ranks` says which."""

    def __init__(self, message: str, *, ranks: tuple[int, ...], rank: int | None = None) -> None:
        super().__init__(message, rank=rank)
        self.ranks = ranks


class Timeout(PeerLost):
    """Some ranks did not come before the deadline; `ranks` says which."""


class Stalled(PeerLost):
    """Nothing can ever run again, as the simulated driver's turnstile knows at once; `ranks` says who is missing."""
