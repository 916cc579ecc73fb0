"""How calls about devices, streams, events and pools are made, and what of their answers is compared."""

from __future__ import annotations

import ctypes

from tests.driver.differential.abi import (
    AccessDescription,
    Handle,
    Location,
    Opaque64,
    PoolProperties,
)
from tests.driver.differential.execution import LEFT_OPEN, Execution, Result, SkippedError, makes
from tests.driver.differential.world import Arguments

Size = ctypes.c_size_t
Flags = ctypes.c_uint64
POSIX, INTERPROCESS = 1, 4
QUERIED_MEMORY = (5, 6, 7, 8)  # reserved and used, now and at most


# -- devices and contexts


@makes("cuDeviceGet")
def device_of(run: Execution, its: Arguments) -> Result:
    device = ctypes.c_int()
    code = run.library.call("cuDeviceGet", ctypes.byref(device), its["ordinal"])
    return {"code": code} if code else {"code": code, "device": device.value}


@makes("cuDeviceGetAttribute")
def device_attribute(run: Execution, its: Arguments) -> Result:
    value = ctypes.c_int()
    code = run.library.call("cuDeviceGetAttribute", ctypes.byref(value), its["attribute"], its["device"])
    return {"code": code} if code else {"code": code, "value": value.value}


@makes("cuDeviceCanAccessPeer")
def can_access_peer(run: Execution, its: Arguments) -> Result:
    value = ctypes.c_int()
    code = run.library.call("cuDeviceCanAccessPeer", ctypes.byref(value), its["device"], its["peer"])
    return {"code": code} if code else {"code": code, "value": value.value}


@makes("cuDeviceGetP2PAttribute")
def peer_attribute(run: Execution, its: Arguments) -> Result:
    value = ctypes.c_int()
    code = run.library.call(
        "cuDeviceGetP2PAttribute", ctypes.byref(value), its["attribute"], its["device"], its["peer"]
    )
    return {"code": code} if code else {"code": code, "value": value.value}


@makes("cuCtxGetCurrent")
def current_context(run: Execution, its: Arguments) -> Result:
    context = Handle()
    code = run.library.call("cuCtxGetCurrent", ctypes.byref(context))
    return {"code": code} if code else {"code": code, "context": run.context(context.value)}


@makes("cuCtxGetDevice")
def current_device(run: Execution, its: Arguments) -> Result:
    device = ctypes.c_int()
    code = run.library.call("cuCtxGetDevice", ctypes.byref(device))
    return {"code": code} if code else {"code": code, "device": device.value}


@makes("cuCtxSynchronize")
def synchronize_context(run: Execution, its: Arguments) -> Result:
    return {"code": run.library.call("cuCtxSynchronize")}


# -- streams and events, as they are made


@makes("cuStreamCreate", "cuStreamCreateWithPriority", "cuEventCreate")
def create(run: Execution, its: Arguments) -> Result:
    made = Handle()
    priority = (its["priority"],) if its["call"] == "cuStreamCreateWithPriority" else ()
    code = run.library.call(its["call"], ctypes.byref(made), its["flags"], *priority)
    if code == 0:
        run.keep(made.value)
    return {"code": code}


@makes("cuStreamDestroy")
def destroy_stream(run: Execution, its: Arguments) -> Result:
    return {"code": run.library.call("cuStreamDestroy", Handle(run.made(its["stream"], "stream")))}


@makes("cuStreamQuery")
def query_stream(run: Execution, its: Arguments) -> Result:
    racy = bool(run.pending)
    code = run.library.call("cuStreamQuery", run.stream(its["stream"]))
    return {"code": code, "racy": True} if racy else {"code": code}


@makes("cuStreamSynchronize")
def synchronize_stream(run: Execution, its: Arguments) -> Result:
    code = run.library.call("cuStreamSynchronize", run.stream(its["stream"]))
    if code == 0 and its["stream"] != "0":
        run.pending.discard(its["stream"])
    return {"code": code}


@makes("cuStreamWaitEvent")
def wait_event(run: Execution, its: Arguments) -> Result:
    stream, event = run.stream(its["stream"]), run.optional(its["event"], "event")
    code = run.library.call("cuStreamWaitEvent", stream, event, its["flags"])
    return {"code": run.enqueued(code, its["stream"])}


