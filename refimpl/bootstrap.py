"""How ranks find and hear each other beside the device."""

from __future__ import annotations

from allranks._native import refimpl as _refimpl

_NO_TIMEOUT_US = 2**64 - 1


def timeout_to_us(timeout_s: float | None) -> int:
    """Give a timeout in microseconds; none is the largest number."""
    return _NO_TIMEOUT_US if timeout_s is None else max(0, round(timeout_s * 1e6))


class Bootstrap:
    """One rank's end of a bootstrap. Made by `InProcessRendezvous.bootstrap`.

    Every wait has a deadline and names the ranks that it waits for. A rank that gives up, or leaves, ends the others'
    waits for it.
    """

    __slots__ = ("native",)

    def __init__(self, native: _refimpl.Bootstrap) -> None:
        self.native = native

    @property
    def rank(self) -> int:
        """Rank of this end."""
        return self.native.rank

    @property
    def rank_count(self) -> int:
        """Number of ranks."""
        return self.native.rank_count

    @property
    def rendezvous_count(self) -> int:
        """How often this rank has entered a wait of all for all."""
        return self.native.rendezvous_count

    def set_timeout(self, timeout_s: float | None) -> None:
        """Set the longest wait of one call, in seconds; none waits for ever."""
        self.native.set_timeout_us(timeout_to_us(timeout_s))

    def all_gather(self, data: bytes, what: str = "user data") -> list[bytes]:
        """Give everybody's bytes, in the order of ranks. Collective.

        Parameters
        ----------
        data : bytes
            This rank's.
        what : str
            What for, in reports.

        Raises
        ------
        Timeout
            If a rank did not come before the deadline.
        PeerLost
            If a rank has left or given up.
        Stalled
            If the simulated driver's turnstile knows that nothing can run any more.
        """
        return self.native.all_gather(data, what)

    def barrier(self, what: str = "barrier") -> None:
        """Wait until every rank is here. Collective; raises as `all_gather`."""
        self.native.barrier(what)

    def send(self, peer: int, data: bytes, tag: int = 0) -> None:
        """Send bytes to a rank; does not wait."""
        self.native.send(peer, tag, data)

    def recv(self, peer: int, tag: int = 0) -> bytes:
        """Give the next bytes that a rank has sent with the tag; raises as `all_gather`."""
        return self.native.receive(peer, tag)

    def leave(self) -> None:
        """Take no further part; who waits for this rank gets `PeerLost`."""
        self.native.leave()


class InProcessRendezvous:
    """Where ranks that are threads of one process meet. Shared by all of them.

    Where the simulated driver is loaded, waits go through its turnstile.

    Parameters
    ----------
    rank_count : int
        Number of ranks.

    Raises
    ------
    UsageError
        If there is no rank.
    """

    __slots__ = ("_native",)

    def __init__(self, rank_count: int) -> None:
        self._native = _refimpl.InProcessRendezvous(rank_count)

    @property
    def rank_count(self) -> int:
        """Number of ranks."""
        return self._native.rank_count

    def bootstrap(self, rank: int) -> Bootstrap:
        """Give a rank its end. The k-th one of every rank belong together.

        Raises
        ------
        UsageError
            If the rank is out of range.
        """
        return Bootstrap(self._native.bootstrap(rank))
