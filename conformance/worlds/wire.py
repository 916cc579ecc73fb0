"""How ranks that a launcher has started talk to each other: messages, in lanes, without a peer's help to send one.

A lane belongs to one thread of each rank. Over MPI each lane is a duplicate of ``MPI.COMM_WORLD`` of its own, so that
nothing that a communicator under test sends is ever taken for one of ours. Over a store of torch's, which ``torchrun``
provides, each is a connection of its own, for a client that waits lets no other thread ask.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import pickle
import time
from collections.abc import Iterator
from typing import Any, Final, Protocol

from allranks.conformance.worlds.sentinel import mapped
from allranks.errors import UsageError

Message = tuple[int, Any]  # who sent it, and what

# Between two looks at an MPI that has no call which waits for a limited time; the first looks follow at once.
_EAGER_LOOKS: Final = 200
_PAUSES_S: Final = (0.0, 0.0001, 0.001)
_TAG: Final = 7


class Lane(Protocol):
    """One thread's way to the same thread of every other rank."""

    def send(self, peer: int, message: object) -> None:
        """Send a message, without waiting for the peer."""

    def receive(self, timeout_s: float | None, *, eager: bool = True) -> Message | None:
        """Give the next message of any rank; None: none came in time. None as time: there is no limit.

        One that is not eager has waited already, and leaves the processor to others.
        """

    def flush(self) -> None:
        """Wait until everything sent has left."""


class Wire(Protocol):
    """The ranks of a job."""

    @property
    def rank(self) -> int:
        """This rank."""

    @property
    def size(self) -> int:
        """Number of ranks."""

    def lane(self) -> Lane:
        """Make the next lane; every rank has to make the same number of them."""

    def abort(self, code: int) -> None:
        """End the whole job at once, with an exit code; does not return."""


class MpiLane:
    """A duplicate of a communicator."""

    def __init__(self, comm: Any) -> None:
        self.comm = comm
        self._sent: list[Any] = []

    def send(self, peer: int, message: object) -> None:
        """Send a message."""
        self._sent = [request for request in self._sent if not request.Test()]
        self._sent.append(self.comm.isend(message, peer, _TAG))

    def receive(self, timeout_s: float | None, *, eager: bool = True) -> Message | None:
        """Give the next message."""
        from mpi4py import MPI

        status = MPI.Status()
        for _ in _looks(timeout_s, eager=eager):
            found = self.comm.improbe(MPI.ANY_SOURCE, _TAG, status)
            if found is not None:
                return status.Get_source(), found.recv()
        return None

    def flush(self) -> None:
        """Wait for the sends."""
        for request in self._sent:
            request.wait()
        self._sent = []


def _looks(timeout_s: float | None, *, eager: bool) -> Iterator[None]:
    """Give turns to look, more and more slowly, or slowly from the first, until the time is over."""
    end = None if timeout_s is None else time.monotonic() + timeout_s
    looks = 0 if eager else _EAGER_LOOKS * len(_PAUSES_S)
    while True:
        yield
        if end is not None and time.monotonic() >= end:
            return
        time.sleep(_PAUSES_S[min(looks // _EAGER_LOOKS, len(_PAUSES_S) - 1)])
        looks += 1


class MpiWire:
    """All of ``MPI.COMM_WORLD``.

    Raises
    ------
    allranks.errors.UsageError
        If mpi4py, or the MPI that it needs, is missing.
    """

    def __init__(self) -> None:
        try:
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:
            raise UsageError(f"world='mpi': {' '.join(str(error).split())}") from None
        self.mpi: Any = MPI
        self.rank: int = MPI.COMM_WORLD.Get_rank()
        self.size: int = MPI.COMM_WORLD.Get_size()
        if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            raise UsageError("world='mpi': this MPI has no MPI_THREAD_MULTIPLE, which a deadline needs")

    def lane(self) -> Lane:
        """Duplicate the communicator."""
        return MpiLane(self.mpi.COMM_WORLD.Dup())

    def abort(self, code: int) -> None:
        """End the job; what it has in shared memory would stay, and is taken away first."""
        for path in mapped(os.getpid()):
            with contextlib.suppress(OSError):
                os.unlink(path)
        self.mpi.COMM_WORLD.Abort(code)


class StoreLane:
    """A connection to a store, with a queue for each rank."""

    def __init__(self, store: Any, rank: int) -> None:
        self.store = store
        self.rank = rank
        self._taken = 0

    def send(self, peer: int, message: object) -> None:
        """Put a message at the end of the peer's queue."""
        number = self.store.add(f"queue/{peer}", 1)
        self.store.set(f"message/{peer}/{number}", pickle.dumps((self.rank, message)))

    def receive(self, timeout_s: float | None, *, eager: bool = True) -> Message | None:
        """Take the first message of the own queue."""
        from torch.distributed import DistStoreError

        key = f"message/{self.rank}/{self._taken + 1}"
        while True:
            try:
                self.store.wait([key], datetime.timedelta(seconds=3600 if timeout_s is None else max(timeout_s, 0.001)))
                break
            except DistStoreError:
                if timeout_s is not None:
                    return None
        self._taken += 1
        found: Message = pickle.loads(self.store.get(key))
        with contextlib.suppress(RuntimeError):  # a store of another kind keeps what it has
            self.store.delete_key(key)
        return found

    def flush(self) -> None:
        """A message has left when it is in the store."""


class StoreWire:
    """The ranks that ``torchrun`` has started, by the variables that it sets.

    Raises
    ------
    allranks.errors.UsageError
        If they are not set, or torch is missing.
    """

    def __init__(self) -> None:
        try:
            self.rank = int(os.environ["RANK"])
            self.size = int(os.environ["WORLD_SIZE"])
            self.host, self.port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        except (KeyError, ValueError) as error:
            raise UsageError(f"launcher: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT: {error}") from None
        try:
            from torch import distributed
        except ImportError as error:
            raise UsageError(f"launcher='torchrun': {error}") from None
        self._distributed: Any = distributed
        self._lanes = 0
        self._serves = self.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
        self._store: Any = None

    def lane(self) -> Lane:
        """Connect once more."""
        store = self._distributed.TCPStore(
            self.host, self.port, is_master=self._serves and self._lanes == 0, wait_for_workers=False
        )
        self._store = self._store or store  # a store ends with the one that serves it
        self._lanes += 1
        job = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        return StoreLane(self._distributed.PrefixStore(f"allranks/{job}/{self._lanes}", store), self.rank)

    def abort(self, code: int) -> None:
        """End this rank; the launcher ends the others."""
        os._exit(code)
