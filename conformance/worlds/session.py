"""One rank's part in a run: it carries out planned steps on a communicator and notes what it sees."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import numpy as np

from allranks import sim
from allranks.conformance import data
from allranks.conformance import program as p
from allranks.conformance.backend import Backend, Binding, Channels, Communicator, Group
from allranks.conformance.plan import Part, Planned
from allranks.conformance.program import Program
from allranks.conformance.trace import Event, Placed, Usage
from allranks.conformance.worlds.meeting import Meeting
from allranks.conformance.worlds.memory import UserMemory
from allranks.driver import Driver
from allranks.errors import DriverError, Stalled

T = TypeVar("T")

# Labels of what is no step.
OPENING: Final = 1_000_000_000
CLOSING: Final = 1_000_000_001

_LAUNCH_TIMEOUT: Final = 702  # what the simulated driver answers to a rank that a stall has unwound
_WINDOW_BYTES: Final = 64


def store_windows(size_bytes: int) -> list[tuple[int, int]]:
    """Give (offset, size) of what `MulticastStore` writes of a buffer: all of a small one, else ends and middle.

    Offsets are multiples of 4; the last window reaches the last byte.
    """
    if size_bytes <= 4 * _WINDOW_BYTES:
        return [(0, size_bytes)]
    middle = size_bytes // 2 // 4 * 4
    last = (size_bytes - _WINDOW_BYTES) // 4 * 4
    return [(0, _WINDOW_BYTES), (middle, _WINDOW_BYTES), (last, size_bytes - last)]


def piece_of(program: Program, number: int, rank: int, peer: int, size: int) -> bytes:
    """Give what `rank` puts into the region of `peer`."""
    return data.random_bytes(program.seed, rank * program.rank_count + peer, number, size)


@dataclass(slots=True)
class Context:
    """What the backend gets; see `allranks.conformance.backend.RankContext`."""

    rank: int
    rank_count: int
    device: int
    driver: Driver
    timeout_s: float
    meeting: Meeting
    exchanges: int = 0

    def exchange(self, value: T, what: str) -> list[T]:
        """Give every rank's value."""
        self.exchanges += 1
        return self.meeting.exchange(self.rank, value, what, self.timeout_s)

    def shared(self, key: Hashable, make: Callable[[], T]) -> T:
        """Give the one object of that key."""
        return self.meeting.shared(key, make)


