"""Wild arguments.

Null, small numbers, handles that are good, were given back, are another process's or of another kind, addresses that
lead nowhere, sizes that are odd or huge.

Memory of the program is never wild where the driver has to follow a pointer: it is null, or a *buffer* with wild
contents that is as long as any copy can be, because every buffer lies at the beginning of a mapping that is far larger
than the simulated devices' memory.
"""

from __future__ import annotations

import ctypes
import mmap
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.sim.fuzz.header import FUNCTION_FIELD, Function, Header, Parameter, Type, UnknownTypeError

DEVICES: Final = 2
ARENA_BYTES: Final = 64 << 30
INPUT_BYTES: Final = 1 << 16
INPUTS: Final = 64
DATA: Final = 8
DATA_BYTES: Final = 4 << 20
KEPT: Final = 48  # values of a type
DEVICE_BEGIN, DEVICE_END = 1 << 48, 1 << 49
MODULE_MAGIC: Final = 0x454C55444F4D4953
FIRST_ATTRIBUTES: Final = 24

GRANULE: Final = 2 << 20
SIZES: Final = (0, 1, 3, 4, 8, 100, 512, 4096, 65536, 1 << 20, 2 << 20, 4 << 20, (2 << 20) + 1, 3 << 20)
MOSTLY_ZERO: Final = ("flags", "alignment", "offset", "reserved")
HUGE: Final = (1 << 40, (1 << 40) + 1, 1 << 48, (1 << 62) + 1, 1 << 63, (1 << 64) - 1, (1 << 64) - (2 << 20))
SMALL: Final = (2, 3, 4, 5, 7, 8, 16, 31, 32, 64, 255, 256)
WILD: Final = (-1, -2, 1 << 15, 1 << 16, 1 << 20, (1 << 31) - 1, -(1 << 31), 0x55555555)

# Pointers that are numbers to the driver, which looks them up and does not follow them: by function, and which.
NUMBERS: Final = {
    ("cuMemFreeHost", 0): "host",
    ("cuMemHostUnregister", 0): "host",
    ("cuMemHostGetFlags", 1): "host",
    ("cuMemHostGetDevicePointer", 1): "host",
    ("cuMemRetainAllocationHandle", 1): "CUdeviceptr",
    ("cuMemImportFromShareableHandle", 1): "descriptor",
    ("cuMemPoolImportFromShareableHandle", 1): "descriptor",
}

# What a struct is filled with to be understood; then a field of it may be made wild.
GOOD: Final[dict[str, dict[str, int | dict[str, int]]]] = {
    "CUmemAllocationProp": {"type": 1, "requestedHandleTypes": 1, "location": {"type": 1}},
    "CUmulticastObjectProp": {"numDevices": 1, "size": 2 << 20, "handleTypes": 1},
    "CUmemPoolProps": {"allocType": 1, "handleTypes": 1, "location": {"type": 1}},
    "CUmemAccessDesc": {"location": {"type": 1}, "flags": 3},
    "CUmemLocation": {"type": 1},
    "CUctxCreateParams": {},
}


@dataclass(frozen=True, slots=True)
class Given:
    """An argument: what `ctypes` passes, and how it reads."""

    value: Any
    text: str


class Arena:
    """The mapping in which all memory lies that the driver is given pointers to."""

    def __init__(self) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
        self._map = mmap.mmap(-1, ARENA_BYTES, flags=flags)
        self.begin = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self._next = 0

    def put(self, data: bytes) -> int:
        """Give a buffer that begins with some bytes; the rest is what it had before."""
        self._next = (self._next + 1) % INPUTS
        at = self._next * INPUT_BYTES
        self._map[at : at + len(data)] = data
        return self.begin + at

    def data(self, number: int) -> int:
        """Give memory for copies."""
        return self.begin + INPUTS * INPUT_BYTES + number % DATA * DATA_BYTES

    def holds(self, address: int) -> bool:
        """Whether an address lies here."""
        return self.begin <= address < self.begin + ARENA_BYTES


