"""Episodes on the driver that is part of the program: two virtual processes of a node take turns in a run.

The driver itself says when nothing can go on: the run has stalled, and every call answers so.
"""

from __future__ import annotations

import ctypes
import os
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from allranks import sim
from tests.sim.fuzz.player import Player, Surface
from tests.sim.fuzz.record import Record
from tests.sim.fuzz.values import DEVICES

PLACEMENTS: Final[tuple[sim.PlacementRule, ...]] = ("low", "high", "never_reuse")
QUIET_S: Final = 3600.0  # who started this process sees whether it still calls


def machine(chosen: random.Random) -> sim.Machine:
    """Draw a machine that runs out of memory soon."""
    return sim.machine(
        "tiny",
        devices=DEVICES,
        multicast_charge=chosen.choice(("create", "add_device", "bind")),
        binding_on_free=chosen.choice(("keeps_memory", "unbind_reports_error")),
        peer_access=chosen.random() < 0.8,
        lanes=chosen.choice((1, 4)),
    )


def play(surface: Surface, seed: str, calls: int, records: Sequence[Record]) -> str | None:
    """Play an episode in this process; what is wrong after it, or None."""
    chosen = random.Random(seed)
    node = sim.Node(machine(chosen))
    library = ctypes.CDLL(str(sim.library_path()))
    ranks = range(len(records))
    processes = [node.create_process(rank, sim.Placement(rule=chosen.choice(PLACEMENTS))) for rank in ranks]
    players = [Player(library, surface, f"{seed}/{rank}", records[rank]) for rank in ranks]
    for player, other in zip(players, reversed(players), strict=True):
        player.values.foreign = other.values.pools if player is not other else {}

    def rank_main(rank: int) -> None:
        processes[rank].enter(rank)
        try:
            players[rank].start()
            players[rank].play(calls)
        finally:
            sim.leave()

    node.run_begin(len(ranks), lambda _, runnable: chosen.randrange(runnable) if chosen.random() < 0.3 else 0)
    with ThreadPoolExecutor(len(ranks)) as pool:
        futures = [pool.submit(rank_main, rank) for rank in ranks]
        node.run_wait(QUIET_S)
    for future in futures:
        future.result()
    for player in players:
        for descriptor in player.values.pools.get("descriptor", ()):  # an export is a reference until it is closed
            os.close(descriptor)
    try:
        node.check_invariants()
        for process in processes:
            process.close()
        node.check_invariants()
    except AssertionError as broken:
        return f"the books do not agree: {broken}"
    used, left = node.used(), node.ledger()
    node.close()
    return None if used == (0, 0, 0) else f"not given back at the end of all processes: {used} {left}"
