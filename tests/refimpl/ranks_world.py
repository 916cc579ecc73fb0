"""Ranks for the communicator's tests: one thread each, taking turns on one simulated host, each with its driver."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from allranks import refimpl, sim
from allranks.driver import Driver

QUIET_LIMIT_S = 120.0


@dataclass(slots=True)
class Buffer:
    """Device memory of one rank: physical, reserved, mapped; or plain."""

    rank: Rank
    size: int
    address: int
    mapped_bytes: int
    handle: int | None

    def write(self, data: npt.NDArray[Any] | bytes, offset: int = 0) -> None:
        """Copy to the device."""
        self.rank.driver.copy_to_device(self.address + offset, data)

    def read(self, dtype: str = "uint8", count: int = -1, offset: int = 0) -> npt.NDArray[Any]:
        """Copy from the device."""
        size = self.size - offset if count < 0 else count * np.dtype(dtype).itemsize
        return np.frombuffer(self.rank.driver.copy_from_device(self.address + offset, size), dtype=dtype)

    def free(self) -> None:
        """Give everything back."""
        driver = self.rank.driver
        if self.handle is None:
            driver.mem_free(self.address)
            return
        driver.mem_unmap(self.address, self.mapped_bytes)
        driver.mem_address_free(self.address, self.mapped_bytes)
        driver.mem_release(self.handle)


@dataclass(slots=True)
class Rank:
    """What the body of a test gets for its rank."""

    rank: int
    rank_count: int
    driver: Driver
    process: sim.Process
    rendezvous: refimpl.InProcessRendezvous
    options: refimpl.Options
    buffers: list[Buffer] = field(default_factory=list)

    def open(self, options: refimpl.Options | None = None) -> refimpl.Communicator:
        """Open a communicator; collective."""
        return refimpl.Communicator(
            bootstrap=self.rendezvous.bootstrap(self.rank),
            driver=self.driver,
            device=self.rank,
            options=options or self.options,
        )

    def allocate(self, size: int, *, shareable: bool = True, fill: int = 0xCD) -> Buffer:
        """Create memory and map it; filled with one byte value."""
        granularity = self.driver.mem_granularity(self.rank)
        mapped = -(-size // granularity) * granularity
        handle = self.driver.mem_create(mapped, self.rank, shareable)
        address = self.driver.mem_address_reserve(mapped)
        self.driver.mem_map(address, mapped, handle)
        self.driver.mem_set_access(address, mapped, [self.rank])
        self.driver.memset8(address, fill, mapped)
        return Buffer(self, size, address, mapped, handle)

    def allocate_plain(self, size: int) -> Buffer:
        """Allocate with cuMemAlloc."""
        return Buffer(self, size, self.driver.mem_alloc(size), size, None)


@dataclass(slots=True)
class Outcome:
    """What became of a run."""

    values: list[Any]
    errors: list[BaseException | None]
    stalled: bool
    report: dict[str, Any]
    ledger: list[sim.LedgerEntry]
    incidents: list[dict[str, Any]]
    node: sim.Node

    def succeed(self) -> list[Any]:
        """Give what the ranks returned; an error of one is raised, and what is left over is one."""
        for error in self.errors:
            if error is not None:
                raise error
        assert not self.stalled, self.report
        left = [entry for entry in self.ledger if entry.kind != "context"]
        assert left == []
        assert self.incidents == []
        return self.values


def run_ranks(
    rank_count: int,
    body: Callable[[Rank], Any],
    *,
    machine: sim.Machine | None = None,
    options: refimpl.Options | None = None,
    schedule: Sequence[tuple[int, int]] | Callable[[int, int], int] = (),
    prepare: Callable[[list[sim.Process]], None] | None = None,
) -> Outcome:
    """Run `body` on every rank, each on a device of its own, and say what became of it."""
    node = sim.Node(machine or sim.machine("h100", devices=rank_count))
    rules: tuple[sim.PlacementRule, ...] = ("low", "high", "never_reuse")
    processes = [node.create_process(rank, sim.Placement(rule=rules[rank % 3])) for rank in range(rank_count)]
    if prepare is not None:
        prepare(processes)
    rendezvous = refimpl.InProcessRendezvous(rank_count)
    values: list[Any] = [None] * rank_count
    errors: list[BaseException | None] = [None] * rank_count

    def rank_main(rank: int) -> None:
        processes[rank].enter(rank)
        try:
            driver = Driver.load(sim.library_path())
            driver.init()
            driver.set_device(rank)
            here = Rank(
                rank, rank_count, driver, processes[rank], rendezvous, options or refimpl.Options(timeout_s=None)
            )
            values[rank] = body(here)
            driver.reset_device(rank)
        except BaseException as error:
            errors[rank] = error.with_traceback(None)
        finally:
            sim.leave()

    node.run_begin(rank_count, schedule)
    threads = [threading.Thread(target=rank_main, args=(rank,)) for rank in range(rank_count)]
    collecting = gc.isenabled()
    gc.disable()  # what an earlier test left would make its driver calls here, in the name of a rank
    try:
        for thread in threads:
            thread.start()
        assert node.run_wait(QUIET_LIMIT_S), "a task kept the turn"
        for thread in threads:
            thread.join()
    finally:
        if collecting:
            gc.enable()
    outcome = Outcome(values, errors, node.stalled, node.run_report(), node.ledger(), node.incidents(), node)
    node.check_invariants()
    return outcome
