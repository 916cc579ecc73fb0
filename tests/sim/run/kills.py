"""Rounds of four processes on a node, of which one is killed by SIGKILL at a random driver call.

After each, all memory and multicast capacity is back, the books agree, the others have ended by themselves or wait for
whom will never come and are ended, and nothing is left: no process, no socket, no entry in /dev/shm.

Run as ``python -m tests.sim.run.kills ROUNDS [SEED [FILE]]``; prints what came of it as JSON, and fails at the first
round that is not so. With a FILE it goes on where it was stopped.
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
from allranks.processes.stillness import Stillness
from allranks.processes.watch import descendants
from allranks.sim.broker import NODE_VARIABLE, Broker
from tests.sim.run.starter import Starter

RANKS: Final = 4
LIMIT_S: Final = 120.0
LOOK_S: Final = 0.05
SAVE_S: Final = 5.0
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


class Rounds:
    """Plays rounds, with processes that are forked off one interpreter."""

    def __init__(self) -> None:
        self._starter = Starter("tests.sim.run.programs.churn")
        self._played = 0

    def close(self) -> None:
        """End the interpreter."""
        self._starter.close()

    def _environments(self, broker: Broker) -> list[dict[str, str]]:
        self._played += 1
        star = f"{os.getpid()}-{self._played}"
        common = {"WORLD_SIZE": str(RANKS), "MASTER_PORT": star}
        return [{**common, "RANK": str(rank), **broker.environment(rank)} for rank in range(RANKS)]

    def _follow(self, broker: Broker, pids: list[int]) -> tuple[dict[int, int], set[int]]:
        """Give how the ranks ended, and which of them had to be ended because nothing could go on."""
        statuses: dict[int, int] = {}
        stuck: set[int] = set()
        stillness = Stillness()
        progress = -1
        began = time.monotonic()
        while len(statuses) < RANKS:
            ended = self._starter.ended(LOOK_S)
            if ended is not None:
                statuses[pids.index(ended[0])] = ended[1]
            alive = [pid for rank, pid in enumerate(pids) if rank not in statuses]
            if stuck or not alive:
                continue
            if ended or progress != broker.progress or not broker.at_rest:
                progress = broker.progress
                stillness.forget()
            elif stillness.reached(time.monotonic(), alive):
                stuck = {pids.index(pid) for pid in alive}
                for pid in alive:
                    os.kill(pid, 9)
            assert time.monotonic() - began < LIMIT_S, f"neither ended nor blocked: {broker.report()}"
        return statuses, stuck

    def calls(self) -> int:
        """Give how many calls every rank makes when nobody is killed."""
        with Broker(sim.machine("h100", devices=RANKS)) as broker:
            pids = self._starter.start(self._environments(broker))
            statuses, _ = self._follow(broker, pids)
            assert not any(statuses.values()), f"{statuses}\n{self._starter.said()}"
            return min(int(client["calls"]) for client in broker.report()["clients"])

    def play(self, rank: int, call: int, *, after: bool) -> Counter[str]:
        """Play one round; count how the processes ended."""
        shared = set(os.listdir("/dev/shm"))
        fault = f"{rank}:*:{call}={'kill-after' if after else 'kill'}"
        with Broker(sim.machine("h100", devices=RANKS), faults=[fault]) as broker:
            name = broker.environment(0)[NODE_VARIABLE].partition(":")[0]
            assert sockets_named(name)
            pids = self._starter.start(self._environments(broker))
            statuses, stuck = self._follow(broker, pids)
            broker.stop()
            report = broker.report()
        said = f"{fault}: {statuses} {stuck}\n{self._starter.said()}"
        assert report["faults"] == [{"fault": fault, "met": True}], said
        assert statuses[rank] == -9, said
        assert report["broken"] is None, f"{said}: {report['broken']}"
        assert report["used"] == {"memory_bytes": 0, "multicast_bytes": 0}, f"{said}: {report['used']}"
        assert not any(client["alive"] for client in report["clients"]), said
        assert descendants(os.getpid()) == [self._starter.pid], said
        assert not left_in_shared_memory(shared), said
        assert sockets_named(name) == [], said
        others = [other for other in range(RANKS) if other != rank]
        return Counter(outcome(statuses[other], blocked=other in stuck, said=said) for other in others)


def outcome(status: int, *, blocked: bool, said: str) -> str:
    """Say how one that was not killed ended."""
    if blocked:
        return "waited, and was ended"
    assert status in (0, 3), said
    return "ended with an error" if status else "went on"


def main(rounds: int, seed: int, file: Path | None = None) -> dict[str, Any]:
    """Play so many rounds."""
    told: dict[str, Any] = {"rounds": 0, "seed": seed, "others": {}, "seconds": 0.0}
    if file is not None and file.exists():
        known = json.loads(file.read_text(encoding="utf-8"))
        told = known if known["seed"] == seed else told
    outcomes: Counter[str] = Counter(told["others"])
    player = Rounds()
    calls = player.calls()
    since = saved = time.monotonic()
    spent = told["seconds"]
    while told["rounds"] < rounds:
        chosen = random.Random(f"{seed}.{told['rounds']}")
        outcomes += player.play(chosen.randrange(RANKS), chosen.randrange(calls), after=chosen.random() < 0.5)
        now = time.monotonic()
        told |= {"rounds": told["rounds"] + 1, "others": dict(outcomes), "seconds": round(spent + now - since, 1)}
        if file is not None and (now - saved > SAVE_S or told["rounds"] == rounds):
            saved = now
            file.write_text(json.dumps(told) + "\n", encoding="utf-8")
    player.close()
    return {**told, "calls_of_a_rank": calls}


if __name__ == "__main__":
    wanted = Path(sys.argv[3]) if len(sys.argv) > 3 else None
    sys.stdout.write(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0, wanted)) + "\n")
