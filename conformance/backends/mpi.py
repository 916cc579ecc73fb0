"""MPI under test, any implementation of it, through mpi4py.

Memory is the host's. A communicator is made of the first ranks of ``MPI.COMM_WORLD``. Collectives are MPI's own. MPI
forbids that send and receive buffers overlap, and wants ``MPI_IN_PLACE`` from all ranks or none, which a rank cannot
know: where the addresses are in place, a copy of the operand is sent. Registering a region is ``MPI_Win_create``, a
put is ``MPI_Put`` and ``MPI_Win_flush`` in a passive epoch, a signal is an empty message. ``MPI_Win_free`` is
collective, and dropping channels is not: windows that every rank has dropped are freed when ranks next connect, or
close.

Errors inside of MPI come back as exceptions instead of ending the job.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any, Final

from allranks.conformance.backend import MemorySpace, RankContext
from allranks.conformance.data import ITEM_BYTES
from allranks.conformance.narrowing import Narrowing
from allranks.errors import UsageError

Comm = Any  # MPI.Comm, of a package that need not be installed

_STANDARD: Final = "MPI: A Message-Passing Interface Standard, version 4.1"
_DTYPES: Final = {
    "int8": "INT8_T",
    "uint8": "UINT8_T",
    "int32": "INT32_T",
    "uint32": "UINT32_T",
    "int64": "INT64_T",
    "uint64": "UINT64_T",
    "float32": "FLOAT",
    "float64": "DOUBLE",
}
_OPERATIONS: Final = {"sum": "SUM", "prod": "PROD", "min": "MIN", "max": "MAX"}
_MOST_TAGS: Final = 32768  # what every MPI has


class MpiBackend:
    """Any MPI."""

    name = "mpi"
    world = "mpi"
    memory_spaces: tuple[MemorySpace, ...] = ("host",)
    narrowings = (
        Narrowing(
            requirement="COLL-1",
            reason="the standard has no datatype of 16-bit floating point",
            source=f"{_STANDARD}, section 3.2.2, tables 3.1 to 3.4",
            dtypes=("float16", "bfloat16"),
        ),
        Narrowing(
            requirement="RDV-5",
            reason="counts that differ between ranks are erroneous, and MPI need not notice",
            source=f"{_STANDARD}, sections 6.7 and 6.9: the same arguments count and datatype at all processes",
            unequal_counts=True,
        ),
    )

    def __init__(self) -> None:
        if importlib.util.find_spec("mpi4py") is None:
            raise UsageError("backend='mpi': mpi4py is not installed (pip install mpi4py, and an MPI such as mpich)")

    def versions(self) -> dict[str, str]:
        """Say which MPI it is."""
        import mpi4py

        mpi, (major, minor) = _mpi(), _mpi().Get_version()
        library = " ".join(mpi.Get_library_version().replace("\0", "").splitlines()[0].split())
        return {"library": library, "MPI": f"{major}.{minor}", "mpi4py": mpi4py.__version__}

    def capabilities(self, context: RankContext) -> frozenset[str]:
        """All but multicast; MPI says nothing of what it does inside."""
        return frozenset({"channels", "all_reduce", "all_gather", "subsets"})

    def open(self, context: RankContext) -> MpiCommunicator:
        """Make a communicator of the first ranks."""
        mpi = _mpi()
        size = mpi.COMM_WORLD.Get_size()
        if context.rank_count > size:
            raise UsageError(f"ranks={context.rank_count}: MPI.COMM_WORLD has {size}")
        return MpiCommunicator(mpi, _among(mpi, mpi.COMM_WORLD, tuple(range(context.rank_count)), 0))


def _mpi() -> Any:
    from mpi4py import MPI

    return MPI


def _among(mpi: Any, parent: Comm, members: Sequence[int], tag: int) -> Comm:
    """Make a communicator of some ranks, which are the only ones to call this; its errors are returned."""
    everyone = parent.Get_group()
    group = everyone.Incl(members)
    before = parent.Get_errhandler()
    parent.Set_errhandler(mpi.ERRORS_RETURN)
    try:
        made = parent.Create_group(group, tag)
    finally:
        parent.Set_errhandler(before)
        before.Free()
        group.Free()
        everyone.Free()
    made.Set_errhandler(mpi.ERRORS_RETURN)
    return made


class MpiChannels:
    """A window of every member's region, open for passive access as long as it lives."""

    def __init__(self, mpi: Any, comm: Comm, members: Sequence[int], address: int, size_bytes: int) -> None:
        self.mpi = mpi
        self.comm = comm
        self.place = {rank: index for index, rank in enumerate(members)}
        self.tag = 0
        self.dropped = False
        self.window = mpi.Win.Create(mpi.memory.fromaddress(address, size_bytes), 1, comm=comm)
        self.window.Set_errhandler(mpi.ERRORS_RETURN)
        self.window.Lock_all()

    def put(self, peer: int, destination_offset_bytes: int, source_address: int, size_bytes: int) -> None:
        """Write host memory of this rank into the peer's region; it is there on return."""
        source = self.mpi.memory.fromaddress(source_address, size_bytes)
        target = (destination_offset_bytes, size_bytes, self.mpi.BYTE)
        self.window.Put([source, size_bytes, self.mpi.BYTE], self.place[peer], target)
        self.window.Flush(self.place[peer])

    def signal(self, peer: int) -> None:
        """Send the peer an empty message."""
        self.comm.Send([None, 0, self.mpi.BYTE], self.place[peer], self.tag)

    def wait(self, peer: int) -> None:
        """Receive an empty message of the peer, and see what was put before it."""
        self.comm.Recv([None, 0, self.mpi.BYTE], self.place[peer], self.tag)
        self.window.Sync()

    def close(self) -> None:
        """Use the window no more; when the others do not either, it is freed."""
        self.dropped = True

    def free(self) -> None:
        """Free the window; all members do."""
        self.window.Unlock_all()
        self.window.Free()


