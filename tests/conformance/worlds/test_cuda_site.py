"""A rank's place on a real driver, here on the simulated one as an ordinary library: the calls are the same.

Not verified: where a real driver puts buffers, and what its copies wait for.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from allranks import sim
from allranks.conformance import program as p
from allranks.conformance.worlds import cuda_site
from allranks.conformance.worlds.cuda_site import CudaSite
from allranks.conformance.worlds.memory import UserMemory
from allranks.conformance.worlds.site import Site, Where
from allranks.driver import Driver
from allranks.errors import DriverError

MIB = 1 << 20
SIZE = 2 * MIB
KINDS: tuple[p.MemoryKind, ...] = ("plain", "vmm", "segments")


def free_bytes(driver: Driver) -> int:
    return driver.mem_get_info()[0]


@pytest.fixture
def driver() -> Iterator[Driver]:
    """Give the driver with the device held, as a worker holds it; every site gives all its memory back."""
    found = Driver.load(sim.library_path())
    found.init()
    found.set_device(0)
    before = free_bytes(found)
    yield found
    assert free_bytes(found) == before
    found.reset_device(0)


@pytest.fixture
def site(driver: Driver) -> Iterator[CudaSite]:
    made = CudaSite(driver, 0)
    made.open()
    yield made
    made.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 4100, SIZE, 5 * MIB + 12])
def test_a_buffer_is_zero_and_holds_what_is_written(site: CudaSite, kind: p.MemoryKind, size: int) -> None:
    block = site.allocate(size, kind, Where())
    assert site.peek(block.address, size) == bytes(size)
    stored = np.arange(size, dtype=np.uint8)
    site.poke(block.address, stored)
    assert site.peek(block.address, size) == stored.tobytes()
    site.free(block)
    again = site.allocate(size, kind, Where())  # what was freed may be given again, with what was in it
    assert site.peek(again.address, size) == bytes(size)


@pytest.mark.parametrize("kind", KINDS)
def test_all_memory_of_a_buffer_is_given_back(site: CudaSite, driver: Driver, kind: p.MemoryKind) -> None:
    before = free_bytes(driver)
    block = site.allocate(5 * MIB, kind, Where())
    assert len(block.handles) == {"plain": 0, "vmm": 1, "segments": 3}[kind]
    assert free_bytes(driver) <= before - 5 * MIB
    site.free(block)
    assert free_bytes(driver) == before
    if kind != "plain":
        reserved = driver.mem_address_reserve(SIZE, 0, block.address)
        assert reserved == block.address  # the addresses, too
        driver.mem_address_free(reserved, SIZE)


@pytest.mark.parametrize("kind", KINDS)
def test_only_live_buffers_are_read_and_written(site: CudaSite, kind: p.MemoryKind) -> None:
    block = site.allocate(SIZE, kind, Where())
    for address, size in ((block.address - 1, 1), (block.address, SIZE + 1), (block.address + SIZE, 1)):
        with pytest.raises(ValueError, match="not within a live block"):
            site.peek(address, size)
        with pytest.raises(ValueError, match="not within a live block"):
            site.poke(address, bytes(size))
    site.free(block)
    with pytest.raises(ValueError, match="not within a live block"):
        site.peek(block.address, 1)


def test_closing_takes_back_what_was_not_freed(driver: Driver) -> None:
    before = free_bytes(driver)
    made = CudaSite(driver, 0, shift_bytes=3 * MIB)
    made.open()
    for kind in KINDS:
        made.allocate(SIZE, kind, Where())
    assert free_bytes(driver) < before
    made.close()
    made.close()
    assert free_bytes(driver) == before
    assert made.live == {}


def test_a_place_that_was_never_opened_has_nothing_to_give_back(driver: Driver) -> None:
    CudaSite(driver, 0).close()
    driver.synchronize()  # the device that others hold is there still


def test_a_shift_moves_addresses(driver: Driver) -> None:
    found = []
    for shift in (0, 64 * MIB):
        made = CudaSite(driver, 0, shift_bytes=shift)
        made.open()
        found.append(made.allocate(SIZE, "vmm", Where()).address)
        made.close()
    assert found[0] != found[1]


def test_placements(site: CudaSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_site, "_EQUAL_BASE", 3 << 47)  # device addresses of the simulated driver lie higher
    memory = UserMemory(site, 0)

    def placed(ordinal: int, placement: p.Placement) -> int:
        memory.allocate(ordinal, p.Allocate(size_bytes=SIZE, placement=placement), ordinal)
        return memory.live[ordinal].address

    first = placed(0, "low")
    memory.free(0)
    assert placed(1, "reuse") == first
    memory.free(1)
    assert placed(2, "never_reuse") != first
    assert placed(3, "equal") == site.equal_address(3)
    memory.free_all()


def test_a_wish_that_the_driver_does_not_grant_is_forgotten(site: CudaSite) -> None:
    taken = site.allocate(SIZE, "vmm", Where())
    for wish in (taken.address, taken.address + 512, (1 << 63) + SIZE):
        block = site.allocate(SIZE, "vmm", Where(wish=wish))
        assert block.address != taken.address
        site.poke(block.address, b"x")
    assert site.peek(taken.address, 1) == b"\0"


@pytest.mark.parametrize("kind", KINDS)
def test_want_of_memory_leaves_nothing(site: CudaSite, driver: Driver, kind: p.MemoryKind) -> None:
    before = free_bytes(driver)
    with pytest.raises(DriverError, match="OUT_OF_MEMORY"):
        site.allocate(1 << 40, kind, Where()) if kind != "segments" else _fill(site, driver)
    assert site.live == {}
    assert free_bytes(driver) == before


def _fill(site: CudaSite, driver: Driver) -> None:
    """Ask for segments when there is room for the first of them only."""
    left = free_bytes(driver)
    granularity = site.granularity_bytes
    handle = driver.mem_create((left // granularity - 1) * granularity, 0)
    try:
        site.allocate(3 * granularity, "segments", Where())
    finally:
        driver.mem_release(handle)


def test_a_failing_call_does_not_keep_the_rest_from_being_given_back(site: CudaSite, driver: Driver) -> None:
    before = free_bytes(driver)
    block = site.allocate(SIZE, "vmm", Where())
    driver.mem_unmap(block.address, SIZE)
    driver.mem_release(block.handles[0])  # by somebody who should not have
    with pytest.raises(DriverError, match="cuMemRelease"):
        site.free(block)
    assert site.live == {}
    assert free_bytes(driver) == before


def test_what_the_place_cannot_tell(site: CudaSite) -> None:
    block = site.allocate(SIZE, "vmm", Where())
    seen: Site = site  # as a world knows it
    assert (seen.resolve(block.address, 4), seen.usage(), seen.calls()) == (None, None, None)
