"""What draws of single calls have in common: choosing, operands that are alive, and the books."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tests.driver.differential.abi import GRANULE
from tests.driver.differential.execution import Step
from tests.driver.differential.world import Thing, World

T = TypeVar("T")

WORD = 1 << 60
NO_DEVICE = 9
SIZES = tuple(GRANULE * count for count in (1, 1, 2, 2, 3, 4, 8))


class Drawer:
    """A sequence that is being drawn.

    Parameters
    ----------
    word : callable
        Draws a number below `WORD`. Several choices are taken from one of them.
    """

    def __init__(self, word: Callable[[], int]) -> None:
        self.word = word
        self.rest, self.bound = 0, 1
        self.world = World()
        self.steps: list[Step] = []

    def index(self, count: int) -> int:
        """Draw a number below `count`."""
        if self.bound < count * 16:
            self.rest, self.bound = self.word(), WORD
        self.rest, number = divmod(self.rest, count)
        self.bound //= count
        return number

    def of(self, choices: Sequence[T]) -> T:
        """Draw one of some values."""
        return choices[self.index(len(choices))] if len(choices) > 1 else choices[0]

    def chance(self, of: int) -> bool:
        """Draw true in one of so many cases."""
        return self.index(of) == 0

    def device(self) -> int:
        """Draw a device."""
        return self.index(2)

    def current(self, usual: int) -> int | None:
        """Draw which device's context is current where it should not matter: mostly the usual one, at times none."""
        kind = self.index(16)
        return usual if kind < 13 else None if kind == 13 else 1 - usual

    def thing(self, *kinds: str) -> Thing | None:
        """Draw an object that is alive."""
        living = self.world.alive(*kinds)
        return self.of(living) if living else None

    def add(self, call: str, good: bool = True, on: int | None = 0, **arguments: Any) -> None:
        """Add a step; `good` if it should succeed."""
        its = {"on": on, **arguments}
        if good:
            self.world.apply(f"@{len(self.steps)}", call, its)
        self.steps.append({"call": call, "with": its})

    def make(self, call: str, **arguments: Any) -> Thing:
        """Add a step that makes an object; give that."""
        name = f"@{len(self.steps)}"
        self.add(call, **arguments)
        return self.world.things[name]

    def shared(self, memory: Thing) -> bool:
        """Whether memory is of a pool that can be exported."""
        pool = self.world.get(memory.of, "pool")
        return pool is not None and pool.handle_types & 1 == 1

    def somewhere(self, *kinds: str) -> tuple[str, bool]:
        """Draw an address in an object of some kinds; whether something is mapped there."""
        thing = self.thing(*kinds)
        if thing is None and self.chance(3):
            return self.of(("null", "host")), False
        if thing is None:
            self.add("cuMemAlloc", size=4096)
            return f"@{len(self.steps) - 1}", True
        if thing.kind != "range":
            offset = self.of((0, 0, 1, 256, thing.size - 1))
            offset = min(offset, thing.size - 1)
            return (f"{thing.name}+{offset}" if offset else thing.name), True
        spots = [0, GRANULE, thing.size - 1, *(one.offset + extra for one in thing.mappings for extra in (0, 0, 4096))]
        if thing.mappings and self.chance(2):  # where something is to be found
            spots = spots[3:]
        offset = min(self.of(spots), thing.size - 1)
        mapped = any(one.offset <= offset < one.offset + one.size for one in thing.mappings)
        return (f"{thing.name}+{offset}" if offset else thing.name), mapped
