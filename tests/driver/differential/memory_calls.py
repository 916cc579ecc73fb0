"""How calls about virtual memory, plain memory and contents are made, and what of their answers is compared."""

from __future__ import annotations

import ctypes
import os
from typing import Final

from tests.driver.differential.abi import (
    GRANULE,
    AccessDescription,
    AllocationProperties,
    Handle,
    Location,
    Opaque64,
)
from tests.driver.differential.execution import LEFT_OPEN, Execution, Result, SkippedError, makes
from tests.driver.differential.world import READ, WRITE, Arguments

Size = ctypes.c_size_t
Flags = ctypes.c_uint64

CONTEXT, DEVICE_POINTER, BUFFER_ID, ORDINAL, RANGE_START, POOL, MAPPING_BASE = 1, 3, 7, 9, 11, 17, 19
HOST_POINTER: Final = 4
POSIX: Final = 1


def properties(its: Arguments) -> AllocationProperties:
    wanted = AllocationProperties(type=its.get("kind", 1), handle_types=its.get("types", 0))
    wanted.location = Location(its.get("location", 1), its["device"])
    return wanted


# -- virtual memory


@makes("cuMemGetAllocationGranularity")
def granularity(run: Execution, its: Arguments) -> Result:
    size = Size()
    code = run.library.call(
        "cuMemGetAllocationGranularity", ctypes.byref(size), ctypes.byref(properties(its)), its["option"]
    )
    return {"code": code} if code else {"code": code, "size": size.value}


@makes("cuMemCreate")
def create(run: Execution, its: Arguments) -> Result:
    handle = Handle()
    code = run.library.call(
        "cuMemCreate", ctypes.byref(handle), Size(its["size"]), ctypes.byref(properties(its)), Flags(its["flags"])
    )
    if code:
        return {"code": code}
    same = run.equal(handle.value, "handle", "released")
    run.keep(handle.value)
    return {"code": code, "handle": same}


@makes("cuMemGetAllocationPropertiesFromHandle")
def handle_properties(run: Execution, its: Arguments) -> Result:
    told = AllocationProperties()
    handle = Handle(run.made(its["handle"], "handle"))
    code = run.library.call("cuMemGetAllocationPropertiesFromHandle", ctypes.byref(told), handle)
    if code:
        return {"code": code}
    return {
        "code": code,
        "type": told.type,
        "handle_types": told.handle_types,
        "location": [told.location.type, told.location.id],
        "compression": told.compression,
        "rdma": told.rdma,
        "usage": told.usage,
    }


@makes("cuMemRetainAllocationHandle")
def retain(run: Execution, its: Arguments) -> Result:
    handle, address = Handle(), run.address(its["address"])
    code = run.library.call("cuMemRetainAllocationHandle", ctypes.byref(handle), Handle(address))
    if code:
        return {"code": code}
    return {"code": code, "handle": run.equal(handle.value, "handle", "released")}


@makes("cuMemRelease")
def release(run: Execution, its: Arguments) -> Result:
    handle = Handle(run.made(its["handle"], "handle"))
    run.settle()
    return {"code": run.library.call("cuMemRelease", handle)}


@makes("cuMemExportToShareableHandle")
def export(run: Execution, its: Arguments) -> Result:
    room, handle = Opaque64(), Handle(run.made(its["handle"], "handle"))  # what other types than asked for would fill
    code = run.library.call(
        "cuMemExportToShareableHandle", ctypes.byref(room), handle, its["type"], Flags(its["flags"])
    )
    if code == 0 and its["type"] == POSIX:
        run.keep(ctypes.c_int.from_buffer(room).value)
    return {"code": code}