@makes("cuStreamGetFlags", "cuStreamGetPriority")
def stream_number(run: Execution, its: Arguments) -> Result:
    value = ctypes.c_int()
    code = run.library.call(its["call"], run.stream(its["stream"]), ctypes.byref(value))
    return {"code": code} if code else {"code": code, "value": value.value}


@makes("cuStreamGetCtx")
def stream_context(run: Execution, its: Arguments) -> Result:
    context = Handle()
    code = run.library.call("cuStreamGetCtx", run.stream(its["stream"]), ctypes.byref(context))
    return {"code": code} if code else {"code": code, "context": run.context(context.value)}


# -- events


@makes("cuEventDestroy")
def destroy_event(run: Execution, its: Arguments) -> Result:
    return {"code": run.library.call("cuEventDestroy", Handle(run.made(its["event"], "event")))}


@makes("cuEventRecord", "cuEventRecordWithFlags")
def record_event(run: Execution, its: Arguments) -> Result:
    event, stream = run.optional(its["event"], "event"), run.stream(its["stream"])
    flags = (its["flags"],) if its["call"] == "cuEventRecordWithFlags" else ()
    return {"code": run.enqueued(run.library.call(its["call"], event, stream, *flags), its["stream"])}


@makes("cuEventQuery")
def query_event(run: Execution, its: Arguments) -> Result:
    racy = bool(run.pending)
    code = run.library.call("cuEventQuery", run.optional(its["event"], "event"))
    return {"code": code, "racy": True} if racy else {"code": code}


@makes("cuEventSynchronize")
def synchronize_event(run: Execution, its: Arguments) -> Result:
    return {"code": run.library.call("cuEventSynchronize", run.optional(its["event"], "event"))}


@makes("cuEventElapsedTime")
def elapsed_time(run: Execution, its: Arguments) -> Result:
    """Only whether there is one: how long something takes is not the same anywhere."""
    value, racy = ctypes.c_float(), bool(run.pending)
    start, end = run.optional(its["start"], "event"), run.optional(its["end"], "event")
    code = run.library.call("cuEventElapsedTime", ctypes.byref(value), start, end)
    return {"code": code, "racy": True} if racy else {"code": code}


@makes("cuIpcGetEventHandle")
def ipc_event(run: Execution, its: Arguments) -> Result:
    handle, event = Opaque64(), run.optional(its["event"], "event")
    made = run.world.get(its["event"], "event")
    if made is not None and made.flags & INTERPROCESS and its["on"] not in (None, made.device):
        raise SkippedError(f"{LEFT_OPEN}real drivers crashed where another context was current")
    return {"code": run.library.call("cuIpcGetEventHandle", ctypes.byref(handle), event)}


# -- pools


@makes("cuDeviceGetDefaultMemPool", "cuDeviceGetMemPool")
def device_pool(run: Execution, its: Arguments) -> Result:
    pool = Handle()
    code = run.library.call(its["call"], ctypes.byref(pool), its["device"])
    return {"code": code} if code else {"code": code, "pool": run.pool(pool.value)}


@makes("cuDeviceSetMemPool")
def set_device_pool(run: Execution, its: Arguments) -> Result:
    return {"code": run.library.call("cuDeviceSetMemPool", its["device"], pool_of(run, its["pool"]))}


def pool_of(run: Execution, text: str) -> Handle:
    """Give a pool: of the sequence, "default 0", or "null"."""
    kind, _, device = text.partition(" ")
    if kind == "default":
        if not run.seat.default_pools[int(device)]:
            raise SkippedError("the library has no default pools")
        return Handle(run.seat.default_pools[int(device)])
    return run.optional(text, "pool")


@makes("cuMemPoolCreate")
def create_pool(run: Execution, its: Arguments) -> Result:
    wanted = PoolProperties(type=its["kind"], handle_types=its["types"], max_size=its["max_size"])
    wanted.location = Location(its["location"], its["device"])
    pool = Handle()
    code = run.library.call("cuMemPoolCreate", ctypes.byref(pool), ctypes.byref(wanted))
    if code:
        return {"code": code}
    same = run.equal(pool.value, "pool")
    run.keep(pool.value)
    return {"code": code, "pool": same}


