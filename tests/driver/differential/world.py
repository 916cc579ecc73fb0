"""The books of a sequence: which objects are alive, what is mapped where, and which bytes have a known value.

The same books serve twice. The drawer keeps them as if every call that it means to succeed did, so that it can draw
operands that are alive; the runner keeps them by what really succeeded, so that no call of a sequence is undefined: no
stream, event, pool or handle is used after its end, and no memory without the right to.

An object is named after the step that made it: "@3". An address is such a name, with an offset: "@3+4096".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

READ = 1
WRITE = 2
LENT_BYTES = 4 << 20  # of the memory of another process, on each device
MEMORY = ("range", "plain", "pooled", "imported")  # what has addresses

Arguments = dict[str, Any]


@dataclass(slots=True)
class Backing:
    """Bytes that one or several addresses reach; `known` are the intervals that were written."""

    known: list[tuple[int, int]] = field(default_factory=list)

    def write(self, begin: int, end: int, known: bool) -> None:
        """Note that bytes were written, with values that are known or not."""
        rest = []
        for low, high in self.known:
            rest += [(low, min(high, begin)), (max(low, end), high)]
        self.known = [(low, high) for low, high in rest if low < high] + ([(begin, end)] if known else [])

    def parts(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Give what is known of a range, in order."""
        cut = [(max(low, begin), min(high, end)) for low, high in sorted(self.known)]
        return [(low, high) for low, high in cut if low < high]

    def knows(self, begin: int, end: int) -> bool:
        """Whether all of a range is known."""
        return sum(high - low for low, high in self.parts(begin, end)) == end - begin


@dataclass(slots=True)
class Mapped:
    """One mapping inside of a reservation."""

    offset: int
    size: int
    handle: str
    backing: Backing
    rights: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Thing:
    """An object. `kind`: handle, released, range, plain, pooled, imported, stream, event, pool, descriptor, ipc."""

    name: str
    kind: str
    device: int = 0
    size: int = 0
    flags: int = 0
    handle_types: int = 0
    references: int = 1
    alignment: int = 0  # that was asked for
    recorded: bool = False
    exported: bool = False
    of: str = ""  # what it was made from: a pool, a handle, an allocation
    backing: Backing = field(default_factory=Backing)
    mappings: list[Mapped] = field(default_factory=list)
    rights: dict[int, int] = field(default_factory=dict)


def name_of(address: str) -> str:
    """Give the object of an address."""
    return address.partition("+")[0]


def offset_of(address: str) -> int:
    """Give the offset of an address in its object."""
    return int(address.partition("+")[2] or 0)


