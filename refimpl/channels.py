"""Memory channels: what a rank does to its peers' regions by its own loads and stores."""

from __future__ import annotations

from allranks._native import refimpl as _refimpl


class Channels:
    """Channels to the regions that all ranks connected in one step. Made by `Communicator.connect`.

    Everything is enqueued on a stream. A put before a signal is seen by who has waited for that signal. Each method
    raises `UsageError` for a peer or range that does not exist and after `close`.
    """

    __slots__ = ("_native",)

    def __init__(self, native: _refimpl.MemoryChannels) -> None:
        self._native = native

    def put(self, peer: int, destination_offset: int, source_address: int, size: int, *, stream: int = 0) -> None:
        """Copy `size` bytes of local memory to an offset of the peer's region."""
        self._native.put(peer, destination_offset, source_address, size, stream)

    def get(self, peer: int, source_offset: int, destination_address: int, size: int, *, stream: int = 0) -> None:
        """Copy `size` bytes from an offset of the peer's region to local memory."""
        self._native.get(peer, source_offset, destination_address, size, stream)

    def signal(self, peer: int, *, stream: int = 0) -> None:
        """Let the peer's next `wait` for this rank go on."""
        self._native.signal(peer, stream)

    def wait(self, peer: int, *, stream: int = 0) -> None:
        """Have the stream wait for the peer's next signal; a deadline that passes is raised by `flush`."""
        self._native.wait(peer, stream)

    def flush(self, *, stream: int = 0) -> None:
        """Wait until everything enqueued so far is done.

        Raises
        ------
        Timeout, PeerLost
            If device work gave up waiting for a rank; the communicator is broken then.
        """
        self._native.flush(stream)

    def remote_address(self, peer: int) -> int:
        """Give the address of the peer's region in this rank's address space."""
        return self._native.remote_address(peer)

    def remote_size(self, peer: int) -> int:
        """Give the size of the peer's region in bytes."""
        return self._native.remote_size(peer)

    @property
    def connection_number(self) -> int:
        """Number of the cached connection, the same on all ranks; equal for two channels that share one."""
        return self._native.connection_number

    def close(self) -> None:
        """Give up this rank's use, alone; the connection stays cached."""
        self._native.close()