@makes("cuMemPoolDestroy")
def destroy_pool(run: Execution, its: Arguments) -> Result:
    pool = pool_of(run, its["pool"])
    if run.world.in_use(its["pool"]):
        raise SkippedError(f"{LEFT_OPEN}real drivers hung and crashed where a pool's memory outlived it")
    run.settle()
    return {"code": run.library.call("cuMemPoolDestroy", pool)}


@makes("cuMemPoolTrimTo")
def trim_pool(run: Execution, its: Arguments) -> Result:
    pool = pool_of(run, its["pool"])
    run.settle()
    return {"code": run.library.call("cuMemPoolTrimTo", pool, Size(its["keep"]))}


@makes("cuMemPoolGetAttribute")
def pool_attribute(run: Execution, its: Arguments) -> Result:
    value, pool = ctypes.c_uint64(), pool_of(run, its["pool"])
    if its["attribute"] in QUERIED_MEMORY:
        run.settle()
    code = run.library.call("cuMemPoolGetAttribute", pool, its["attribute"], ctypes.byref(value))
    return {"code": code} if code else {"code": code, "value": value.value}


@makes("cuMemPoolSetAttribute")
def set_pool_attribute(run: Execution, its: Arguments) -> Result:
    value, pool = ctypes.c_uint64(its["value"]), pool_of(run, its["pool"])
    run.settle()
    return {"code": run.library.call("cuMemPoolSetAttribute", pool, its["attribute"], ctypes.byref(value))}


@makes("cuMemPoolGetAccess")
def pool_access(run: Execution, its: Arguments) -> Result:
    flags, place, pool = ctypes.c_int(), Location(its["location"], its["device"]), pool_of(run, its["pool"])
    code = run.library.call("cuMemPoolGetAccess", ctypes.byref(flags), pool, ctypes.byref(place))
    return {"code": code} if code else {"code": code, "flags": flags.value}


@makes("cuMemPoolSetAccess")
def set_pool_access(run: Execution, its: Arguments) -> Result:
    wanted, pool = its["access"], pool_of(run, its["pool"])
    run.settle()
    descriptions = (AccessDescription * max(len(wanted), 1))()
    for description, (kind, device, flags) in zip(descriptions, wanted, strict=False):
        description.location, description.flags = Location(kind, device), flags
    return {"code": run.library.call("cuMemPoolSetAccess", pool, descriptions, Size(len(wanted)))}


@makes("cuMemAllocAsync", "cuMemAllocFromPoolAsync")
def allocate_in_order(run: Execution, its: Arguments) -> Result:
    address, stream = Handle(), run.stream(its["stream"])
    pool = (pool_of(run, its["pool"]),) if its["call"] == "cuMemAllocFromPoolAsync" else ()
    code = run.library.call(its["call"], ctypes.byref(address), Size(its["size"]), *pool, stream)
    if code:
        return {"code": code}
    run.enqueued(code, its["stream"])
    told = {"code": code, "modulo": address.value % 512, "in": run.place(address.value)}
    run.keep(address.value)
    return told


@makes("cuMemFreeAsync")
def free_in_order(run: Execution, its: Arguments) -> Result:
    address, stream = run.address(its["address"]), run.stream(its["stream"])
    run.before(its["stream"])
    return {"code": run.enqueued(run.library.call("cuMemFreeAsync", Handle(address), stream), its["stream"])}


@makes("cuMemPoolExportToShareableHandle")
def export_pool(run: Execution, its: Arguments) -> Result:
    room, pool = Opaque64(), pool_of(run, its["pool"])
    code = run.library.call(
        "cuMemPoolExportToShareableHandle", ctypes.byref(room), pool, its["type"], Flags(its["flags"])
    )
    if code == 0 and its["type"] == POSIX:
        run.keep(ctypes.c_int.from_buffer(room).value)
    return {"code": code}


@makes("cuMemPoolExportPointer")
def export_pointer(run: Execution, its: Arguments) -> Result:
    data, address = Opaque64(), run.address(its["address"])
    return {"code": run.library.call("cuMemPoolExportPointer", ctypes.byref(data), Handle(address))}
