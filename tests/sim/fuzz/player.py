"""A process that calls a driver at random: the same seed, the same calls, as far as the driver answers alike."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.sim.fuzz.header import Function, Header
from tests.sim.fuzz.record import Record
from tests.sim.fuzz.scenes import SCENES
from tests.sim.fuzz.values import DEVICES, Arena, Values

STALLED: Final = 702  # CUDA_ERROR_LAUNCH_TIMEOUT: nothing can go on, and no call will be carried out any more
GONE: Final = 802  # CUDA_ERROR_SYSTEM_NOT_READY: the client's node is gone
# What ends much that other calls need; drawn less often.
ENDS: Final = ("Destroy", "Release", "Reset", "Free", "Unmap", "Unload", "Unregister", "CtxPop", "SetCurrent")
ENDS_SHARE: Final = 0.25
STUBS_SHARE: Final = 0.04
SCENES_SHARE: Final = 0.04


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """What can be called."""

    header: Header
    functions: Sequence[Function]

    def indices(self, *, simulated: bool) -> list[int]:
        """Give the places of functions that are simulated, or that are not."""
        return [index for index, function in enumerate(self.functions) if function.simulated is simulated]


class Player:
    """Calls one library as one process of the driver.

    Parameters
    ----------
    library : ctypes.CDLL
        The driver.
    surface : Surface
        What can be called.
    seed : str
        Decides everything.
    record : Record
        Is told of each call.
    tell : callable, optional
        Is told of each value that a call answered, for other processes.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        surface: Surface,
        seed: str,
        record: Record,
        tell: Callable[[str, Any], None] | None = None,
    ) -> None:
        self._library = library
        self._surface = surface
        self.chosen = random.Random(seed)
        self._record = record
        self._tell = tell
        self._simulated = surface.indices(simulated=True)
        self._stubs = surface.indices(simulated=False)
        nothing = ctypes.cast(ctypes.CDLL(None).abs, ctypes.c_void_p).value or 0
        self.arena = Arena()
        self.values = Values(surface.header, self.chosen, self.arena, nothing)
        self._places = {function.symbol: index for index, function in enumerate(surface.functions)}

    def start(self) -> None:
        """Do what nearly every program does first: initialise, and make a context current. Sometimes not."""
        if self.chosen.random() < 0.05:
            return
        device = self.chosen.randrange(DEVICES)
        self._library.cuInit(0)
        context = ctypes.c_void_p()
        for each in range(DEVICES):
            self._library.cuDevicePrimaryCtxRetain(ctypes.byref(context), each)
            self.values.remember("CUcontext", context.value or 0)
        self._library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
        self._library.cuCtxSetCurrent(context)

    def play(self, calls: int) -> None:
        """Make so many calls, or until nothing can go on."""
        for _ in range(calls):
            if self.chosen.random() < SCENES_SHARE:
                self.chosen.choice(SCENES)(self)
            if self.call() in (STALLED, GONE):
                return

    def _draw(self) -> int:
        while True:
            index = self.chosen.choice(self._simulated if self.chosen.random() > STUBS_SHARE else self._stubs)
            ends = any(word in self._surface.functions[index].plain for word in ENDS)
            if not ends or self.chosen.random() < ENDS_SHARE:
                return index

    def call(self) -> int:
        """Make one call."""
        index = self._draw()
        function = self._surface.functions[index]
        given = [self.values.argument(function, place, each) for place, each in enumerate(function.parameters)]
        self._record.begin(index, f"{function.symbol}({', '.join(one.text for one in given)})")
        code = self._entry(function)(*[one.value for one in given])
        self._record.end(index, code)
        if code == 0:
            self.values.learn(function, given, self._learn)
        return code

    def good(self, symbol: str, *arguments: Any) -> int:
        """Make a call with these arguments."""
        index = self._places[symbol]
        function = self._surface.functions[index]
        self._record.begin(index, f"{symbol}{arguments}")
        types = [self._surface.header.value_type(each.type) for each in function.parameters]
        given = [
            made.from_buffer_copy(one) if isinstance(one, bytes) else one
            for made, one in zip(types, arguments, strict=True)
        ]
        code = self._entry(function)(*given)
        self._record.end(index, code)
        return code

    def made(self, symbol: str, kind: str, *arguments: Any) -> int:
        """Make a call that writes a number behind its first argument; the number, or 0."""
        place = self.arena.put(bytes(8))
        if self.good(symbol, place, *arguments) != 0:
            return 0
        value = ctypes.c_uint64.from_address(place).value
        self._learn(kind, value)
        return value

    def handle(self, symbol: str, kind: str, of: int) -> None:
        """Make a call that writes a handle for other processes behind its first argument."""
        place = self.arena.put(bytes(64))
        if self.good(symbol, place, of) == 0:
            self._learn(kind, ctypes.string_at(place, 64))

    def _entry(self, function: Function) -> Callable[..., int]:
        entry = getattr(self._library, function.symbol)
        if entry.argtypes is None:
            entry.restype = ctypes.c_int
            entry.argtypes = [self._surface.header.value_type(each.type) for each in function.parameters]
        made: Callable[..., int] = entry
        return made

    def _learn(self, kind: str, value: Any) -> None:
        self.values.remember(kind, value)
        if self._tell is not None:
            self._tell(kind, value)
