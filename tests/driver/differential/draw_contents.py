"""Draws of copies and fills, at few places, so that what was written is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.driver.differential.draw_memory import allocate, at, mapped_memory
from tests.driver.differential.drawer import Drawer
from tests.driver.differential.world import READ, WRITE, offset_of

LENGTHS: Final = (4, 16, 256, 4096)


def usable(d: Drawer, right: int) -> tuple[str, int, int] | None:
    """Draw memory that a device may use: address, bytes from there, device."""
    found = [(thing.name, thing.size, thing.device) for thing in d.world.alive("plain", "pooled")]
    for thing in d.world.alive("range"):
        for one in thing.mappings:
            allowed = [device for device, rights in one.rights.items() if rights & right]
            found += [(at(thing, one.offset), one.size, device) for device in allowed]
    if not found:
        return None
    address, size, device = d.of(found)
    name, offset = address.partition("+")[0], offset_of(address)
    spot = d.of((0, 0, 0, 64, 4096))
    if spot >= size:
        spot = 0
    return (f"{name}+{offset + spot}" if offset + spot else name), size - spot, device


def apart(d: Drawer, source: tuple[str, int, int]) -> tuple[str, int, int] | None:
    """Draw memory to copy to, and no place that `source` reaches too: what becomes of that is undefined."""
    for _ in range(4):
        target = usable(d, WRITE)
        if target is None or not d.world.overlap(source[0], target[0], min(LENGTHS[-1], source[1], target[1])):
            return target
    return None


def unusable(d: Drawer) -> str:
    """Draw an address whose use has a defined error."""
    ranges = d.world.alive("range")
    closed = [thing.name for thing in ranges if not thing.mappings]
    closed += [at(thing, one.offset) for thing in ranges for one in thing.mappings if not one.rights]
    return d.of(["null", *closed])


def any_device(d: Drawer, address: str, device: int) -> int:
    """Draw whose context is current for a copy: with unified addresses, any will do for memory of `cuMemAlloc`."""
    return 1 - device if d.world.get(address, "plain") and d.chance(6) else device


def write(d: Drawer) -> None:
    found = usable(d, WRITE)
    if found is None and not d.chance(4):
        mapped_memory(d)
        return
    if found is None or d.chance(8):
        d.add("cuMemcpyHtoD", False, on=d.device(), to=unusable(d), size=16, seed=1)
        return
    address, room, device = found
    size = min(d.of(LENGTHS), room)
    d.add("cuMemcpyHtoD", on=any_device(d, address, device), to=address, size=size, seed=d.index(200))
    d.world.write(address, size)


def fill(d: Drawer) -> None:
    call, width = d.of((("cuMemsetD8", 1), ("cuMemsetD16", 2), ("cuMemsetD32", 4)))
    found = usable(d, WRITE)
    if found is None and not d.chance(4):
        mapped_memory(d)
        return
    if found is None or found[1] < 16 or d.chance(8):
        d.add(call, False, on=d.device(), to=unusable(d), value=1, count=4)
        return
    address, room, device = found
    if width > 1 and d.chance(6):
        address = f"{address.partition('+')[0]}+{offset_of(address) + 1}"
        d.add(call, False, on=device, to=address, value=3, count=2)
        return
    count = min(d.of((1, 4, 64, 1024)), room // width)
    d.add(call, on=device, to=address, value=1 + d.index(200), count=count)
    d.world.write(address, count * width)


def read(d: Drawer) -> None:
    found = usable(d, READ)
    if found is None and not d.chance(4):
        mapped_memory(d)
        return
    if found is None or d.chance(8):
        d.add("cuMemcpyDtoH", False, on=d.device(), size=16, source=unusable(d))
        return
    address, room, device = found
    d.add("cuMemcpyDtoH", on=any_device(d, address, device), size=min(d.of(LENGTHS), room), source=address)


def copy(d: Drawer) -> None:
    source = usable(d, READ)
    target = apart(d, source) if source is not None else None
    if source is None or target is None:
        allocate(d)
        return
    on = target[2]
    size = min(d.of(LENGTHS), source[1], target[1])
    if d.world.may(source[0], size, on, READ) or d.world.get(source[0], "plain"):
        d.add("cuMemcpyDtoD", on=on, to=target[0], size=size, source=source[0])
        d.world.write(target[0], size, d.world.known(source[0], size) == [(0, size)])


CHOICES: Final[tuple[tuple[int, Callable[[Drawer], None]], ...]] = (
    (5, write),
    (8, fill),
    (8, read),
    (6, copy),
)
