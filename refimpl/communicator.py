"""The communicator of one rank."""

from __future__ import annotations

from allranks._native import refimpl as _refimpl
from allranks.driver import Driver
from allranks.refimpl.bootstrap import Bootstrap
from allranks.refimpl.channels import Channels
from allranks.refimpl.multicast import MulticastGroup
from allranks.refimpl.options import Options
from allranks.refimpl.types import DataType, Operation, data_type_number, operation_number


class Communicator:
    """One rank's end of a group of ranks. Opening is collective.

    Collective methods succeed on every rank or raise on every rank: `UsageError` for a wrong argument or arguments that
    differ, `DriverError` for a driver call that failed, both naming the rank at fault, with the communicator as usable
    as before; `Timeout`, `PeerLost` and `Stalled` for ranks that did not come, with the communicator broken on all.

    Parameters
    ----------
    bootstrap : Bootstrap
        This rank's end; the communicator leaves it when it closes.
    driver : Driver
        The driver of this rank.
    device : int
        Index of this rank's device. Its primary context is retained.
    options : Options, optional
        Equal on all ranks.
    """

    __slots__ = ("_native", "options")

    def __init__(self, *, bootstrap: Bootstrap, driver: Driver, device: int, options: Options | None = None) -> None:
        self.options = options or Options()
        self._native = _refimpl.Communicator(bootstrap.native, driver.native, device, self.options.native())

    @property
    def rank(self) -> int:
        """Rank of this end."""
        return self._native.rank

    @property
    def rank_count(self) -> int:
        """Number of ranks."""
        return self._native.rank_count

    @property
    def capabilities(self) -> frozenset[str]:
        """What it can: ``"channels"``, ``"all_reduce"``, ``"all_gather"``, and ``"multicast"`` if every device can."""
        always = frozenset({"channels", "all_reduce", "all_gather", "rendezvous_count"})
        return always | {"multicast"} if self._native.multicast_supported else always

    @property
    def rendezvous_count(self) -> int:
        """How often this rank has entered a host rendezvous."""
        return self._native.rendezvous_count

    @property
    def cached_connections(self) -> int:
        """Entries of the channel cache; the same on all ranks."""
        return self._native.cached_connections

    @property
    def last_algorithm(self) -> str:
        """Which way the last collective went: ``"scratch"``, ``"direct"``, ``"multicast"``; ``"none"``: no bytes."""
        return self._native.last_algorithm

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._native.closed

    @property
    def broken(self) -> bool:
        """Whether every operation but `close` raises from now on."""
        return self._native.broken

    def connect(self, address: int, size: int) -> Channels:
        """Connect everybody's region with everybody. Collective.

        Regions may differ in size. The same regions again are a hit of the agreed cache: on every rank, or on none.

        Raises
        ------
        UsageError
            If some rank's memory is not of ``cuMemCreate`` on its own device, exportable as a file descriptor.
        """
        return Channels(self._native.connect(address, size))

    def open_multicast(self, capacity_bytes: int) -> MulticastGroup:
        """Open a multicast group of all ranks. Collective.

        Raises
        ------
        UsageError
            If multicast is not supported by every device, or not allowed on this machine.
        DriverError
            If there is no room for the object.
        """
        return MulticastGroup(self._native.open_multicast(capacity_bytes))

    def all_reduce(
        self,
        send_address: int,
        receive_address: int,
        count: int,
        data_type: DataType,
        operation: Operation,
        *,
        stream: int = 0,
    ) -> None:
        """Reduce `count` elements over all ranks into every rank's result. Collective; enqueued on the stream.

        Every rank gets the same bits. Integers wrap around; 16-bit floats are summed in float32 and rounded once, but
        by multicast the fabric rounds; minimum and maximum give NaN if any element is NaN.

        Parameters
        ----------
        send_address, receive_address : int
            Operand and result, aligned to the elements; equal (in place) or without overlap.
        count : int
            Number of elements, the same on all ranks; may be 0.
        data_type, operation : str
            The same on all ranks.
        stream : int
            Handle of the stream.
        """
        self._native.all_reduce(
            send_address, receive_address, count, data_type_number(data_type), operation_number(operation), stream
        )

    def all_gather(
        self, send_address: int, receive_address: int, count: int, data_type: DataType, *, stream: int = 0
    ) -> None:
        """Gather `count` elements of each rank, in rank order, into every rank's result. Collective; enqueued.

        Parameters
        ----------
        send_address, receive_address : int
            Operand and result, aligned to the elements; the operand may be this rank's part of the result.
        count : int
            Elements of one rank, the same on all ranks; may be 0.
        data_type : str
            The same on all ranks.
        stream : int
            Handle of the stream.
        """
        self._native.all_gather(send_address, receive_address, count, data_type_number(data_type), stream)

    def synchronize(self, *, stream: int = 0) -> None:
        """Wait for the stream, and raise what went wrong in device work since.

        Raises
        ------
        Timeout, PeerLost
            If device work gave up waiting for a rank, or that rank failed to enqueue its part.
        """
        self._native.synchronize(stream)

    def close(self) -> None:
        """Give everything back. Collective; a second call does nothing.

        Raises
        ------
        DriverError
            On every rank, if some clean-up failed on one; everything else has been given back all the same.
        """
        self._native.close()

    def abandon(self) -> None:
        """Forget everything without a driver call, for a rank whose process ends and gives everything back itself."""
        self._native.abandon()
