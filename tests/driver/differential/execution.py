"""One sequence on one library: operands, results that can be compared between libraries, and giving everything back.

What cannot be compared is left out of a result or put in other words: an address becomes the object and offset that it
names, or its alignment; a handle or BUFFER_ID becomes the earlier one that it equals; contents become a digest of the
bytes whose value is known. A query whose answer depends on how far the device is, is marked ``racy``.

How each call is made is in `memory_calls` and `stream_calls`.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from tests.driver.differential.abi import Handle, Library, code_name
from tests.driver.differential.world import MEMORY, Arguments, World, name_of, offset_of

DEVICES: Final = 2
BOOKS_DO_NOT_HOLD: Final = "the books do not hold"
LEFT_OPEN: Final = "left open: "  # begins the reason not to make a call whose outcome is not defined
STICKY: Final = frozenset({700, 702, 709, 710, 714, 715, 716, 717, 718, 719})

Result = dict[str, Any]
Step = dict[str, Any]


class SkippedError(Exception):
    """A step that cannot be made: its operand never came to be, or the call would be undefined."""


class Seat:
    """A process that is ready for sequences: both primary contexts retained. Given back by `close`."""

    def __init__(self, library: Library, lent: Sequence[bytes] = ()) -> None:
        self.library = library
        self.lent = lent  # CUDA IPC handles of another process's memory, one a device
        self.contexts: list[int] = []
        library.ok("cuInit", 0)
        count = ctypes.c_int()
        library.ok("cuDeviceGetCount", ctypes.byref(count))
        if count.value < DEVICES:
            raise RuntimeError(f"devices={count.value}: sequences use {DEVICES}")
        for device in range(DEVICES):
            context = Handle()
            library.ok("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
            self.contexts.append(context.value)
        self.host = ctypes.create_string_buffer(1 << 16)
        self.default_pools: list[int] = []
        for device in range(DEVICES):
            pool = Handle()
            library.call("cuDeviceGetDefaultMemPool", ctypes.byref(pool), device)
            self.default_pools.append(pool.value)

    def enter(self, device: int | None) -> None:
        """Make the device's primary context current, or none."""
        self.library.ok("cuCtxSetCurrent", Handle(0 if device is None else self.contexts[device]))

    def synchronize(self) -> int:
        """Wait for both devices; give the first code that is not success."""
        worst = 0
        for device in range(DEVICES):
            self.enter(device)
            worst = worst or self.library.call("cuCtxSynchronize")
        return worst

    def close(self) -> None:
        """Give the contexts back."""
        for device in range(DEVICES):
            self.library.call("cuDevicePrimaryCtxRelease", device)


