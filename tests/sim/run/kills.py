"""Rounds of four processes on a node, of which one is killed by SIGKILL at a random driver call.

After each, all memory and multicast capacity is back, the books agree, the others have ended by themselves or wait for
whom will never come and are ended, and nothing is left: no process, no socket, no entry in /dev/shm.

Run as ``python -m tests.sim.run.kills ROUNDS [SEED]``; prints what came of it as JSON, and fails at the first round
that is not so.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from allranks import sim
from allranks.processes.watch import descendants
from allranks.sim.broker import NODE_VARIABLE, Broker
from allranks.sim.job import Job

RANKS: Final = 4
CALLS: Final = 84  # what rank 1 needs at least; a number that is never reached kills nobody
COMMAND: Final = [sys.executable, "-S", "-m", "tests.sim.run.programs.churn"]
LIMIT_S: Final = 120.0
SHARED_MEMORY_S: Final = 30.0


def sockets_named(name: str) -> list[str]:
    """Give the lines of the kernel's list of Unix sockets that have this name."""
    return [line for line in Path("/proc/net/unix").read_text(encoding="utf-8").splitlines() if name in line]


def left_in_shared_memory(before: set[str]) -> set[str]:
    """Give new entries of /dev/shm that no process has and that stay: what others are at is theirs, and goes."""
    until = time.monotonic() + SHARED_MEMORY_S
    left = unheld(set(os.listdir("/dev/shm")) - before)
    while left and time.monotonic() < until:
        left = unheld(left & set(os.listdir("/dev/shm")))
    return left


def unheld(names: set[str]) -> set[str]:
    """Keep those entries of /dev/shm that no process has mapped."""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        if not names:
            break
        try:
            held = maps.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        names = {name for name in names if f"/dev/shm/{name}" not in held}
    return names


def play(rank: int, call: int, *, after: bool) -> Counter[str]:
    """Play one round; count how the processes ended."""
    shared = set(os.listdir("/dev/shm"))
    with Broker(sim.machine("h100", devices=RANKS), kill_at=(rank, call), kill_after=after) as broker:
        name = broker.environment(0)[NODE_VARIABLE].partition(":")[0]
        assert sockets_named(name)
        ended = Job(broker, COMMAND, RANKS).run(LIMIT_S)
        broker.stop()
        report = broker.report()
    said = f"rank {rank} killed {'after' if after else 'before'} its call {call}: {ended.statuses} {ended.hang}"
    assert report["killed"] == 1, said
    assert ended.statuses[rank] == -9, said
    assert ended.hang in (None, "blocked"), said
    assert report["broken"] is None, f"{said}: {report['broken']}"
    assert report["used"] == {"memory_bytes": 0, "multicast_bytes": 0}, f"{said}: {report['used']}"
    assert not any(client["alive"] for client in report["clients"]), said
    assert descendants(os.getpid()) == [], said
    assert not left_in_shared_memory(shared), said
    assert sockets_named(name) == [], said
    return Counter(
        outcome(ended.statuses[other], blocked=other in ended.stuck) for other in range(RANKS) if other != rank
    )


def outcome(status: int, *, blocked: bool) -> str:
    """Say how one that was not killed ended."""
    if blocked:
        return "waited, and was ended"
    assert status in (0, 3), f"status {status}"
    return "ended with an error" if status else "went on"


def main(rounds: int, seed: int) -> dict[str, Any]:
    """Play so many rounds."""
    chosen = random.Random(seed)
    outcomes: Counter[str] = Counter()
    began = time.monotonic()
    for _ in range(rounds):
        outcomes += play(chosen.randrange(RANKS), chosen.randrange(CALLS), after=chosen.random() < 0.5)
    return {"rounds": rounds, "seed": seed, "others": dict(outcomes), "seconds": round(time.monotonic() - began, 1)}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)) + "\n")
