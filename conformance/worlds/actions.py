"""What a rank does in each kind of step, on its communicator and its buffers, and what it sees there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from allranks.conformance import model
from allranks.conformance import program as p
from allranks.conformance.backend import Channels, Communicator
from allranks.conformance.plan import Part, Planned
from allranks.conformance.program import Program
from allranks.conformance.trace import Placed
from allranks.conformance.worlds.meeting import Meeting
from allranks.conformance.worlds.memory import UserMemory
from allranks.conformance.worlds.site import Site

# The user's own driver calls, and the communicator's, are told apart by this in call logs and ledgers.
USER, COMMUNICATOR = 0, 1

T = TypeVar("T")

Seen = dict[str, Any] | None


@dataclass(slots=True, kw_only=True)
class Actions:
    """One rank's buffers and objects; one method a kind of step."""

    program: Program
    rank: int
    site: Site
    meeting: Meeting
    memory: UserMemory
    communicator: Communicator
    owners: dict[int, tuple[int, int, int]]  # allocation -> (rank, buffer, offset of its byte 0 there) of the user
    placed: dict[int, Placed] = field(default_factory=dict)
    objects: dict[int, Any] = field(default_factory=dict)  # channels, groups and bindings, by ordinal
    spans: dict[int, tuple[int, int]] = field(default_factory=dict)  # multicast addresses of bindings, old ones too

    def of(self, planned: Planned) -> Callable[[Planned], Seen]:
        """Give the method that carries a step out."""
        action: Callable[[Planned], Seen] = getattr(self, planned.operation)
        return action

    def meet(self, number: int, why: str) -> None:
        """Wait for all ranks, without a deadline: the world's own barrier, not the communicator's."""
        self.meeting.exchange(self.rank, None, f"world: {why} of step {number}", None)

    def meet_and_look(self, number: int, why: str, action: Callable[[], T]) -> T:
        """Wait for all ranks; what this one sees then, before any of them goes on."""
        return self.meeting.look(self.rank, action, f"world: {why} of step {number}")

    @contextlib.contextmanager
    def _looks_all_the_same(self, number: int, why: str) -> Iterator[None]:
        """When a rank fails in a step, it still meets the others where they meet: only the communicator keeps them."""
        try:
            yield
        except Exception:  # whatever the communicator under test raises
            self.meet_and_look(number, why, _nothing)
            raise

    def at(self, part: Part) -> int:
        """Give the address of a part."""
        return self.memory.live[part.buffer].address + part.offset_bytes

    def own(self, planned: Planned) -> Part:
        """Give the part that this rank brings."""
        part = planned.parts[self.rank]
        assert part is not None
        return part

    # --- local steps ---

    def allocate(self, planned: Planned) -> Seen:
        """Get a buffer, and remember where it lies."""
        assert isinstance(planned.step, p.Allocate)
        part = self.own(planned)
        placed = self.memory.allocate(part.buffer, planned.step, planned.number)
        self.placed[part.buffer] = placed
        inside = 0
        for allocation, offset, size in placed.pieces:
            self.owners[allocation] = (self.rank, part.buffer, inside - offset)
            inside += size
        return None

    def free(self, planned: Planned) -> Seen:
        """Give a buffer back."""
        self.memory.free(self.own(planned).buffer)
        return None

    def drop(self, planned: Planned) -> Seen:
        """Let go of the last reference."""
        del self.objects[planned.target]
        return None

    # --- channels ---

    def connect(self, planned: Planned) -> Seen:
        """Register a region, and get channels; with a put in the same step, all begin together."""
        part = self.own(planned)
        if planned.part_of:
            self.meet(planned.number, "start")
        self.objects[planned.target] = self.communicator.connect(self.at(part), part.size_bytes)
        return None

    def put(self, planned: Planned) -> Seen:
        """Write a piece into each peer's region, signal, wait for the peers' pieces, and look."""
        step, count = planned.step, self.program.rank_count
        assert isinstance(step, p.Put)
        after = [(self.rank + distance) % count for distance in step.distances(count)]
        before = [(self.rank - distance) % count for distance in step.distances(count)]
        if not planned.follows:  # as a later part of a step it goes on at once
            self.meet(planned.number, "start")
        try:
            return self._put(planned, self.objects[planned.target], planned.receive[self.rank], after, before)
        finally:
            self.meet(planned.number, "end")

    def _put(self, planned: Planned, channels: Channels, region: Part, after: list[int], before: list[int]) -> Seen:
        size, scratch = planned.count, self.memory.scratch
        self.site.poke(scratch, model.pieces_of(self.program, planned.number, self.rank, size))
        for peer in after:
            channels.put(peer, self.rank * size, scratch + peer * size, size)
            channels.signal(peer)
        for peer in before:
            channels.wait(peer)
        return {"region": self.site.peek(self.at(region), size * self.program.rank_count)}

    def subset_put(self, planned: Planned) -> Seen:
        """Some ranks connect, put, look and close."""
        part = self.own(planned)
        peers = [rank for rank in planned.ranks if rank != self.rank]
        with contextlib.ExitStack() as last:
            meet = self.meeting.exchange
            last.callback(meet, self.rank, None, f"world: closing of step {planned.number}", None, planned.ranks)
            channels = self.communicator.connect_among(planned.ranks, self.at(part), part.size_bytes)
            last.callback(channels.close)
            last.callback(meet, self.rank, None, f"world: end of step {planned.number}", None, planned.ranks)
            return self._put(planned, channels, part, peers, peers)

    # --- multicast ---

    def open_group(self, planned: Planned) -> Seen:
        """Open a group."""
        assert isinstance(planned.step, p.OpenGroup)
        group = self.communicator.open_group(planned.step.capacity_bytes)
        self.objects[planned.target] = group
        return {"capacity_bytes": group.capacity_bytes}

    def _reached(self, address: int, size: int) -> list[list[int]] | None:
        """Say where an address range leads: [from, size, rank, buffer, offset]; None: the site cannot tell.

        Rank -1 is memory that is nobody's buffer, -2 is no memory.
        """
        resolved, pieces = self.site.resolve(address, size), []
        if resolved is None:
            return None
        for piece in resolved:
            owner = self.owners.get(piece.allocation, (-1, -1, 0)) if piece.device >= 0 else (-2, -1, 0)
            pieces.append([piece.from_bytes, piece.size_bytes, *owner[:2], owner[2] + piece.offset_bytes])
        return pieces

    def bind(self, planned: Planned) -> Seen:
        """Bind a buffer, and see where its multicast address leads once all ranks have bound theirs."""
        part = self.own(planned)
        with self._looks_all_the_same(planned.number, "end"):
            binding = self.objects[planned.group].bind(self.at(part), part.size_bytes)
            begin, end = binding.address, binding.address + _smallest(planned.parts)
        self.objects[planned.target] = binding
        reached = self.meet_and_look(planned.number, "end", lambda: self._reached(begin, end - begin))
        shared = [other for other, (first, last) in self.spans.items() if first < end and begin < last]
        self.spans[planned.target] = (begin, end)
        return {"offset_bytes": binding.offset_bytes, "reached": reached, "shares_addresses_with": shared}

    def multicast_store(self, planned: Planned) -> Seen:
        """One rank stores through the multicast address; all look at their own buffers."""
        assert isinstance(planned.step, p.MulticastStore)
        binding, number = self.objects[planned.target], planned.number
        windows = model.store_windows(_smallest(planned.receive))
        self.meet(number, "start")
        with self._looks_all_the_same(number, "end"):
            if self.rank == planned.step.source % self.program.rank_count:
                for offset, size in windows:
                    binding.store(offset, model.stored_at(self.program, number, offset, size))
        base, peek = self.at(planned.receive[self.rank]), self.site.peek
        return {
            "windows": self.meet_and_look(
                number, "end", lambda: b"".join(peek(base + offset, size) for offset, size in windows)
            )
        }

    def multicast_reduce(self, planned: Planned) -> Seen:
        """All read the reduction through the multicast address."""
        step, binding = planned.step, self.objects[planned.target]
        assert isinstance(step, p.MulticastReduce)
        operand = model.operand_of(self.program, planned, self.rank)
        self.meet(planned.number, "start")
        self.site.poke(self.at(planned.receive[self.rank]), operand)
        self.meet(planned.number, "middle")
        try:
            result = binding.load_reduce(0, planned.count, step.dtype, step.operation)
        finally:
            self.meet(planned.number, "end")
        return {"result": bytes(result)}

    def unbind(self, planned: Planned) -> Seen:
        """Take a binding out, and see where its address leads then."""
        binding: Any = self.objects.pop(planned.target)
        address = binding.address
        with self._looks_all_the_same(planned.number, "end"):
            binding.unbind()
        return {
            "reached": self.meet_and_look(
                planned.number, "end", lambda: self._reached(address, _smallest(planned.parts))
            )
        }

    def close_group(self, planned: Planned) -> Seen:
        """Give a group back."""
        self.objects.pop(planned.target).close()
        return None

    # --- collectives ---

    def _collective(self, planned: Planned, run: Callable[[int, int], None]) -> Seen:
        send, receive = self.own(planned), planned.receive[self.rank]
        operand = model.operand_of(self.program, planned, self.rank)
        send_address, receive_address = self.at(send), self.at(receive)
        self.site.poke(send_address, operand)
        run(send_address, receive_address)
        seen: dict[str, Any] = {"result": self.site.peek(receive_address, receive.size_bytes)}
        if not _inside(send, receive):
            seen["input_kept"] = self.site.peek(send_address, send.size_bytes) == operand.tobytes()
        return seen

    def all_reduce(self, planned: Planned) -> Seen:
        """Bring an operand, reduce, look at the result."""
        step = planned.step
        assert isinstance(step, p.AllReduce)
        count = 0 if self.rank in step.empty_on else planned.count
        return self._collective(
            planned,
            lambda send, receive: self.communicator.all_reduce(send, receive, count, step.dtype, step.operation),
        )

    def all_gather(self, planned: Planned) -> Seen:
        """Bring an operand, gather, look at the result."""
        step = planned.step
        assert isinstance(step, p.AllGather)
        count = 0 if self.rank in step.empty_on else planned.count
        return self._collective(
            planned, lambda send, receive: self.communicator.all_gather(send, receive, count, step.dtype)
        )

    # --- after the last step ---

    def look(self, ranges: dict[tuple[int, int], list[tuple[int, int]]]) -> dict[int, list[tuple[int, bytes]]]:
        """Give what the live buffers hold at the ranges (offset, size) named by (rank, buffer)."""
        return {
            ordinal: [(offset, self.site.peek(buffer.address + offset, size)) for offset, size in found]
            for ordinal, buffer in self.memory.live.items()
            if (found := ranges.get((self.rank, ordinal)))
        }


def _nothing() -> None:
    """See nothing."""


def _smallest(parts: tuple[Part | None, ...]) -> int:
    return min(part.size_bytes for part in parts if part is not None)


def _inside(inner: Part, outer: Part) -> bool:
    end = outer.offset_bytes + outer.size_bytes
    return (
        inner.buffer == outer.buffer
        and outer.offset_bytes <= inner.offset_bytes
        and inner.offset_bytes + inner.size_bytes <= end
    )