@dataclass(slots=True, kw_only=True)
class Session:
    """One rank, from open to close."""

    program: Program
    plan: list[Planned]
    backend: Backend
    context: Context
    node: sim.Node
    process: sim.Process
    granularity_bytes: int
    owners: dict[int, tuple[int, int]]  # allocation -> (rank, buffer) of the user, shared by the sessions
    events: list[Event] = field(default_factory=list)
    placed: dict[int, Placed] = field(default_factory=dict)
    usage: list[Usage] = field(default_factory=list)
    closing: Event = field(default_factory=Event)
    objects: dict[int, Channels | Group | Binding] = field(default_factory=dict)
    communicator: Communicator | None = None
    capabilities: frozenset[str] = frozenset()
    scratch: int = 0
    memory: UserMemory = field(init=False)

    @property
    def rank(self) -> int:
        """This rank."""
        return self.context.rank

    def play(self) -> None:
        """Do everything; errors become events."""
        self.events = [Event() for _ in self.plan]
        opening = self._attempt(OPENING, "open", self._open)
        if opening.status == "ok":
            for step in self.plan:
                self._do(step)
                if self.events[step.number].status == "stalled":
                    return
            self.closing = self._attempt(CLOSING, "close", self._close)
        else:
            self.closing = opening

    def _attempt(self, label: int, operation: str, action: Callable[[], dict[str, Any] | None]) -> Event:
        """Carry out an action under a label; its outcome as an event."""
        sim.label(label, operation)
        before = self._rendezvous()
        event = Event(status="ok")
        try:
            event.observed = action() or {}
        except Exception as error:  # noqa: BLE001 -- whatever the communicator under test raises is a finding
            self._note(event, error)
        after = self._rendezvous()
        if before >= 0 and after >= 0:
            event.rendezvous = after - before
        return event

    @staticmethod
    def _note(event: Event, error: Exception) -> None:
        event.error = str(error)
        event.error_type = type(error).__name__
        event.error_code = error.name if isinstance(error, DriverError) else ""
        unwound = isinstance(error, DriverError) and error.code == _LAUNCH_TIMEOUT
        event.status = "stalled" if isinstance(error, Stalled) or unwound else "error"

    def _rendezvous(self) -> int:
        if self.communicator is None or "rendezvous_count" not in self.capabilities:
            return -1
        return self.communicator.rendezvous_count

    def _open(self) -> None:
        driver = self.context.driver
        driver.init()
        driver.set_device(self.context.device)
        self.memory = UserMemory(driver, self.process, self.context.device, self.granularity_bytes)
        if any(isinstance(planned.step, p.Put) for planned in self.plan):
            self.scratch = driver.mem_alloc(1 << 16)
        self.capabilities = self.backend.capabilities(self.context)
        self.communicator = self.backend.open(self.context)

    def _close(self) -> None:
        if self.communicator is not None:
            self.communicator.close()
        self.objects.clear()
        self.communicator = None
        self.memory.free_all()
        if self.scratch:
            self.context.driver.mem_free(self.scratch)
        self.context.driver.reset_device(self.context.device)

    def _do(self, planned: Planned) -> None:
        if planned.applies and self.rank in planned.ranks:
            action = getattr(self, f"_{planned.operation}")
            needs = planned.target if not self._makes(planned) else planned.group
            if needs >= 0 and needs not in self.objects:
                self.events[planned.number].status = "skipped"  # its making failed on this rank
            else:
                event = self._attempt(planned.number, planned.operation, lambda: action(planned))
                self.events[planned.number] = event
                if event.status == "stalled":
                    return
        else:
            self.events[planned.number].status = "skipped"
        if planned.ends_round is not None:
            self._round_ends(planned)

    @staticmethod
    def _makes(planned: Planned) -> bool:
        return isinstance(planned.step, p.Connect | p.OpenGroup | p.Bind)

    def _meet(self, number: int, why: str) -> None:
        """Wait for all ranks, without a deadline: the world's own barrier, not the communicator's."""
        self.context.meeting.exchange(self.rank, None, f"world: {why} of step {number}", None)

    def _round_ends(self, planned: Planned) -> None:
        event = self.events[planned.number]
        try:
            self._meet(planned.number, "end of round")
            if self.rank == 0:
                devices = range(self.node.machine.device_count)
                self.usage.append(
                    Usage(
                        step=planned.number,
                        round=planned.ends_round or 0,
                        memory_bytes=sum(self.node.memory_used(device) for device in devices),
                        multicast_bytes=sum(self.node.multicast_used(device) for device in devices),
                        handles=len(self.node.ledger()),
                    )
                )
            self._meet(planned.number, "count")
        except Stalled as error:
            self._note(event, error)

    # --- local steps ---

    def _allocate(self, planned: Planned) -> None:
        step, part = planned.step, planned.parts[self.rank]
        assert isinstance(step, p.Allocate)
        assert part is not None
        placed = self.memory.allocate(part.buffer, step, planned.number)
        self.placed[part.buffer] = placed
        for allocation, _, _ in placed.pieces:
            self.owners[allocation] = (self.rank, part.buffer)

    def _free(self, planned: Planned) -> None:
        part = planned.parts[self.rank]
        assert part is not None
        self.memory.free(part.buffer)

    def _drop(self, planned: Planned) -> None:
        del self.objects[planned.target]

    # --- channels ---

    def _at(self, part: Part | None) -> int:
        assert part is not None
        return self.memory.live[part.buffer].address + part.offset_bytes

    def _comm(self) -> Communicator:
        assert self.communicator is not None
        return self.communicator

    def _connect(self, planned: Planned) -> None:
        part = planned.parts[self.rank]
        assert part is not None
        self.objects[planned.target] = self._comm().connect(self._at(part), part.size_bytes)

    def _put(self, planned: Planned) -> dict[str, Any]:
        channels: Any = self.objects[planned.target]
        size = planned.count
        self._meet(planned.number, "start")
        peers = [(self.rank + i) % self.context.rank_count for i in range(1, self.context.rank_count)]
        for peer in peers:
            self.process.poke(self.scratch, piece_of(self.program, planned.number, self.rank, peer, size))
            channels.put(peer, self.rank * size, self.scratch, size)
            channels.signal(peer)
        for peer in peers:
            channels.wait(peer)
        own = planned.receive[self.rank]
        seen = self.process.peek(self._at(own), size * self.context.rank_count)
        self._meet(planned.number, "end")
        return {"region": seen}

    # --- multicast ---

    def _open_group(self, planned: Planned) -> dict[str, Any]:
        step = planned.step
        assert isinstance(step, p.OpenGroup)
        group = self._comm().open_group(step.capacity_bytes)
        self.objects[planned.target] = group
        return {"capacity_bytes": group.capacity_bytes}

    def _reached(self, address: int, size: int) -> list[list[int]]:
        """Say where an address range leads: [from, size, rank, buffer, offset]; rank -1: nobody's buffer."""
        pieces = []
        for piece in self.process.resolve(address, size):
            owner = self.owners.get(piece.allocation, (-1, -1)) if piece.device >= 0 else (-2, -1)
            pieces.append([piece.from_bytes, piece.size_bytes, *owner, piece.offset_bytes])
        return pieces

    def _bind(self, planned: Planned) -> dict[str, Any]:
        group: Any = self.objects[planned.group]
        part = planned.parts[self.rank]
        assert part is not None
        binding = group.bind(self._at(part), part.size_bytes)
        self.objects[planned.target] = binding
        # What it reaches is told apart by owner, so every rank's buffers have to be known: they are, once all are here.
        self._meet(planned.number, "end")
        smallest = min(other.size_bytes for other in planned.parts if other is not None)
        reached = self._reached(binding.address, smallest)
        self._meet(planned.number, "look")
        return {"offset_bytes": binding.offset_bytes, "reached": reached}

    def _multicast_store(self, planned: Planned) -> dict[str, Any]:
        step, binding = planned.step, self.objects[planned.target]
        assert isinstance(step, p.MulticastStore)
        smallest = min(part.size_bytes for part in planned.receive)
        windows = store_windows(smallest)
        self._meet(planned.number, "start")
        if self.rank == step.source % self.context.rank_count:
            for offset, size in windows:
                stored = data.random_bytes(self.program.seed, offset % 8191, planned.number, size)
                binding.store(offset, stored)  # type: ignore[union-attr]
        self._meet(planned.number, "middle")
        base = self._at(planned.receive[self.rank])
        seen = b"".join(self.process.peek(base + offset, size) for offset, size in windows)
        self._meet(planned.number, "end")
        return {"windows": seen}

    def _multicast_reduce(self, planned: Planned) -> dict[str, Any]:
        step, binding = planned.step, self.objects[planned.target]
        assert isinstance(step, p.MulticastReduce)
        operand = self._operand(planned, step.dtype, step.operation)
        self._meet(planned.number, "start")
        self.process.poke(self._at(planned.receive[self.rank]), operand)
        self._meet(planned.number, "middle")
        result = binding.load_reduce(0, planned.count, step.dtype, step.operation)  # type: ignore[union-attr]
        self._meet(planned.number, "end")
        return {"result": bytes(result)}

    def _unbind(self, planned: Planned) -> dict[str, Any]:
        binding: Any = self.objects.pop(planned.target)
        address, size = binding.address, min(part.size_bytes for part in planned.parts if part is not None)
        binding.unbind()
        self._meet(planned.number, "end")
        reached = self._reached(address, size)
        self._meet(planned.number, "look")
        return {"reached": reached}

    def _close_group(self, planned: Planned) -> None:
        group: Any = self.objects.pop(planned.target)
        group.close()

    # --- collectives ---

    def _operand(self, planned: Planned, dtype: str, operation: str) -> np.ndarray[Any, Any]:
        return data.operand(
            seed=self.program.seed,
            rank=self.rank,
            step=planned.number,
            count=planned.count,
            dtype=dtype,
            operation=operation,
            rank_count=self.context.rank_count,
        )

    def _collective(
        self, planned: Planned, operand: np.ndarray[Any, Any], run: Callable[[int, int], None]
    ) -> dict[str, Any]:
        send, receive = planned.parts[self.rank], planned.receive[self.rank]
        send_address, receive_address = self._at(send), self._at(receive)
        in_place = send is not None and send.buffer == receive.buffer and _inside(send, receive)
        self.process.poke(send_address, operand)
        run(send_address, receive_address)
        seen: dict[str, Any] = {"result": self.process.peek(receive_address, receive.size_bytes)}
        if not in_place and send is not None:
            seen["input_kept"] = self.process.peek(send_address, send.size_bytes) == operand.tobytes()
        return seen

    def _all_reduce(self, planned: Planned) -> dict[str, Any]:
        step = planned.step
        assert isinstance(step, p.AllReduce)
        operand = self._operand(planned, step.dtype, step.operation)
        return self._collective(
            planned,
            operand,
            lambda send, receive: self._comm().all_reduce(send, receive, planned.count, step.dtype, step.operation),
        )

    def _all_gather(self, planned: Planned) -> dict[str, Any]:
        step = planned.step
        assert isinstance(step, p.AllGather)
        operand = self._operand(planned, step.dtype, "min")
        return self._collective(
            planned,
            operand,
            lambda send, receive: self._comm().all_gather(send, receive, planned.count, step.dtype),
        )


def _inside(inner: Part, outer: Part) -> bool:
    end = outer.offset_bytes + outer.size_bytes
    return outer.offset_bytes <= inner.offset_bytes and inner.offset_bytes + inner.size_bytes <= end
