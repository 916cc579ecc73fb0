"""What there is room for in a multicast group whenever something is bound to it, as far as that is certain."""

from __future__ import annotations

from dataclasses import dataclass, field

from allranks.conformance import program as p
from allranks.conformance.checks.outcome import View
from allranks.conformance.plan import Planned


@dataclass(slots=True)
class Room:
    """A group as it is before a bind.

    Attributes
    ----------
    capacity_bytes : int
        What the backend says that it holds.
    live : mapping of binding to (step that bound it, offset)
        Bindings that are alive for certain.
    unbound : bool
        Whether something was taken out of it before.
    dropped : bool
        Whether some binding was let go of without being unbound: its range may be taken still, or not.
    """

    capacity_bytes: int
    live: dict[int, tuple[Planned, int]] = field(default_factory=dict)
    unbound: bool = False
    dropped: bool = False

    def taken_bytes(self, view: View) -> int:
        """Give the bytes that are bound for certain."""
        return sum(bound_bytes(view, step) for step, _ in self.live.values())

    def must_take(self, view: View, step: Planned) -> bool:
        """Whether a bind has no reason to fail: the group is empty and large enough, and the buffers are alike."""
        alike = len({part.size_bytes for part in step.parts if part is not None}) == 1
        empty = not self.live and not self.dropped
        return empty and alike and bound_bytes(view, step) <= self.capacity_bytes


def bound_bytes(view: View, step: Planned) -> int:
    """Give the bytes that a binding takes at least, by the machine's granularity."""
    unit = view.trace.granularity_bytes
    return max(-(-part.size_bytes // unit) * unit for part in step.parts if part is not None)


def rooms(view: View) -> dict[int, Room]:
    """Give the group as it is before each bind, by the bind's step number; groups that failed to open are left out."""
    groups: dict[int, Room] = {}
    group_of: dict[int, int] = {}
    found: dict[int, Room] = {}
    for step in view.applied:
        match step.step:
            case p.OpenGroup():
                capacity = view.events(step)[0].observed.get("capacity_bytes")
                if capacity is not None:
                    groups[step.target] = Room(capacity)
            case p.Bind() if step.group in groups:
                room = groups[step.group]
                found[step.number] = Room(room.capacity_bytes, dict(room.live), room.unbound, room.dropped)
                event = view.events(step)[0]
                group_of[step.target] = step.group
                if event.status == "ok":
                    room.live[step.target] = (step, event.observed["offset_bytes"])
            case p.Unbind() if step.group in groups:
                groups[step.group].live.pop(step.target, None)
                groups[step.group].unbound = True
            case p.Drop(what="binding") if step.target in group_of:
                room = groups[group_of[step.target]]
                room.live.pop(step.target, None)
                room.dropped = True
            case _:
                pass
    return found
