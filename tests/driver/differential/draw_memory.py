"""Draws of calls about virtual memory, plain memory, pointers and contents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.driver.differential.abi import GRANULE
from tests.driver.differential.drawer import NO_DEVICE, SIZES, Drawer
from tests.driver.differential.world import Arguments, Mapped, Thing

PLAIN_SIZES: Final = (1, 256, 512, 1000, 4096, 65536, 1 << 20, 2 << 20, (2 << 20) + 1, 5 << 20, 16 << 20)
TOO_MUCH: Final = 1 << 42
POSIX: Final = 1


def granularity(d: Drawer) -> None:
    bad = d.chance(4)
    device = d.of((0, 1, NO_DEVICE))
    d.add("cuMemGetAllocationGranularity", not bad, device=device, types=d.index(2), option=7 if bad else d.index(2))


def create(d: Drawer) -> None:
    its: Arguments = {
        "size": d.of(SIZES),
        "device": d.device(),
        "types": d.of((POSIX, POSIX, 0)),
        "kind": 1,
        "flags": 0,
    }
    on = d.current(its["device"])
    if not d.chance(4):
        d.add("cuMemCreate", on=on, **its)
        return
    wrong: Arguments = d.of(
        (
            {"size": 0},
            {"size": 4096},
            {"size": GRANULE + 65536},
            {"size": TOO_MUCH},
            {"device": NO_DEVICE},
            {"device": -1},
            {"kind": 0},
            {"flags": 1},
            {"location": 0},
            {"types": d.of((2, 4))},
            {"types": d.of((8, 8, 9))},
            {"types": d.of((16, 32, 64))},
        )
    )
    d.add("cuMemCreate", False, on=on, **{**its, **wrong})


def handle_call(d: Drawer) -> None:
    handle = d.thing("handle")
    if handle is None:
        create(d)
        return
    on = d.current(handle.device)
    kind = d.index(9)
    if kind < 4:
        d.add("cuMemGetAllocationPropertiesFromHandle", on=on, handle=handle.name)
    elif kind < 7:
        wanted = d.of((1, 1, 1, 1, 0, 2, 8, 3))
        flags = int(d.chance(8))
        good = wanted == POSIX and handle.handle_types == POSIX and not flags
        d.add("cuMemExportToShareableHandle", good, on=on, handle=handle.name, type=wanted, flags=flags)
    else:
        d.add("cuMemRelease", on=on, handle=handle.name)


def import_handle(d: Drawer) -> None:
    if d.chance(4):
        d.add("cuMemImportFromShareableHandle", False, descriptor=d.of(("closed", "pipe")), type=POSIX)
        return
    exported = d.thing("descriptor")
    if exported is None:
        handles = [one for one in d.world.alive("handle") if one.handle_types == POSIX]
        its: Arguments = {"size": d.of(SIZES), "device": 0, "types": POSIX, "kind": 1, "flags": 0}
        handle = d.of(handles) if handles else d.make("cuMemCreate", **its)
        exported = d.make("cuMemExportToShareableHandle", handle=handle.name, type=POSIX, flags=0)
    wanted = d.of((1, 1, 1, 1, 0, 2, 3, 4))
    its = {"descriptor": exported.name, "type": wanted}
    d.add("cuMemImportFromShareableHandle", wanted == POSIX, on=d.current(exported.device), **its)


def reserve(d: Drawer) -> None:
    its: Arguments = {
        "size": d.of(SIZES),
        "alignment": d.of((0, 0, 0, GRANULE, 2 * GRANULE)),
        "wanted": "0",
        "flags": 0,
    }
    taken = d.thing("range")
    if taken is not None and d.chance(6):
        its |= {"wanted": taken.name, "alignment": min(its["alignment"], taken.alignment)}
    if not d.chance(4):
        d.add("cuMemAddressReserve", on=d.of((0, 1, None)), **its)
        return
    wrong: Arguments = d.of(
        ({"size": 0}, {"size": 4096}, {"size": GRANULE + 4096}, {"alignment": 3}, {"flags": 1}, {"wanted": "4096"})
    )
    d.add("cuMemAddressReserve", False, **{**its, **wrong})


def address_free(d: Drawer) -> None:
    thing = d.thing("range")
    if thing is None or d.chance(8):
        d.add("cuMemAddressFree", False, address="null", size=GRANULE)
    elif thing.mappings or not d.chance(4):
        d.add("cuMemAddressFree", not thing.mappings, address=thing.name, size=thing.size)
    elif thing.size > GRANULE:
        address, size = d.of(
            ((thing.name, GRANULE), (f"{thing.name}+{GRANULE}", thing.size - GRANULE), (thing.name, 0))
        )
        d.add("cuMemAddressFree", False, address=address, size=size)


def free_room(thing: Thing, size: int) -> list[int]:
    """Give the offsets at which so much can be mapped."""
    taken = [(one.offset, one.offset + one.size) for one in thing.mappings]
    spots = range(0, thing.size - size + 1, GRANULE)
    return [spot for spot in spots if all(spot + size <= low or spot >= high for low, high in taken)]


def map_memory(d: Drawer) -> None:
    handle = d.thing("handle")
    if handle is None:
        create(d)
        return
    fitting = [one for one in d.world.alive("range") if free_room(one, handle.size)]
    if not fitting:
        d.add("cuMemAddressReserve", size=handle.size * d.of((1, 1, 2)), alignment=0, wanted="0", flags=0)
        return
    thing = d.of(fitting)
    room = free_room(thing, handle.size)
    spot = d.of(room)
    its: Arguments = {"size": handle.size, "offset": 0, "handle": handle.name, "flags": 0}
    on = d.current(handle.device)
    if not d.chance(4):
        d.add("cuMemMap", on=on, address=f"{thing.name}+{spot}" if spot else thing.name, **its)
        return
    wrong: list[Arguments] = [
        {"flags": 1},
        {"size": 0},
        {"size": 4096},
        {"offset": 4096},
        {"size": handle.size + GRANULE},
    ]
    if handle.size > GRANULE:
        wrong += [{"size": GRANULE}, {"size": GRANULE, "offset": GRANULE}]
    wrong += [{"address": "null"}, {"address": f"{thing.name}+{spot + 4096}"}]
    wrong += [{"address": f"{thing.name}+{one.offset}"} for one in thing.mappings]
    address = f"{thing.name}+{spot}" if spot else thing.name
    d.add("cuMemMap", False, on=on, **{"address": address, **its, **d.of(wrong)})


def mapped_memory(d: Drawer) -> None:
    """Draw what a program does to have memory at an address, in four calls."""
    device, size, types = d.device(), d.of(SIZES), d.of((POSIX, 0))
    handle, address = f"@{len(d.steps)}", f"@{len(d.steps) + 1}"
    d.add("cuMemCreate", on=device, size=size, device=device, types=types, kind=1, flags=0)
    d.add("cuMemAddressReserve", on=device, size=size * d.of((1, 1, 2)), alignment=0, wanted="0", flags=0)
    d.add("cuMemMap", on=device, address=address, size=size, offset=0, handle=handle, flags=0)
    access = d.of(([[1, device, 3]], [[1, device, 3]], [[1, 0, 3], [1, 1, 3]], [[1, 1 - device, 3]]))
    d.add("cuMemSetAccess", on=device, address=address, size=size, access=access)


def mapped(d: Drawer) -> tuple[Thing, Mapped] | None:
    """Draw a mapping."""
    found = [(thing, one) for thing in d.world.alive("range") for one in thing.mappings]
    return d.of(found) if found else None


def at(thing: Thing, offset: int) -> str:
    """Write an address."""
    return f"{thing.name}+{offset}" if offset else thing.name


def unmap(d: Drawer) -> None:
    found = mapped(d)
    if found is None:
        thing = d.thing("range")
        if thing is not None:
            d.add("cuMemUnmap", address=thing.name, size=thing.size)
        return
    thing, one = found
    on = d.of((0, 1, None))
    if not d.chance(3):
        d.add("cuMemUnmap", on=on, address=at(thing, one.offset), size=one.size)
        return
    wrong = [(at(thing, one.offset), 0), (at(thing, one.offset), 4096), (at(thing, one.offset + 4096), one.size)]
    if one.size > GRANULE:
        wrong += [(at(thing, one.offset), GRANULE), (at(thing, one.offset + GRANULE), one.size - GRANULE)]
    address, size = d.of([*wrong, ("null", GRANULE), (thing.name, thing.size)])
    d.add("cuMemUnmap", (address, size) == (thing.name, thing.size), on=on, address=address, size=size)


def set_access(d: Drawer) -> None:
    found = mapped(d)
    if found is None:
        map_memory(d)
        return
    thing, one = found
    access = d.of(([[1, 0, 3]], [[1, 1, 3]], [[1, 0, 3], [1, 1, 3]], [[1, 0, 1]], [[1, 1, 0]], [[1, 0, 3], [1, 1, 1]]))
    address, size = at(thing, one.offset), one.size
    on = d.of((0, 1, None))
    if not d.chance(4):
        if len(thing.mappings) > 1 and d.chance(3):
            ends = [(each.offset, each.offset + each.size) for each in thing.mappings]
            low, high = min(ends)[0], max(end for _, end in ends)
            address, size = at(thing, low), high - low
        d.add("cuMemSetAccess", on=on, address=address, size=size, access=access)
        return
    wrong = [
        (address, size, [[1, NO_DEVICE, 3]]),
        (address, size, [[1, 0, 2]]),
        (address, size, [[1, 0, 7]]),
        (address, size, [[0, 0, 3]]),
        (address, size, []),
        (address, 0, access),
        (address, 4096, access),
        (at(thing, one.offset + 4096), size, access),
        ("null", size, access),
    ]
    wrong += [(other.name, GRANULE, access) for other in d.world.alive("range") if not other.mappings]
    wrong += [(other.name, GRANULE, access) for other in d.world.alive("plain") if other.size > GRANULE]
    address, size, access = d.of(wrong)
    d.add("cuMemSetAccess", False, on=on, address=address, size=size, access=access)


def get_access(d: Drawer) -> None:
    address, good = d.somewhere("range", "plain")
    location, device = d.of(((1, 0), (1, 0), (1, 1), (1, 1), (1, NO_DEVICE), (0, 0)))
    good = good and location == 1 and device != NO_DEVICE
    d.add("cuMemGetAccess", good, on=d.current(0), address=address, location=location, device=device)


def retain(d: Drawer) -> None:
    address, good = d.somewhere(*(("range",) if not d.chance(4) else ("plain", "pooled")))
    d.add("cuMemRetainAllocationHandle", good and bool(d.world.same_handle(address)), address=address)


def allocate(d: Drawer) -> None:
    bad = d.chance(5)
    size = d.of((0, TOO_MUCH)) if bad else d.of(PLAIN_SIZES)
    on = None if d.chance(16) else d.device()
    d.add("cuMemAlloc", not bad and on is not None, on=on, size=size)


def free(d: Drawer) -> None:
    thing = d.thing("plain", "plain", "pooled")
    if thing is None or d.chance(4):
        inner = [at(one, 256) for one in d.world.alive("plain") if one.size > 256]
        ranges = [one.name for one in d.world.alive("range") if not one.mappings]
        d.add("cuMemFree", False, on=d.current(0), address=d.of(["null", "host", *inner, *ranges]))
    else:
        d.add("cuMemFree", on=d.current(thing.device), address=thing.name)


def address_range(d: Drawer) -> None:
    address, good = d.somewhere("range", "plain", "plain", "pooled")
    d.add("cuMemGetAddressRange", good, on=d.current(0), address=address)


# All but tokens, block ids and what came after CUDA 13.0.
ATTRIBUTES: Final = (1, 2, 3, 4, 6, 7, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19)
UNKNOWN_ATTRIBUTE: Final = 999


def pointer_attribute(d: Drawer) -> None:
    address, good = d.somewhere("range", "plain", "pooled")
    if d.chance(8):
        address, good = d.of(("null", "host")), False
    attribute = UNKNOWN_ATTRIBUTE if d.chance(20) else d.of(ATTRIBUTES)
    d.add("cuPointerGetAttribute", good, on=d.current(0), address=address, attribute=attribute)


def pointer_attributes(d: Drawer) -> None:
    address, good = d.somewhere("range", "plain", "pooled")
    if d.chance(8):
        address, good = d.of(("null", "host")), False
    attributes = [d.of(ATTRIBUTES) for _ in range(1 + d.index(3))]
    if d.chance(20):
        attributes.append(UNKNOWN_ATTRIBUTE)
    d.add("cuPointerGetAttributes", good, on=d.current(0), address=address, attributes=attributes)


def set_pointer_attribute(d: Drawer) -> None:
    address, _ = d.somewhere("plain", "plain", "range", "pooled")
    attribute = d.of((6, 6, 6, 7, UNKNOWN_ATTRIBUTE))
    d.add("cuPointerSetAttribute", False, on=d.current(0), address=address, attribute=attribute, value=d.index(2))


def ipc_get(d: Drawer) -> None:
    address, _ = d.somewhere(*d.of((("plain",), ("plain",), ("plain",), ("range",), ("pooled",))))
    thing = d.world.get(address, "plain")
    d.add("cuIpcGetMemHandle", thing is not None, on=d.current(thing.device if thing else 0), address=address)


def ipc_use(d: Drawer) -> None:
    handles = [one for one in d.world.alive("ipc") if d.world.get(one.of, "plain")]
    if handles and d.chance(2):
        d.add("cuIpcOpenMemHandle", False, on=d.current(0), handle=d.of(handles).name, flags=d.of((1, 1, 1, 0, 2)))
    elif d.chance(8):
        address, _ = d.somewhere("plain")
        d.add("cuIpcCloseMemHandle", False, address=address)
    else:
        borrow(d)


def borrow(d: Drawer) -> None:
    """Draw a use of another process's memory, which nobody writes; only where its device's context is current."""
    thing = d.thing("imported")
    if thing is None or d.chance(4):
        device, flags = d.device(), d.of((1, 1, 1, 1, 1, 0, 2))
        on = None if d.chance(16) else device
        good = flags == 1 and on is not None
        d.add("cuIpcOpenMemHandle", good, on=on, handle=f"lent {device}", flags=flags)
        if good and not d.chance(4):
            borrow(d)
        return
    on, inside = thing.device, at(thing, d.of((0, 0, 1, 4096, thing.size - 1)))
    match d.index(8):
        case 0 | 1 | 2 | 7:
            d.add("cuIpcCloseMemHandle", on=on, address=thing.name)
        case 3:
            d.add("cuMemcpyDtoH", on=on, size=d.of((4, 256, 4096)), source=at(thing, d.of((0, 64, 4096))))
        case 4:
            d.add("cuMemGetAddressRange", on=d.current(on), address=inside)
        case 5:
            d.add("cuPointerGetAttribute", on=d.current(on), address=inside, attribute=d.of(ATTRIBUTES))
        case _:
            d.add(d.of(("cuIpcGetMemHandle", "cuMemRetainAllocationHandle")), False, on=on, address=inside)


CHOICES: Final[tuple[tuple[int, Callable[[Drawer], None]], ...]] = (
    (1, granularity),
    (4, create),
    (7, mapped_memory),
    (6, handle_call),
    (4, import_handle),
    (6, reserve),
    (5, address_free),
    (11, map_memory),
    (6, unmap),
    (9, set_access),
    (4, get_access),
    (5, retain),
    (6, allocate),
    (5, free),
    (4, address_range),
    (7, pointer_attribute),
    (3, pointer_attributes),
    (5, set_pointer_attribute),
    (3, ipc_get),
    (6, ipc_use),
)