class World:
    """The books. `apply` notes a call that succeeded."""

    __slots__ = ("things",)

    def __init__(self) -> None:
        self.things: dict[str, Thing] = {}

    def alive(self, *kinds: str) -> list[Thing]:
        """Give the objects of some kinds, oldest first."""
        return [thing for thing in self.things.values() if thing.kind in kinds]

    def get(self, name: str, *kinds: str) -> Thing | None:
        """Give an object that is alive."""
        thing = self.things.get(name_of(name))
        return thing if thing is not None and thing.kind in kinds else None

    def pieces(self, address: str, size: int) -> list[tuple[Backing, int, int, dict[int, int]]]:
        """Give what a range reaches: backing, begin, end and rights of each piece; all of it or nothing."""
        thing, begin = self.get(address, *MEMORY), offset_of(address)
        if thing is None or begin + size > thing.size:
            return []
        if thing.kind != "range":
            return [(thing.backing, begin, begin + size, thing.rights)]
        found = []
        for mapped in sorted(thing.mappings, key=lambda one: one.offset):
            low, high = max(begin, mapped.offset), min(begin + size, mapped.offset + mapped.size)
            if low < high:
                found.append((mapped.backing, low - mapped.offset, high - mapped.offset, mapped.rights))
        return found if sum(end - start for _, start, end, _ in found) == size else []

    def may(self, address: str, size: int, device: int | None, right: int) -> bool:
        """Whether the device may use the range."""
        pieces = self.pieces(address, size)
        return bool(pieces) and all(
            rights.get(device if device is not None else -1, 0) & right for *_, rights in pieces
        )

    def never_opened(self, address: str, size: int) -> bool:
        """Whether no device was ever given rights on what is mapped in the range, and something is."""
        pieces = self.pieces(address, size)
        return bool(pieces) and all(not rights for *_, rights in pieces)

    def overlap(self, one: str, other: str, size: int) -> bool:
        """Whether two ranges reach the same bytes, through whatever mappings."""
        return any(
            left is right and begin < finish and start < end
            for left, begin, end, _ in self.pieces(one, size)
            for right, start, finish, _ in self.pieces(other, size)
        )

    def write(self, address: str, size: int, known: bool = True) -> None:
        """Note that a range was written."""
        for backing, begin, end, _ in self.pieces(address, size):
            backing.write(begin, end, known)

    def known(self, address: str, size: int) -> list[tuple[int, int]]:
        """Give the parts of a range whose bytes are known, as offsets in it."""
        parts, at = [], 0
        for backing, begin, end, _ in self.pieces(address, size):
            parts += [(low - begin + at, high - begin + at) for low, high in backing.parts(begin, end)]
            at += end - begin
        return parts

    def add(self, name: str, kind: str, **fields: Any) -> Thing:
        """Note a new object."""
        self.things[name] = Thing(name=name, kind=kind, **fields)
        return self.things[name]

    def same_handle(self, address: str) -> str:
        """Give the handle that is mapped at an address."""
        thing = self.get(address, "range")
        at = offset_of(address)
        for mapped in thing.mappings if thing else ():
            if mapped.offset <= at < mapped.offset + mapped.size:
                return mapped.handle
        return ""

    def in_use(self, pool: str) -> bool:
        """Whether memory of the pool is alive."""
        return any(one.of == pool for one in self.alive("pooled"))

    def forgotten(self, name: str) -> bool:
        """Whether a handle was released and nothing is mapped of it, so that its number is free."""
        thing = self.things[name]
        ranges = self.alive("range")
        return thing.kind == "released" and not any(one.handle == name for each in ranges for one in each.mappings)

    def apply(self, name: str, call: str, arguments: Arguments) -> None:
        """Note a call that succeeded; `name` is that of the object that it may have made."""
        note = getattr(self, f"_{call}", None)
        if note is not None:
            note(name, arguments)

    # -- virtual memory

    def _cuMemCreate(self, name: str, its: Arguments) -> None:  # noqa: N802
        self.add(name, "handle", device=its["device"], size=its["size"], handle_types=its["types"])

    def _cuMemRelease(self, _: str, its: Arguments) -> None:  # noqa: N802
        handle = self.things[its["handle"]]
        handle.references -= 1
        if handle.references == 0:
            handle.kind = "released"  # what is mapped of it stays, and can be retained

    def _cuMemRetainAllocationHandle(self, _: str, its: Arguments) -> None:  # noqa: N802
        handle = self.things[self.same_handle(its["address"])]
        handle.kind = "handle"
        handle.references += 1

    def _cuMemExportToShareableHandle(self, name: str, its: Arguments) -> None:  # noqa: N802
        handle = self.things[its["handle"]]
        if its["type"] == 1:
            self.add(name, "descriptor", device=handle.device, size=handle.size, of=handle.name, backing=handle.backing)

    def _cuMemImportFromShareableHandle(self, name: str, its: Arguments) -> None:  # noqa: N802
        exported = self.things[its["descriptor"]]
        self.add(name, "handle", device=exported.device, size=exported.size, of=exported.of, backing=exported.backing)

    def _cuMemAddressReserve(self, name: str, its: Arguments) -> None:  # noqa: N802
        self.add(name, "range", size=its["size"], alignment=its["alignment"])

    def _cuMemAddressFree(self, _: str, its: Arguments) -> None:  # noqa: N802
        del self.things[name_of(its["address"])]

    def _cuMemMap(self, _: str, its: Arguments) -> None:  # noqa: N802
        handle = self.things[its["handle"]]
        mapped = Mapped(offset_of(its["address"]), its["size"], handle.name, handle.backing)
        self.things[name_of(its["address"])].mappings.append(mapped)

    def _cuMemUnmap(self, _: str, its: Arguments) -> None:  # noqa: N802
        thing, begin = self.things[name_of(its["address"])], offset_of(its["address"])
        end = begin + its["size"]
        thing.mappings = [one for one in thing.mappings if one.offset + one.size <= begin or one.offset >= end]

    def _cuMemSetAccess(self, _: str, its: Arguments) -> None:  # noqa: N802
        thing, begin = self.get(its["address"], "range"), offset_of(its["address"])
        for mapped in thing.mappings if thing else ():
            if mapped.offset < begin + its["size"] and mapped.offset + mapped.size > begin:
                mapped.rights |= {device: flags for _, device, flags in its["access"]}

    # -- plain memory and memory of pools

    def _cuMemAlloc(self, name: str, its: Arguments) -> None:  # noqa: N802
        self.add(name, "plain", device=its["on"], size=its["size"], rights={its["on"]: 3})

    def _cuMemFree(self, _: str, its: Arguments) -> None:  # noqa: N802
        self.things.pop(its["address"], None)

    def _cuMemPoolCreate(self, name: str, its: Arguments) -> None:  # noqa: N802
        self.add(name, "pool", device=its["device"], handle_types=its["types"])

    def _cuMemPoolDestroy(self, _: str, its: Arguments) -> None:  # noqa: N802
        del self.things[its["pool"]]

    def _cuMemAllocAsync(self, name: str, its: Arguments) -> None:  # noqa: N802
        self.add(name, "pooled", device=its["on"], size=its["size"], rights={its["on"]: 3}, of="default")

    def _cuMemAllocFromPoolAsync(self, name: str, its: Arguments) -> None:  # noqa: N802
        device = self.things[its["pool"]].device
        self.add(name, "pooled", device=device, size=its["size"], rights={device: 3}, of=its["pool"])

    def _cuMemFreeAsync(self, _: str, its: Arguments) -> None:  # noqa: N802
        if its["address"] == "null":
            return  # nothing to free, and no error
        del self.things[its["address"]]

    def _cuMemPoolExportToShareableHandle(self, name: str, its: Arguments) -> None:  # noqa: N802
        self.things[its["pool"]].exported = True
        if its["type"] == 1:
            self.add(name, "pool descriptor", of=its["pool"])

    def _cuIpcGetMemHandle(self, name: str, its: Arguments) -> None:  # noqa: N802
        self.add(name, "ipc", of=name_of(its["address"]))

    def opened(self, lent: str) -> Thing | None:
        """Give the memory of another process, if it is open."""
        return next((one for one in self.alive("imported") if one.of == lent), None)

    def _cuIpcOpenMemHandle(self, name: str, its: Arguments) -> None:  # noqa: N802
        kind, _, device = its["handle"].partition(" ")
        if kind != "lent":
            return
        thing = self.opened(its["handle"])
        if thing is not None:
            thing.references += 1
            return
        rights, backing = {int(device): 3}, Backing([(0, LENT_BYTES)])
        self.add(
            name, "imported", device=int(device), size=LENT_BYTES, of=its["handle"], rights=rights, backing=backing
        )

    def _cuIpcCloseMemHandle(self, _: str, its: Arguments) -> None:  # noqa: N802
        thing = self.things[its["address"]]
        thing.references -= 1
        if thing.references == 0:
            del self.things[thing.name]

    # -- streams and events

    def _cuStreamCreate(self, name: str, its: Arguments) -> None:  # noqa: N802
        self.add(name, "stream", device=its["on"], flags=its["flags"])

    _cuStreamCreateWithPriority = _cuStreamCreate  # noqa: N815

    def _cuStreamDestroy(self, _: str, its: Arguments) -> None:  # noqa: N802
        del self.things[its["stream"]]

    def _cuEventCreate(self, name: str, its: Arguments) -> None:  # noqa: N802
        self.add(name, "event", device=its["on"], flags=its["flags"])

    def _cuEventDestroy(self, _: str, its: Arguments) -> None:  # noqa: N802
        del self.things[its["event"]]

    def _cuEventRecord(self, _: str, its: Arguments) -> None:  # noqa: N802
        self.things[its["event"]].recorded = True

    _cuEventRecordWithFlags = _cuEventRecord  # noqa: N815