class Execution:
    """A sequence that is being executed."""

    def __init__(self, seat: Seat) -> None:
        self.seat = seat
        self.library = seat.library
        self.world = World()
        self.values: dict[str, int] = {}  # handle or address of each object
        self.opaque: dict[str, bytes] = {}  # CUDA IPC handles
        self.buffer_ids: dict[int, str] = {}
        self.pending: set[str] = set()  # streams that may have work
        self.name = ""
        self.step: Arguments = {}
        self.pipe: tuple[int, int] | None = None
        self.lost = ""  # why the books do not hold any more

    # -- steps

    def run(self, steps: list[Step]) -> Iterator[Result]:
        """Make every step; give each result at once."""
        for index, step in enumerate(steps):
            yield self._one(f"@{index}", step)

    def _one(self, name: str, step: Step) -> Result:
        self.name, self.step = name, {**step["with"], "call": step["call"]}
        call = step["call"]
        if self.lost:
            return {"skipped": BOOKS_DO_NOT_HOLD}
        make = CALLS[call]
        try:
            self.seat.enter(self.step["on"])
            result = make(self, self.step)
        except SkippedError as why:
            return {"skipped": str(why)}
        except LookupError as symbol:
            return {"skipped": f"the library has no {symbol}"}
        code = result["code"]
        if code == 0:
            try:
                self.world.apply(name, call, self.step)
            except KeyError:
                self.lost = f"{call} succeeded with operands that nobody made"
        if code in STICKY:
            self.lost = code_name(code)
        result["code"] = code_name(code)
        return result

    # -- operands

    def made(self, name: str, *kinds: str) -> int:
        """Give the handle or address of an object that is alive."""
        if self.world.get(name, *kinds) is None:
            raise SkippedError(f"{name} is not there")
        return self.values[name_of(name)]

    def address(self, text: str) -> int:
        """Give an address: of an object with an offset, "null", or "host"."""
        if text == "null":
            return 0
        if text == "host":
            return ctypes.addressof(self.seat.host)
        return self.made(text, *MEMORY) + offset_of(text)

    def stream(self, text: str) -> Handle:
        """Give a stream; "0" is the legacy default stream."""
        return Handle(0 if text == "0" else self.made(text, "stream"))

    def optional(self, text: str, kind: str) -> Handle:
        """Give an object, or null."""
        return Handle(0 if text == "null" else self.made(text, kind))

    def queue(self, text: str) -> str:
        """Give the name under which a stream's work is known."""
        return f"legacy {self.step['on']}" if text == "0" else text

    # -- work on its way

    def settle(self) -> None:
        """Wait for all work."""
        if self.pending:
            self.pending.clear()
            self.seat.synchronize()
            self.seat.enter(self.step["on"])

    def before(self, stream: str | None = None) -> None:
        """Wait for work of other streams than this one, which could touch the same memory."""
        if self.pending - {self.queue(stream) if stream is not None else ""}:
            self.settle()

    def enqueued(self, code: int, stream: str = "0") -> int:
        """Note that a stream may have work now."""
        self.pending.add(self.queue(stream))
        return code

    def reach(self, address: str, size: int, right: int) -> int:
        """Give the address of memory that the step may use; wait for other work on it first.

        Allowed besides: null, and what cannot be reached by any device, whose error is defined.
        """
        value = self.address(address)
        self.before()
        if address == "null" or size == 0:
            return value
        world, device = self.world, self.step["on"]
        thing = world.get(address, *MEMORY)
        if thing is None or offset_of(address) + size > thing.size:
            raise SkippedError("past the end of the memory")
        if thing.kind != "range":
            return value
        empty = all(
            one.offset >= offset_of(address) + size or one.offset + one.size <= offset_of(address)
            for one in thing.mappings
        )
        if not (empty or world.never_opened(address, size) or world.may(address, size, device, right)):
            raise SkippedError("no right to this memory")
        return value

    # -- results

    def place(self, value: int) -> str:
        """Say which object an address lies in, and where."""
        if value == 0:
            return "null"
        for thing in self.world.alive(*MEMORY):
            offset = value - self.values[thing.name]
            if 0 <= offset < thing.size:
                return f"{thing.name}+{offset}" if offset else thing.name
        return "host" if value == ctypes.addressof(self.seat.host) else "elsewhere"

    def equal(self, value: int, *kinds: str) -> str:
        """Say which object that is alive has this handle."""
        if value == 0:
            return "null"
        return next((one.name for one in self.world.alive(*kinds) if self.values[one.name] == value), "new")

    def context(self, value: int) -> str:
        """Say which context this is."""
        if value == 0:
            return "null"
        return f"primary {self.seat.contexts.index(value)}" if value in self.seat.contexts else "other"

    def pool(self, value: int) -> str:
        """Say which pool this is."""
        if value in self.seat.default_pools and value:
            return f"default {self.seat.default_pools.index(value)}"
        return self.equal(value, "pool")

    def buffer_id(self, value: int) -> str:
        """Say in which step this BUFFER_ID was seen first."""
        return self.buffer_ids.setdefault(value, self.name)

    def keep(self, value: int) -> None:
        """Keep the handle or address that the step made."""
        self.values[self.name] = value

    def digest(self, address: str, data: bytes) -> Result:
        """Say what was read, as far as it was written before."""
        parts = self.world.known(address, len(data))
        sink = hashlib.blake2s(digest_size=8)
        for begin, end in parts:
            sink.update(f"{begin}:".encode() + data[begin:end])
        return {"known": sum(end - begin for begin, end in parts), "digest": sink.hexdigest()}

    # -- the end

    def give_back(self) -> list[str]:
        """End all objects; say which calls failed."""
        self.step = {"on": 0}
        self.pending.clear()
        failed: list[str] = []

        def end(call: str, *arguments: Any) -> None:
            code = self.library.call(call, *arguments)
            if code:
                failed.append(f"{call} {code_name(code)}")

        code = self.seat.synchronize()
        if code:
            failed.append(f"cuCtxSynchronize {code_name(code)}")
        for kind, finish in ENDS.items():
            for thing in self.world.alive(kind):
                self.seat.enter(thing.device)
                finish(self, thing, end)
        if self.pipe is not None:
            for descriptor in self.pipe:
                os.close(descriptor)
        for device, pool in enumerate(self.seat.default_pools):
            if pool:
                end("cuDeviceSetMemPool", device, Handle(pool))
        self.seat.synchronize()
        return failed


End = Callable[..., None]


def _end_range(run: Execution, thing: Any, end: End) -> None:
    base = run.values[thing.name]
    for mapped in thing.mappings:
        end("cuMemUnmap", Handle(base + mapped.offset), ctypes.c_size_t(mapped.size))
    end("cuMemAddressFree", Handle(base), ctypes.c_size_t(thing.size))


def _end_handle(run: Execution, thing: Any, end: End) -> None:
    for _ in range(thing.references):
        end("cuMemRelease", Handle(run.values[thing.name]))


def _end_imported(run: Execution, thing: Any, end: End) -> None:
    for _ in range(thing.references):
        end("cuIpcCloseMemHandle", Handle(run.values[thing.name]))


def _end_descriptor(run: Execution, thing: Any, _: End) -> None:
    os.close(run.values[thing.name])


# In this order: what uses something ends before it.
ENDS: Final[dict[str, Callable[[Execution, Any, End], None]]] = {
    "event": lambda run, thing, end: end("cuEventDestroy", Handle(run.values[thing.name])),
    "pooled": lambda run, thing, end: end("cuMemFreeAsync", Handle(run.values[thing.name]), Handle(0)),
    "stream": lambda run, thing, end: end("cuStreamDestroy", Handle(run.values[thing.name])),
    "plain": lambda run, thing, end: end("cuMemFree", Handle(run.values[thing.name])),
    "imported": _end_imported,
    "range": _end_range,
    "handle": _end_handle,
    "pool": lambda run, thing, end: end("cuMemPoolDestroy", Handle(run.values[thing.name])),
    "descriptor": _end_descriptor,
    "pool descriptor": _end_descriptor,
}

Make = Callable[[Execution, Arguments], Result]
CALLS: Final[dict[str, Make]] = {}


def makes(*names: str) -> Callable[[Make], Make]:
    """Register how calls are made."""

    def register(make: Make) -> Make:
        for name in names:
            CALLS[name] = make
        return make

    return register
