"""Draws of calls about devices, streams, events and pools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.driver.differential.draw_contents import usable
from tests.driver.differential.draw_memory import TOO_MUCH
from tests.driver.differential.drawer import NO_DEVICE, Drawer
from tests.driver.differential.world import READ, WRITE, Arguments, Thing

# Of the virtual-memory kind, and what decides on them: unified addresses, memory pools, CUDA IPC, handle types.
DEVICE_ATTRIBUTES: Final = (41, 102, 103, 104, 105, 115, 116, 119, 125, 128, 132)
UNKNOWN_ATTRIBUTE: Final = 9999
DISABLE_TIMING: Final = 2
INTERPROCESS: Final = 4


def device_attribute(d: Drawer) -> None:
    attribute = UNKNOWN_ATTRIBUTE if d.chance(8) else d.of(DEVICE_ATTRIBUTES)
    device = d.of((0, 0, 1, 1, NO_DEVICE))
    d.add("cuDeviceGetAttribute", on=d.current(0), attribute=attribute, device=device)


def device_call(d: Drawer) -> None:
    pair: Arguments = {"device": d.of((0, 1)), "peer": d.of((0, 1, 1, NO_DEVICE))}
    kind = d.index(3)
    if kind == 0:
        d.add("cuDeviceGet", on=d.current(0), ordinal=d.of((0, 1, NO_DEVICE, -1)))
    elif kind == 1:
        d.add("cuDeviceCanAccessPeer", on=d.current(0), **pair)
    else:
        d.add("cuDeviceGetP2PAttribute", on=d.current(0), attribute=d.of((2, 3, 4, 99)), **pair)


def context_call(d: Drawer) -> None:
    d.add(d.of(("cuCtxGetCurrent", "cuCtxGetDevice", "cuCtxSynchronize")), on=d.of((0, 1, None)))


# -- streams and events


def create_stream(d: Drawer) -> None:
    flags = d.of((0, 0, 1, 1, 5))
    on = None if d.chance(12) else d.device()
    good = flags != 5 and on is not None
    if d.chance(3):
        d.add("cuStreamCreateWithPriority", good, on=on, flags=flags, priority=d.of((0, -1, -5, -9, 3)))
    else:
        d.add("cuStreamCreate", good, on=on, flags=flags)


def a_stream(d: Drawer) -> tuple[str, int]:
    """Draw a stream and its device; the legacy default stream if there is no other, and at times."""
    stream = None if d.chance(5) else d.thing("stream")
    return ("0", d.device()) if stream is None else (stream.name, stream.device)


def stream_call(d: Drawer) -> None:
    stream, device = a_stream(d)
    names = ("cuStreamQuery", "cuStreamSynchronize", "cuStreamGetFlags", "cuStreamGetPriority", "cuStreamGetCtx")
    d.add(d.of(names), on=d.current(device), stream=stream)


def destroy(d: Drawer) -> None:
    if d.chance(2):
        event = an_event(d)
        d.add("cuEventDestroy", on=d.current(event.device), event=event.name)
    else:
        stream = d.thing("stream") or d.make("cuStreamCreate", on=d.device(), flags=d.of((0, 1)))
        d.add("cuStreamDestroy", on=d.current(stream.device), stream=stream.name)


def create_event(d: Drawer) -> None:
    flags = d.of((0, 0, 0, 1, 2, 2, 3, 6, 4, 64))
    on = None if d.chance(12) else d.device()
    d.add("cuEventCreate", flags not in (4, 64) and on is not None, on=on, flags=flags)


def an_event(d: Drawer) -> Thing:
    """Draw an event, made if there is none."""
    event = d.thing("event")
    return event or d.make("cuEventCreate", on=d.device(), flags=0)


def record(d: Drawer) -> None:
    event = an_event(d)
    same = [one for one in d.world.alive("stream") if one.device == event.device]
    stream, device = a_stream(d) if d.chance(6) else (d.of(same).name, event.device) if same else ("0", event.device)
    name = "null" if d.chance(16) else event.name
    good, on = name != "null" and device == event.device, d.current(device) if stream != "0" else device
    if d.chance(4):
        flags = d.of((0, 0, 0, 64))
        d.add("cuEventRecordWithFlags", good and not flags, on=on, event=name, stream=stream, flags=flags)
    else:
        d.add("cuEventRecord", good, on=on, event=name, stream=stream)


def event_call(d: Drawer) -> None:
    event = an_event(d)
    name = "null" if d.chance(12) else event.name
    call = d.of(("cuEventQuery", "cuEventSynchronize", "cuIpcGetEventHandle"))
    if call == "cuIpcGetEventHandle" and d.chance(2):
        event = d.make("cuEventCreate", on=d.device(), flags=INTERPROCESS | DISABLE_TIMING)
        name = event.name
    on = d.current(event.device)
    if call == "cuIpcGetEventHandle" and on == 1 - event.device:
        on = event.device  # real drivers crashed
    d.add(call, on=on, event=name)


def elapsed(d: Drawer) -> None:
    if d.chance(2):
        start, end = an_event(d), an_event(d)
        names: Arguments = {"start": start.name, "end": "null" if d.chance(16) else end.name}
        d.add("cuEventElapsedTime", on=d.current(start.device), **names)
        return
    device = d.device()
    start, end = (d.make("cuEventCreate", on=device, flags=0) for _ in range(2))
    for event in (start, end):
        d.add("cuEventRecord", on=device, event=event.name, stream="0")
    d.add("cuEventSynchronize", on=device, event=end.name)
    if d.chance(2):
        d.add("cuCtxSynchronize", on=device)
    d.add("cuEventElapsedTime", on=d.current(device), start=start.name, end=end.name)


def wait_event(d: Drawer) -> None:
    event = an_event(d)
    stream, device = a_stream(d)
    name = "null" if d.chance(12) else event.name
    on = d.current(device) if stream != "0" else device
    d.add("cuStreamWaitEvent", on=on, stream=stream, event=name, flags=d.of((0, 0, 0, 0, 0, 99)))


def fill_in_order(d: Drawer) -> None:
    found = usable(d, WRITE)
    if found is None:
        create_pool(d)
        return
    address, room, device = found
    streams = [one.name for one in d.world.alive("stream") if one.device == device]
    stream, size = d.of(["0", *streams, *streams]), min(d.of((16, 256, 4096)), room)
    source = usable(d, READ) if d.chance(2) else None
    if source is None or source[2] != device or d.world.overlap(source[0], address, min(size, source[1])):
        d.add("cuMemsetD8Async", on=device, to=address, value=1 + d.index(200), count=size, stream=stream)
        d.world.write(address, size)
        return
    size = min(size, source[1])
    d.add("cuMemcpyDtoDAsync", on=device, to=address, size=size, stream=stream, source=source[0])
    d.world.write(address, size, d.world.known(source[0], size) == [(0, size)])


# -- pools


def create_pool(d: Drawer) -> None:
    its: Arguments = {"device": d.device(), "types": d.of((0, 0, 1)), "kind": 1, "location": 1, "max_size": 0}
    wrong = d.of(({"device": NO_DEVICE}, {"kind": 0}, {"location": 0}, {"types": d.of((2, 4, 16, 64))}))
    bad = d.chance(4)
    if not bad and d.chance(8):
        its["types"] = d.of((8, 9))
    d.add("cuMemPoolCreate", not bad, on=d.current(its["device"]), **{**its, **(wrong if bad else {})})


def a_pool(d: Drawer) -> tuple[str, int]:
    """Draw a pool of the sequence, made if there is none, and its device."""
    pool = d.thing("pool")
    if pool is None:
        device = d.device()
        its: Arguments = {"device": device, "types": d.of((0, 1)), "kind": 1, "location": 1, "max_size": 0}
        pool = d.make("cuMemPoolCreate", on=device, **its)
    return pool.name, pool.device


def allocate_in_order(d: Drawer) -> None:
    pool = a_pool(d) if d.chance(2) else None
    bad = d.chance(6)
    size = d.of((0, TOO_MUCH)) if bad else d.of((1, 256, 1000, 4096, 1 << 20, 5 << 20))
    device = pool[1] if pool else d.device()
    streams = [one.name for one in d.world.alive("stream") if one.device == device]
    its: Arguments = {"on": device, "size": size, "stream": d.of(["0", *streams])}
    if pool is None:
        d.add("cuMemAllocAsync", not bad, **its)
    else:
        d.add("cuMemAllocFromPoolAsync", not bad, pool=pool[0], **its)


def free_in_order(d: Drawer) -> None:
    thing = d.thing("pooled")
    if thing is None or d.chance(6):
        inner = [f"{one.name}+256" for one in d.world.alive("pooled") if one.size > 256]
        d.add("cuMemFreeAsync", False, on=d.device(), address=d.of(["null", "host", *inner]), stream="0")
        return
    streams = [one.name for one in d.world.alive("stream") if one.device == thing.device]
    d.add("cuMemFreeAsync", on=thing.device, address=thing.name, stream=d.of(["0", *streams]))


def device_pool(d: Drawer) -> None:
    device = d.of((0, 0, 1, 1, NO_DEVICE))
    if not d.chance(2):
        d.add(d.of(("cuDeviceGetDefaultMemPool", "cuDeviceGetMemPool")), on=d.current(0), device=device)
    else:
        pool = a_pool(d)
        d.add("cuDeviceSetMemPool", device == pool[1], on=d.current(0), device=device, pool=pool[0])


def pool_attribute(d: Drawer) -> None:
    if d.chance(4):
        default = f"default {d.device()}"
        d.add("cuMemPoolGetAttribute", on=d.current(0), pool=default, attribute=d.of((1, 2, 3, 4, 999)))
        return
    pool = a_pool(d)
    if d.chance(2):
        d.add(
            "cuMemPoolGetAttribute", on=d.current(pool[1]), pool=pool[0], attribute=d.of((1, 2, 3, 4, 5, 6, 7, 8, 999))
        )
    else:
        attribute, value = d.of(((1, 0), (2, 0), (3, 0), (4, 1 << 40), (4, 0), (6, 0), (8, 0), (8, 1), (5, 0), (7, 0)))
        d.add("cuMemPoolSetAttribute", on=d.current(pool[1]), pool=pool[0], attribute=attribute, value=value)


def pool_call(d: Drawer) -> None:
    name, device = a_pool(d)
    on = d.current(device)
    match d.index(12):
        case 0 | 8:
            d.add("cuMemPoolTrimTo", on=on, pool=name, keep=d.of((0, 1 << 20, 1 << 30)))
        case 1 | 9:
            place = d.of(((1, 0), (1, 1), (1, NO_DEVICE), (0, 0)))
            d.add("cuMemPoolGetAccess", on=on, pool=name, location=place[0], device=place[1])
        case 2 | 3:
            access = d.of(([[1, 1 - device, 3]], [[1, device, 3]], [[1, device, 0]], [[1, NO_DEVICE, 3]], [[1, 0, 2]]))
            d.add("cuMemPoolSetAccess", on=on, pool=name, access=access)
        case 4 | 5:
            wanted, flags = d.of(((1, 0), (1, 0), (1, 0), (1, 1), (8, 0), (0, 0)))
            good = (wanted, flags) == (1, 0) and d.world.things[name].handle_types == 1
            d.add("cuMemPoolExportToShareableHandle", good, on=on, pool=name, type=wanted, flags=flags)
        case 6 | 7:
            if d.world.in_use(name):
                name = d.make("cuMemPoolCreate", on=device, device=device, types=0, kind=1, location=1, max_size=0).name
            d.add("cuMemPoolDestroy", on=on, pool=name)
        case _:
            exportable = [one for one in d.world.alive("pooled") if d.shared(one)]
            if not exportable and not d.chance(3):
                its: Arguments = {"device": device, "types": 1, "kind": 1, "location": 1, "max_size": 0}
                shared = d.make("cuMemPoolCreate", on=device, **its)
                if not d.chance(4):
                    d.add("cuMemPoolExportToShareableHandle", on=on, pool=shared.name, type=1, flags=0)
                its = {"pool": shared.name, "size": 4096, "stream": "0"}
                exportable = [d.make("cuMemAllocFromPoolAsync", on=device, **its)]
            if exportable and not d.chance(4):
                d.add("cuMemPoolExportPointer", on=on, address=d.of(exportable).name)
                return
            address, _ = d.somewhere(*(("pooled",) if not d.chance(4) else ("plain", "range")))
            d.add("cuMemPoolExportPointer", on=on, address=address)


CHOICES: Final[tuple[tuple[int, Callable[[Drawer], None]], ...]] = (
    (3, device_attribute),
    (4, device_call),
    (4, context_call),
    (5, create_stream),
    (6, stream_call),
    (4, destroy),
    (3, create_event),
    (6, record),
    (5, event_call),
    (5, elapsed),
    (6, wait_event),
    (6, fill_in_order),
    (2, create_pool),
    (6, allocate_in_order),
    (4, free_in_order),
    (3, device_pool),
    (5, pool_attribute),
    (8, pool_call),
)