@makes("cuMemImportFromShareableHandle")
def import_handle(run: Execution, its: Arguments) -> Result:
    descriptor = its["descriptor"]
    if descriptor == "pipe":
        run.pipe = run.pipe or os.pipe()
        value = run.pipe[0]
    else:
        value = -1 if descriptor == "closed" else run.made(descriptor, "descriptor")
    handle = Handle()
    code = run.library.call("cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(value), its["type"])
    if code:
        return {"code": code}
    same = run.equal(handle.value, "handle", "released")
    run.keep(handle.value)
    return {"code": code, "handle": same}


@makes("cuMemAddressReserve")
def reserve(run: Execution, its: Arguments) -> Result:
    taken = run.world.get(its["wanted"], "range")
    if taken is not None and its["alignment"] > max(taken.alignment, GRANULE):
        raise SkippedError(f"{LEFT_OPEN}whether {its['wanted']} has the alignment is the driver's choice")
    wanted = run.address(its["wanted"]) if its["wanted"].startswith("@") else int(its["wanted"])
    address = Handle()
    code = run.library.call(
        "cuMemAddressReserve",
        ctypes.byref(address),
        Size(its["size"]),
        Size(its["alignment"]),
        Handle(wanted),
        Flags(its["flags"]),
    )
    if code:
        return {"code": code}
    unit = max(its["alignment"], GRANULE)
    told = {"code": code, "modulo": address.value % unit, "in": run.place(address.value)}
    run.keep(address.value)
    return told


@makes("cuMemAddressFree", "cuMemUnmap")
def free_or_unmap(run: Execution, its: Arguments) -> Result:
    address = run.address(its["address"])
    run.settle()
    return {"code": run.library.call(its["call"], Handle(address), Size(its["size"]))}


@makes("cuMemMap")
def map_memory(run: Execution, its: Arguments) -> Result:
    address, handle = run.address(its["address"]), run.made(its["handle"], "handle")
    code = run.library.call(
        "cuMemMap", Handle(address), Size(its["size"]), Size(its["offset"]), Handle(handle), Flags(its["flags"])
    )
    return {"code": code}


@makes("cuMemSetAccess")
def set_access(run: Execution, its: Arguments) -> Result:
    address, wanted = run.address(its["address"]), its["access"]
    run.settle()
    descriptions = (AccessDescription * max(len(wanted), 1))()
    for description, (kind, device, flags) in zip(descriptions, wanted, strict=False):
        description.location, description.flags = Location(kind, device), flags
    code = run.library.call("cuMemSetAccess", Handle(address), Size(its["size"]), descriptions, Size(len(wanted)))
    return {"code": code}


@makes("cuMemGetAccess")
def get_access(run: Execution, its: Arguments) -> Result:
    flags, place = ctypes.c_uint64(), Location(its["location"], its["device"])
    code = run.library.call(
        "cuMemGetAccess", ctypes.byref(flags), ctypes.byref(place), Handle(run.address(its["address"]))
    )
    return {"code": code} if code else {"code": code, "flags": flags.value}


# -- plain memory, ranges and attributes


@makes("cuMemAlloc")
def allocate(run: Execution, its: Arguments) -> Result:
    address = Handle()
    code = run.library.call("cuMemAlloc", ctypes.byref(address), Size(its["size"]))
    if code:
        return {"code": code}
    told = {"code": code, "modulo": address.value % 512, "in": run.place(address.value)}
    run.keep(address.value)
    return told


@makes("cuMemFree")
def free(run: Execution, its: Arguments) -> Result:
    address = run.address(its["address"])
    run.settle()
    return {"code": run.library.call("cuMemFree", Handle(address))}


@makes("cuMemGetAddressRange")
def address_range(run: Execution, its: Arguments) -> Result:
    base, size = Handle(), Size()
    address = Handle(run.address(its["address"]))
    code = run.library.call("cuMemGetAddressRange", ctypes.byref(base), ctypes.byref(size), address)
    return {"code": code} if code else {"code": code, "base": run.place(base.value), "size": size.value}


def told_attribute(run: Execution, attribute: int, value: int, address: str) -> object:
    """Say an attribute's value in words that another process could say."""
    if attribute == CONTEXT:
        return run.context(value)
    if attribute in (DEVICE_POINTER, HOST_POINTER, RANGE_START):
        return run.place(value)
    if attribute == BUFFER_ID:
        return run.buffer_id(value) if value else 0
    if attribute == POOL:
        return run.pool(value)
    if attribute == MAPPING_BASE:  # of memory that the driver divides, only the alignment is the same elsewhere
        return run.place(value) if run.world.get(address, "range") or not value else f"modulo {value % GRANULE}"
    return ctypes.c_int(value).value if attribute == ORDINAL else value


@makes("cuPointerGetAttribute")
def pointer_attribute(run: Execution, its: Arguments) -> Result:
    value, address = ctypes.c_uint64(), run.address(its["address"])
    code = run.library.call("cuPointerGetAttribute", ctypes.byref(value), its["attribute"], Handle(address))
    if code:
        return {"code": code}
    return {"code": code, "value": told_attribute(run, its["attribute"], value.value, its["address"])}


@makes("cuPointerGetAttributes")
def pointer_attributes(run: Execution, its: Arguments) -> Result:
    wanted, address = its["attributes"], run.address(its["address"])
    values = [ctypes.c_uint64() for _ in wanted]
    places = (ctypes.c_void_p * len(wanted))(*(ctypes.addressof(value) for value in values))
    names = (ctypes.c_int * len(wanted))(*wanted)
    code = run.library.call("cuPointerGetAttributes", len(wanted), names, places, Handle(address))
    if code:
        return {"code": code}
    pairs = zip(wanted, values, strict=True)
    return {"code": code, "values": [told_attribute(run, one, value.value, its["address"]) for one, value in pairs]}


@makes("cuPointerSetAttribute")
def set_pointer_attribute(run: Execution, its: Arguments) -> Result:
    value, address = ctypes.c_uint64(its["value"]), run.address(its["address"])
    return {"code": run.library.call("cuPointerSetAttribute", ctypes.byref(value), its["attribute"], Handle(address))}


# -- CUDA IPC


@makes("cuIpcGetMemHandle")
def ipc_get(run: Execution, its: Arguments) -> Result:
    handle, address = Opaque64(), run.address(its["address"])
    code = run.library.call("cuIpcGetMemHandle", ctypes.byref(handle), Handle(address))
    if code:
        return {"code": code}
    told = bytes(handle.bytes)
    living = (one for one in run.world.alive("ipc") if run.world.get(one.of, "plain"))
    same = next((one.name for one in living if run.opaque[one.name] == told), "new")
    run.opaque[run.name] = told
    return {"code": code, "handle": same}


def ipc_handle(run: Execution, text: str) -> bytes:
    """Give the CUDA IPC handle of a step, or of "lent 0", which is of another process's memory on device 0."""
    kind, _, device = text.partition(" ")
    if kind == "lent":
        if not run.seat.lent:
            raise SkippedError("nobody lends")
        return run.seat.lent[int(device)]
    handle = run.world.get(text, "ipc")
    if handle is None or run.world.get(handle.of, "plain") is None:
        raise SkippedError("the memory of this handle is not there")
    return run.opaque[handle.name]


@makes("cuIpcOpenMemHandle")
def ipc_open(run: Execution, its: Arguments) -> Result:
    address = Handle()
    opaque = Opaque64.from_buffer_copy(ipc_handle(run, its["handle"]))
    code = run.library.call("cuIpcOpenMemHandle", ctypes.byref(address), opaque, its["flags"])
    if code:
        return {"code": code}
    run.keep(address.value)
    return {"code": code, "in": run.place(address.value)}


@makes("cuIpcCloseMemHandle")
def ipc_close(run: Execution, its: Arguments) -> Result:
    return {"code": run.library.call("cuIpcCloseMemHandle", Handle(run.address(its["address"])))}


# -- contents


def pattern(seed: int, size: int) -> bytes:
    """Give bytes that differ from place to place."""
    return bytes((seed + at * 7 + (at >> 8)) & 255 for at in range(size))


@makes("cuMemcpyHtoD")
def write(run: Execution, its: Arguments) -> Result:
    address, size = run.reach(its["to"], its["size"], WRITE), its["size"]
    code = run.enqueued(run.library.call("cuMemcpyHtoD", Handle(address), pattern(its["seed"], size), Size(size)))
    if code == 0:
        run.world.write(its["to"], size)
    return {"code": code}


@makes("cuMemcpyDtoH")
def read(run: Execution, its: Arguments) -> Result:
    address, size = run.reach(its["source"], its["size"], READ), its["size"]
    data = ctypes.create_string_buffer(size + 1)
    code = run.library.call("cuMemcpyDtoH", data, Handle(address), Size(size))
    return {"code": code} if code else {"code": code, **run.digest(its["source"], data.raw[:size])}


@makes("cuMemcpyDtoD", "cuMemcpyDtoDAsync")
def copy(run: Execution, its: Arguments) -> Result:
    size, stream = its["size"], its.get("stream")
    source, target = run.reach(its["source"], size, READ), run.reach(its["to"], size, WRITE)
    if run.world.overlap(its["source"], its["to"], size):
        raise SkippedError(f"{LEFT_OPEN}source and target overlap")
    queue = () if stream is None else (run.stream(stream),)
    code = run.library.call(its["call"], Handle(target), Handle(source), Size(size), *queue)
    run.enqueued(code, stream or "0")
    if code == 0 and size:
        parts = run.world.known(its["source"], size)
        run.world.write(its["to"], size, parts == [(0, size)])
    return {"code": code}


WORDS: Final = {
    "cuMemsetD8": (ctypes.c_ubyte, 1),
    "cuMemsetD16": (ctypes.c_ushort, 2),
    "cuMemsetD32": (ctypes.c_uint, 4),
    "cuMemsetD8Async": (ctypes.c_ubyte, 1),
}


@makes(*WORDS)
def fill(run: Execution, its: Arguments) -> Result:
    word, width = WORDS[its["call"]]
    size, stream = its["count"] * width, its.get("stream")
    address = run.reach(its["to"], size, WRITE)
    queue = () if stream is None else (run.stream(stream),)
    code = run.library.call(its["call"], Handle(address), word(its["value"]), Size(its["count"]), *queue)
    run.enqueued(code, stream or "0")
    if code == 0:
        run.world.write(its["to"], size)
    return {"code": code}