class Values:
    """Draws arguments, and remembers what calls answered."""

    def __init__(self, header: Header, chosen: random.Random, arena: Arena, kernel: int) -> None:
        self.pools: dict[str, list[Any]] = {}
        self.foreign: dict[str, list[Any]] = {}  # another process's
        self._header = header
        self._chosen = chosen
        self._arena = arena
        self._callbacks = [ctypes.CFUNCTYPE(None)(lambda: None), ctypes.CFUNCTYPE(ctypes.c_size_t)(lambda: 0)]
        self._texts: Sequence[bytes] = (b"", b"kernel", b"cuInit", b"cuMemAlloc", b"0000:01:00.0", b"a" * 5000)
        self._image(kernel)

    def _image(self, kernel: int) -> None:
        """A module with a function of this process, which does nothing with what it gets."""
        name, sizes = ctypes.create_string_buffer(b"kernel"), (ctypes.c_size_t * 1)(8)
        row = (ctypes.c_uint64 * 4)(ctypes.addressof(name), kernel, ctypes.addressof(sizes), 1)
        whole = (ctypes.c_uint64 * 3)(MODULE_MAGIC, 1 | 1 << 32, ctypes.addressof(row))
        self._keep: list[Any] = [name, sizes, row, whole]
        self.module = ctypes.addressof(whole)

    def remember(self, kind: str, value: Any) -> None:
        """Keep a value that a call answered."""
        pool = self.pools.setdefault(kind, [])
        if len(pool) >= KEPT and kind != "descriptor":
            pool.pop(self._chosen.randrange(KEPT))
        pool.append(value)

    def _known(self, kind: str) -> Any:
        """Give a value of a kind, or None: mostly a late one, sometimes another process's."""
        pools = self.foreign if self._chosen.random() < 0.1 and self.foreign.get(kind) else self.pools
        pool = pools.get(kind)
        if not pool:
            return None
        late = self._chosen.random() < 0.6
        return self._chosen.choice(pool[-4:] if late else pool)

    def _any_number(self) -> int:
        """Give a number that means something else, or nothing."""
        chosen = self._chosen
        kinds = [kind for kind, pool in self.pools.items() if isinstance(pool[0], int)]
        if kinds and chosen.random() < 0.4:
            return int(chosen.choice(self.pools[chosen.choice(sorted(kinds))]))
        return chosen.choice((0, 1, 2, 3, chosen.getrandbits(64), chosen.getrandbits(48), (1 << 64) - 1))

    def _handle(self, kind: str) -> int:
        known = self._known(kind)
        roll = self._chosen.random()
        if known is not None and roll < 0.75:
            return int(known)
        return 0 if roll < 0.9 else self._any_number()

    def _address(self, function: Function) -> int:
        """Give an address: of device memory, page-locked memory, a buffer, or nowhere that host memory could be."""
        chosen = self._chosen
        known = self._known("CUdeviceptr" if chosen.random() < 0.85 else "host")
        roll = chosen.random()
        if known is not None and roll < 0.8:
            address = int(known) + (0 if roll < 0.6 else chosen.choice((1, 4, 512, 4096, 1 << 20, (2 << 20) - 1, -1)))
            followed = "Memcpy" in function.plain or "memcpy" in function.plain
            if not followed or DEVICE_BEGIN <= address < DEVICE_END or self._arena.holds(address):
                return address % (1 << 64)
        if roll > 0.95:
            return self._arena.data(chosen.randrange(DATA))
        return chosen.choice(
            (0, 1, 5, chosen.randrange(DEVICE_BEGIN, DEVICE_END), DEVICE_END - 1, 1 << 62, (1 << 64) - 4)
        )

    def _size(self) -> int:
        roll = self._chosen.random()
        if roll < 0.45:
            return GRANULE
        if roll < 0.85:
            return self._chosen.choice(SIZES)
        return self._chosen.choice(HUGE) if roll < 0.95 else self._chosen.getrandbits(64) | 1 << 40

    def _small(self) -> int:
        roll = self._chosen.random()
        if roll < 0.75:
            return 0 if roll < 0.45 else 1
        return self._chosen.choice(SMALL if roll < 0.92 else WILD)

    def _enumerator(self, name: str) -> int:
        known, roll = self._header.enumerations[name], self._chosen.random()
        if roll < 0.35 and 1 in known:
            return 1
        if roll < 0.95 and known:
            return self._chosen.choice(known[:FIRST_ATTRIBUTES] if roll < 0.7 else known)
        return self._chosen.choice(WILD)

    def number(self, of: Type, function: Function) -> int:
        """Give a value for something that is no struct and no pointer."""
        name = self._header.plain_name(of.name)
        if name == "CUdeviceptr":
            return self._address(function)
        if name in self._header.handles or name == "CUmemGenericAllocationHandle":
            return self._handle(name)
        if name in self._header.functions_of_program:
            if self._chosen.random() < 0.2:
                return 0
            return ctypes.cast(self._callbacks["B2D" in name], ctypes.c_void_p).value or 0
        if name in self._header.enumerations:
            return self._enumerator(name)
        if name == "CUdevice":
            return self._chosen.choice((0, 0, 1, 1, self._small()))
        wide = ctypes.sizeof(self._header.scalars[of.name]) == 8
        return self._size() if wide else self._small()

    def _scalar(self, of: Type, function: Function) -> Any:
        value = self._header.value_type(of)
        if value in (ctypes.c_float, ctypes.c_double):
            return value(self._chosen.choice((0.0, 1.0, -1.0, float("nan"), float("inf"))))
        if value is ctypes.c_char:
            return value(self._chosen.randrange(256))
        return value(self.number(of, function))

    def struct(self, name: str, function: Function) -> ctypes.Structure | ctypes.Union:
        """Give a struct with wild contents, or with good ones of which a field may be wild."""
        made = self._header.aggregates[name]()
        good = GOOD.get(self._header.plain_name(name))
        if good is None or self._chosen.random() < 0.1:
            self._fill(made, function, 0.7)
            return made
        for field, value in good.items():
            inner = getattr(made, field)
            if isinstance(value, dict):
                for part, number in value.items():
                    setattr(inner, part, number)
                inner.id = self._chosen.randrange(DEVICES)
            else:
                setattr(made, field, value)
        if "numDevices" in good:
            made.numDevices = self._chosen.randint(1, DEVICES)
        if self._chosen.random() < 0.2:
            self._fill(made, function, 0.3)
        return made

    def _fill(self, made: Any, function: Function, share: float) -> None:
        types = self._header.fields.get(type(made), {})
        for field, *_ in made._fields_:
            of, now = types.get(field), getattr(made, field)
            if isinstance(now, ctypes.Structure | ctypes.Union):
                self._fill(now, function, share)
            elif of is None or self._chosen.random() > share or isinstance(now, ctypes.Array | bytes):
                continue
            elif of.pointers:
                setattr(made, field, self._pointer(of, function).value)
            elif of.name == FUNCTION_FIELD:
                setattr(made, field, None)
            else:
                setattr(made, field, self._scalar(of, function).value)

    def _contents(self, of: Type, function: Function) -> bytes:
        """Give some elements of a type."""
        one = Type(name=of.name)
        if of.name in self._header.aggregates:
            return b"".join(bytes(self.struct(of.name, function)) for _ in range(3))
        try:
            return b"".join(bytes(self._scalar(one, function)) for _ in range(8))
        except UnknownTypeError:
            return bytes(256)

    def _pointer(self, of: Type, function: Function) -> Given:
        chosen = self._chosen
        if chosen.random() < 0.06:
            return Given(None, "null")
        if of.pointers > 1:
            buffers = [self._arena.put(b"") if chosen.random() < 0.98 else 0 for _ in range(16)]
            return Given(self._arena.put(b"".join(address.to_bytes(8, "little") for address in buffers)), "buffers")
        if of.name == "void":
            if function.plain == "cuModuleLoadData" and chosen.random() < 0.8:
                return Given(self.module, "module")
            place = chosen.randrange(DATA)
            return Given(self._arena.data(place), f"data{place}")
        if of.name == "char":
            text = chosen.choice(self._texts)
            return Given(self._arena.put(text + b"\0"), repr(text[:20]))
        contents = self._contents(of, function)
        return Given(self._arena.put(contents), f"[{contents[:48].hex()}]")

    def argument(self, function: Function, index: int, parameter: Parameter) -> Given:
        """Draw an argument."""
        of = parameter.type
        kind = NUMBERS.get((function.plain, index))
        if kind is not None:
            known = self._known(kind)
            number = known if known is not None and self._chosen.random() < 0.8 else self._any_number()
            return Given(number % (1 << 64), hex(number))
        if of.pointers:
            return self._pointer(of, function)
        if of.name in self._header.aggregates:
            made = self._header.aggregates[of.name]
            known = self._known(self._header.plain_name(of.name))
            wild = known is None or self._chosen.random() < 0.15
            data = self._chosen.randbytes(ctypes.sizeof(made)) if wild else known
            return Given(made.from_buffer_copy(data), f"<{data[:16].hex()}>")
        zero = parameter.name.lower().endswith(MOSTLY_ZERO) or (function.plain, parameter.name) == (
            "cuMemAddressReserve",
            "addr",
        )
        if zero and self._chosen.random() < 0.8 and of.name not in self._header.enumerations:
            return Given(0, "0")
        scalar = self._scalar(of, function)
        value = scalar.value
        return Given(scalar, hex(value) if isinstance(value, int) and abs(value) > 4096 else repr(value))

    def learn(self, function: Function, given: Sequence[Given], tell: Callable[[str, Any], None]) -> None:
        """Remember what a call that succeeded has written."""
        for index, (parameter, argument) in enumerate(zip(function.parameters, given, strict=True)):
            of = parameter.type
            if of.pointers == 0 or of.constant or not argument.value or (function.plain, index) in NUMBERS:
                continue
            name = self._header.plain_name(of.name)
            if of.name == "void" and of.pointers == 1 and "Export" in function.plain:
                tell("descriptor", ctypes.c_int32.from_address(argument.value).value)
            elif of.name == "void" and of.pointers == 2 and "Host" in function.plain:
                tell("host", ctypes.c_uint64.from_address(argument.value).value)
            elif of.pointers == 1 and (name in self._header.handles or name in KEPT_NUMBERS):
                tell(name, ctypes.c_uint64.from_address(argument.value).value)
            elif of.pointers == 1 and name in KEPT_STRUCTS:
                size = ctypes.sizeof(self._header.aggregates[of.name])
                tell(name, ctypes.string_at(argument.value, size))


KEPT_NUMBERS: Final = frozenset({"CUdeviceptr", "CUmemGenericAllocationHandle"})
KEPT_STRUCTS: Final = frozenset({"CUipcMemHandle", "CUipcEventHandle", "CUmemPoolPtrExportData", "CUmemFabricHandle"})