class _Dropped:
    """What the user holds of channels: letting go of it is closing it."""

    def __init__(self, channels: MpiChannels) -> None:
        self.channels = channels
        self.put: Callable[[int, int, int, int], None] = channels.put
        self.signal: Callable[[int], None] = channels.signal
        self.wait: Callable[[int], None] = channels.wait
        self.close: Callable[[], None] = channels.close

    def __del__(self) -> None:
        self.channels.dropped = True


class MpiCommunicator:
    """One rank of an MPI communicator."""

    def __init__(self, mpi: Any, comm: Comm) -> None:
        self.mpi = mpi
        self._comm: Comm | None = comm
        self.windows: list[MpiChannels] = []  # of all ranks, in the order of their making
        self.subsets: list[tuple[MpiChannels, Comm]] = []
        self.made = 0

    @property
    def comm(self) -> Comm:
        """The communicator.

        Raises
        ------
        allranks.errors.UsageError
            If it was closed.
        """
        if self._comm is None:
            raise UsageError("the communicator is closed")
        return self._comm

    def connect(self, address: int, size_bytes: int) -> _Dropped:
        """Make a window of every rank's region; those that all ranks have dropped are freed on the way."""
        comm = self.comm
        if self.windows:
            said = bytes(window.dropped for window in self.windows)
            held = bytearray(len(said))
            comm.Allreduce([said, self.mpi.UINT8_T], [held, self.mpi.UINT8_T], self.mpi.MIN)
            for window in [window for window, dropped in zip(self.windows, held, strict=True) if dropped]:
                window.free()
                self.windows.remove(window)
        channels = MpiChannels(self.mpi, comm, range(comm.Get_size()), address, size_bytes)
        self.windows.append(channels)
        self.made += 1
        channels.tag = self.made % _MOST_TAGS
        return _Dropped(channels)

    def connect_among(self, members: tuple[int, ...], address: int, size_bytes: int) -> _Dropped:
        """Make a communicator of the members, and a window of their regions."""
        comm = _among(self.mpi, self.comm, members, 1)
        channels = MpiChannels(self.mpi, comm, members, address, size_bytes)
        self.subsets.append((channels, comm))
        return _Dropped(channels)

    def all_reduce(self, send: int, receive: int, count: int, dtype: str, operation: str) -> None:
        """Reduce by MPI_Allreduce."""
        kind = self._kind(dtype)
        size = count * ITEM_BYTES[dtype]
        source = self._source(send, size, in_place=send == receive)
        target = self.mpi.memory.fromaddress(receive, size)
        self.comm.Allreduce([source, count, kind], [target, count, kind], getattr(self.mpi, _OPERATIONS[operation]))

    def all_gather(self, send: int, receive: int, count: int, dtype: str) -> None:
        """Gather by MPI_Allgather."""
        kind, comm = self._kind(dtype), self.comm
        size, ranks = count * ITEM_BYTES[dtype], comm.Get_size()
        source = self._source(send, size, in_place=send == receive + comm.Get_rank() * size)
        comm.Allgather([source, count, kind], [self.mpi.memory.fromaddress(receive, size * ranks), count, kind])

    def _source(self, address: int, size_bytes: int, *, in_place: bool) -> Any:
        there = self.mpi.memory.fromaddress(address, size_bytes)
        return self.mpi.memory.frombuffer(bytearray(there)) if in_place else there

    def _kind(self, dtype: str) -> Any:
        if dtype not in _DTYPES:
            raise UsageError(f"dtype={dtype!r}: MPI has no datatype for it; there are {', '.join(_DTYPES)}")
        return getattr(self.mpi, _DTYPES[dtype])

    def close(self) -> None:
        """Free windows and communicators, in the order of their making, which is the same on every rank."""
        if self._comm is None:
            return
        comm, self._comm = self._comm, None
        for channels, among in self.subsets:
            channels.free()
            among.Free()
        for channels in self.windows:
            channels.free()
        self.subsets, self.windows = [], []
        comm.Free()
