"""Traces: what happened, as plain data.

No address, descriptor, process id, thread id or time is in a Trace: buffers are named by rank and ordinal, memory by
allocation and offset. The same Program with the same schedule gives the same bytes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

# Labels of what is no step of the Program.
OPENING: Final = 1_000_000_000
CLOSING: Final = 1_000_000_001
PROBING: Final = 1_000_000_002


def place_of(label: int, operations: Mapping[int, str]) -> str:
    """Name what a label means: ``"step 3 (connect)"``; `operations` are those of the steps, by number."""
    special = {OPENING: "open", CLOSING: "close", PROBING: "a collective after the last step"}
    return special.get(label) or f"step {label} ({operations.get(label, 'unknown')})"


Status = Literal["ok", "error", "stalled", "not_reached", "skipped", "unsupported"]


@dataclass(slots=True, kw_only=True)
class Event:
    """What one step was on one rank.

    Parameters
    ----------
    status : {"ok", "error", "stalled", "not_reached", "skipped", "unsupported"}
        `skipped`: the rank has no part in it. `unsupported`: the backend says that it cannot do such steps.
        `stalled`: nothing in the world could go on.
    error, error_type : str
        Text and kind of the error; empty without one.
    error_code : str
        Name of the driver's code, if the error has one: ``CUDA_ERROR_OUT_OF_MEMORY``.
    raised_at : tuple of str
        Where an exception that is none of `allranks.errors` came from, outermost first: ``"file.py:12 in connect"``.
    rendezvous : int
        Internal rendezvous that the step entered; -1: the backend does not say.
    observed : mapping of str to value
        What the rank saw: bytes as hexadecimal text, numbers, lists.
    """

    status: Status = "not_reached"
    error: str = ""
    error_type: str = ""
    error_code: str = ""
    raised_at: tuple[str, ...] = ()
    rendezvous: int = -1
    observed: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Where a buffer lies: pieces (allocation, offset, size), and whose address it has again.

    `same_base_as` is the ordinal of an earlier, freed buffer of the rank with the same base address; -1: none.
    """

    pieces: tuple[tuple[int, int, int], ...]
    same_base_as: int = -1


@dataclass(frozen=True, slots=True)
class Usage:
    """What was in use at the end of a round of a `Repeat`: device memory, multicast capacity, handles alive."""

    step: int
    round: int
    memory_bytes: int
    multicast_bytes: int
    handles: int


# Name of the machine of a world whose buffers are in host memory.
HOST: Final = "host"
# The same of one whose ranks are on real GPUs; in neither is the communicator watched.
CUDA: Final = "cuda"
UNWATCHED: Final = (HOST, CUDA)
# Kinds of errors of a rank that was left where it was: nothing could move, or nothing came to its end in time.
LEFT: Final = ("Blocked", "Waiting")
# Kinds of errors of a rank whose process ended, or said what cannot be.
ENDED: Final = ("Died", "Garbled")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankNote:
    """What a rank that is a process left behind when a run did not end well: for people, and no part of what happened.

    Parameters
    ----------
    output : tuple of str
        The last lines that it printed.
    stack : tuple of str
        Where its threads were in Python.
    native : tuple of str
        Where they were below that, if a tool was there that can tell.
    """

    output: tuple[str, ...] = ()
    stack: tuple[str, ...] = ()
    native: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class Trace:
    """What a run was.

    Parameters
    ----------
    backend, machine : str
        What ran on what.
    rank_count : int
        Ranks.
    capabilities : tuple of str
        What the backend says that it has.
    events : list over ranks of list over steps of Event
        What happened.
    placed : mapping of (rank, buffer) to Placed
        Where the user's buffers lay.
    written : array of (step, rank, allocation, device, offset_bytes, size_bytes), or None
        Every write of the communicator to device memory, in order; None: the world cannot tell.
    usage : tuple of Usage
        At the end of rounds.
    calls : list over ranks of array of (step, call, owner, result)
        Driver calls made, in order; `allranks.sim.call_name` names them.
    contents : mapping of (rank, buffer) to list of (offset, bytes)
        What the user's buffers held after the last step, wherever steps had touched them; empty after a failure.
    probes : list over ranks of list of Event
        Collectives on fresh buffers after the last step, if something had failed and all ranks got so far.
    opening : list over ranks of Event
        What open was.
    closing : list over ranks of Event
        What close was.
    after_close : list over ranks of list of Event
        What was tried after a close that went well: `observed["call"]` says what. Empty: nothing.
    ledger : tuple of dict, or None
        Everything alive after close; None: it could not be asked.
    incidents : tuple of dict
        Things that hardware tolerates, or leaves undefined, although they are wrong.
    moments : tuple of dict
        Who waited for whom at the stall, at each deadline that passed, and when ranks had ended before their time.
        `verdict` says of processes whether they were *blocked*, or *waiting* until the world's deadline.
    granularity_bytes : int
        Multicast granularity of the machine, minimum.
    deviations : tuple of (decision, choice)
        Where the schedule did not go on with the current task.
    outside : str
        Where the ranks were when one kept the turn without coming by the driver, or ended the process; empty: none did.
    notes : tuple of RankNote
        What each rank left behind, in a world where it can; not compared.
    """

    backend: str
    machine: str
    rank_count: int
    capabilities: tuple[str, ...] = ()
    events: list[list[Event]] = field(default_factory=list)
    placed: dict[tuple[int, int], Placed] = field(default_factory=dict)
    written: npt.NDArray[np.void] | None = None
    usage: tuple[Usage, ...] = ()
    calls: list[npt.NDArray[np.void]] = field(default_factory=list)
    contents: dict[tuple[int, int], list[tuple[int, bytes]]] = field(default_factory=dict)
    probes: list[list[Event]] = field(default_factory=list)
    opening: list[Event] = field(default_factory=list)
    closing: list[Event] = field(default_factory=list)
    after_close: list[list[Event]] = field(default_factory=list)
    ledger: tuple[dict[str, Any], ...] | None = None
    incidents: tuple[dict[str, Any], ...] = ()
    moments: tuple[dict[str, Any], ...] = ()
    granularity_bytes: int = 1
    deviations: tuple[tuple[int, int], ...] = ()
    outside: str = ""
    notes: tuple[RankNote, ...] = ()

    @property
    def stalled(self) -> bool:
        """Whether nothing could go on at some point."""
        return any(moment["kind"] == "stall" for moment in self.moments)

    @property
    def waited(self) -> bool:
        """Whether the run was given up at the world's deadline, while something still moved."""
        return any(moment.get("verdict") == "waiting" for moment in self.moments)

    def first_trouble(self) -> int | None:
        """Give the number of the first step that some rank did not end well; None: all did."""
        numbers = [
            number
            for events in self.events
            for number, event in enumerate(events)
            if event.status in ("error", "stalled", "not_reached")
        ]
        return min(numbers, default=None)

    def to_bytes(self) -> bytes:
        """Give a canonical form: equal Traces give equal bytes."""
        plain = dataclasses.asdict(self)
        del plain["notes"]
        for name in ("placed", "contents"):
            plain[name] = [[rank, buffer, value] for (rank, buffer), value in sorted(plain[name].items())]
        return json.dumps(plain, sort_keys=True, default=_plain).encode()

    def digest(self) -> str:
        """Give the SHA-256 of the canonical form."""
        return hashlib.sha256(self.to_bytes()).hexdigest()


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"value={value!r}: a Trace holds plain data only")
