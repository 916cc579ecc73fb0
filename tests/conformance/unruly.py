"""Communicators that do what no communicator should: they block, spin, raise on one rank, or end the process."""

from __future__ import annotations

import ctypes
import itertools
import os
import re
import sys
import threading
from typing import Any, ClassVar

from allranks.conformance.backend import RankContext
from allranks.conformance.backends.plain import PlainBackend, PlainCommunicator
from allranks.conformance.narrowing import Narrowing
from allranks.errors import PeerLost, UsageError


class _Unruly(PlainCommunicator):
    """Misbehaves in the all_reduce of rank 1, and only where that is asked for at least two elements."""

    def all_reduce(self, send: int, receive: int, count: int, dtype: str, operation: str) -> None:
        if self.context.rank == 1 and count > 1:
            self.misbehave()
        super().all_reduce(send, receive, count, dtype, operation)

    def misbehave(self) -> None:
        raise NotImplementedError


class _Blocks(_Unruly):
    def misbehave(self) -> None:
        threading.Event().wait()


class _Spins(_Unruly):
    def misbehave(self) -> None:
        while True:
            pass


class _HoldsTheLock(_Unruly):
    def misbehave(self) -> None:
        re.match(r"(a+)+$", "a" * 64 + "b")  # in C for ever, with Python's lock held


class _Raises(_Unruly):
    def misbehave(self) -> None:
        raise LookupError("no such channel")


class _Leaves(_Unruly):
    def misbehave(self) -> None:
        sys.exit(3)


class _Exits(_Unruly):
    def misbehave(self) -> None:
        os._exit(7)


class _ExitsInC(_Unruly):
    def misbehave(self) -> None:
        ctypes.CDLL(None)._exit(9)


class _Crashes(_Unruly):
    def misbehave(self) -> None:
        ctypes.string_at(8)


class Blocks(PlainBackend):
    name = "blocks"
    communicator = _Blocks


class Spins(PlainBackend):
    name = "spins"
    communicator = _Spins


class HoldsTheLock(PlainBackend):
    name = "holds-the-lock"
    communicator = _HoldsTheLock


class Raises(PlainBackend):
    name = "raises"
    communicator = _Raises


class Leaves(PlainBackend):
    name = "leaves"
    communicator = _Leaves


class Exits(PlainBackend):
    name = "exits"
    communicator = _Exits


class ExitsInC(PlainBackend):
    name = "exits-in-c"
    communicator = _ExitsInC


class Crashes(PlainBackend):
    name = "crashes"
    communicator = _Crashes


class _CannotCount(PlainCommunicator):
    @property
    def rendezvous_count(self) -> int:
        raise LookupError("lost count")


class CannotCount(PlainBackend):
    """Says that it counts its rendezvous, and raises when it is asked."""

    name = "cannot-count"
    communicator = _CannotCount

    def capabilities(self, context: RankContext) -> frozenset[str]:
        return super().capabilities(context) | {"rendezvous_count"}


class RefusesToOpen(PlainBackend):
    """Raises in open, on rank 1 only."""

    name = "refuses-to-open"

    def open(self, context: RankContext) -> PlainCommunicator:
        if context.rank == 1:
            raise LookupError("no such device")
        return super().open(context)


class _Moody(PlainCommunicator):
    opened = itertools.count()

    def __init__(self, context: RankContext) -> None:
        super().__init__(context)
        self.refuses = context.rank == 1 and next(self.opened) % 2 == 1

    def all_reduce(self, send: int, receive: int, count: int, dtype: str, operation: str) -> None:
        self.check_open()
        if self.refuses:
            raise UsageError("not today")
        super().all_reduce(send, receive, count, dtype, operation)


class Moody(PlainBackend):
    """Refuses sums in every other run, on rank 1."""

    name = "moody"
    communicator = _Moody


class _MeetsAtTheEnd(PlainCommunicator):
    said: ClassVar[list[str]] = []

    def __init__(self, context: RankContext) -> None:
        super().__init__(context)
        self.cycle = self  # which nothing collects before the run is over

    def __del__(self) -> None:
        try:
            self.context.barrier("finaliser")
        except PeerLost as error:
            self.said.append(str(error))


class MeetsAtTheEnd(PlainBackend):
    """Meets the other ranks when a communicator is collected."""

    name = "meets-at-the-end"
    communicator = _MeetsAtTheEnd


class WithoutOpen:
    """Has a name and capabilities, and no way to open anything."""

    name = "without-open"

    def capabilities(self, context: RankContext) -> frozenset[str]:
        return frozenset()


class NeedsAnArgument(PlainBackend):
    """Cannot be made without an argument."""

    name = "needs-an-argument"

    def __init__(self, argument: Any) -> None:
        self.argument = argument


class Misspelt(PlainBackend):
    """Claims a capability that there is not."""

    name = "misspelt"

    def capabilities(self, context: RankContext) -> frozenset[str]:
        return super().capabilities(context) | {"allreduce"}


class _Refuses(PlainCommunicator):
    def all_reduce(self, send: int, receive: int, count: int, dtype: str, operation: str) -> None:
        raise LookupError(f"no kernel for {operation} of {dtype}")


class Refuses(PlainBackend):
    """Gathers, and refuses every sum on every rank."""

    name = "refuses"
    communicator = _Refuses


class _RefusesProducts(PlainCommunicator):
    def all_reduce(self, send: int, receive: int, count: int, dtype: str, operation: str) -> None:
        if operation == "prod":
            raise LookupError(f"no kernel for {operation}")
        super().all_reduce(send, receive, count, dtype, operation)


class RefusesProducts(PlainBackend):
    """Has no products, and does not say so."""

    name = "refuses-products"
    communicator = _RefusesProducts


class SaysNoProducts(RefusesProducts):
    """Has no products, and says so."""

    name = "says-no-products"
    narrowings = (Narrowing(requirement="COLL-1", reason="has no products", source="its manual", operations=("prod",)),)
