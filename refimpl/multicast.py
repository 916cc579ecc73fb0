"""Multicast groups: one object of all ranks, and the regions that are bound to it."""

from __future__ import annotations

from allranks._native import refimpl as _refimpl
from allranks.refimpl.types import DataType, Operation, check_names, data_type_number, operation_number


class Binding:
    """A region of every rank, bound at one offset of a group. Made by `MulticastGroup.bind`.

    Dropping it unbinds this rank's region, alone.
    """

    __slots__ = ("_native",)

    def __init__(self, native: _refimpl.SwitchChannel) -> None:
        self._native = native

    @property
    def address(self) -> int:
        """Multicast address of the region's first byte."""
        return self._native.address

    @property
    def offset_bytes(self) -> int:
        """Offset of the region's first byte in the multicast object; the same on all ranks."""
        return self._native.offset_bytes

    @property
    def size(self) -> int:
        """Size of the region in bytes."""
        return self._native.size

    @property
    def bound(self) -> bool:
        """Whether this rank's region is still bound."""
        return self._native.bound

    def store(self, offset: int, data: bytes, *, stream: int = 0) -> None:
        """Write bytes to every rank's region; done on return.

        Raises
        ------
        UsageError
            If the range is outside the region, or it is not bound any more.
        """
        self._native.store(offset, data, stream)

    def load_reduce(
        self, offset: int, count: int, data_type: DataType, operation: Operation, *, stream: int = 0
    ) -> bytes:
        """Give the reduction of every rank's elements.

        Parameters
        ----------
        offset : int
            Of the first element, in bytes; a multiple of the element's size.
        count : int
            Number of elements.
        data_type, operation : str
            A pair that ``multimem.ld_reduce`` has: no products, no types of 8 or 16 bits but the floats' sums.
        stream : int
            Handle of the stream.

        Raises
        ------
        UsageError
            If the pair does not exist, the range is outside the region, or it is not bound any more.
        """
        check_names(data_type, operation)
        return self._native.load_reduce(offset, count, data_type_number(data_type), operation_number(operation), stream)

    def unbind(self) -> None:
        """Take the region out of the object. Collective; ranks may name different bindings."""
        self._native.unbind()


class MulticastGroup:
    """One multicast object, mapped once. Made by `Communicator.open_multicast`.

    Dropping it gives this rank's side back, alone.
    """

    __slots__ = ("_native",)

    def __init__(self, native: _refimpl.MulticastGroup) -> None:
        self._native = native

    @property
    def capacity_bytes(self) -> int:
        """Bytes that can be bound: the size asked for, rounded up to the granularity."""
        return self._native.capacity_bytes

    @property
    def granularity_bytes(self) -> int:
        """What ranges of bindings are multiples of."""
        return self._native.granularity_bytes

    @property
    def is_open(self) -> bool:
        """Whether this rank's side is still there."""
        return self._native.is_open

    def bind(self, address: int, size: int) -> Binding:
        """Bind everybody's region at one agreed offset. Collective.

        Raises
        ------
        UsageError
            On every rank: if there is no room, sizes or places within the granularity differ, or some rank's memory is
            not of ``cuMemCreate`` on its own device. What was bound before still works.
        DriverError
            On every rank, if the driver refuses on one.
        """
        return Binding(self._native.bind(address, size))

    def close(self) -> None:
        """Unbind everything and give the object back. Collective; a second call does nothing."""
        self._native.close()
