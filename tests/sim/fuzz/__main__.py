"""Call every entry point of the simulated driver with wild arguments, for some time: ``python -m tests.sim.fuzz``.

Each episode is a process of its own. One that a signal ends, that stands still in a call, or after which the node's
books do not agree or something is not given back, is a finding: its seed and last calls are told, and the line that
plays it again. With ``--out`` a run goes on where it was stopped. Exit code 1: something was found.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.sim.fuzz import clients, embedded, header
from tests.sim.fuzz.player import Surface
from tests.sim.fuzz.record import Record

PROCESSES: Final = 2
CALLS: Final = (40, 150, 400)
STILL_S: Final = 20.0  # in one call
WRONG: Final = 3
TOLD_BYTES: Final = 6000
MOST_FINDINGS: Final = 20
TARGETS: Final[dict[str, Callable[..., str | None]]] = {"embedded": embedded.play, "client": clients.play}


class Fuzz:
    """Plays episodes of one kind or both, and counts."""

    def __init__(self, surface: Surface) -> None:
        self._surface = surface
        self._records = [Record(len(surface.functions)) for _ in range(PROCESSES)]
        self.called = [0] * len(surface.functions)
        self.succeeded = [0] * len(surface.functions)

    def play(self, target: str, seed: str) -> dict[str, Any] | None:
        """Play one episode; the finding, if there is one."""
        for record in self._records:
            record.clear()
        with tempfile.TemporaryFile() as said:
            status = self._wait(self._start(target, seed, said.fileno()))
            said.seek(0)
            text = said.read().decode(errors="replace")
        for index in range(len(self.called)):
            for record in self._records:
                called, succeeded = record.counts(index)
                self.called[index] += called
                self.succeeded[index] += succeeded
        if status == 0:
            return None
        what = {WRONG: "wrong", None: "stands still"}.get(status, f"ended with {status}")
        return {
            "target": target,
            "seed": seed,
            "what": what,
            "last": [record.lines() for record in self._records],
            "said": text[-TOLD_BYTES:],
            "replay": f"python -m tests.sim.fuzz --target {target} --replay {seed}",
        }

    def _start(self, target: str, seed: str, said: int) -> int:
        pid = os.fork()
        if pid:
            return pid
        status = 1
        try:
            os.setpgid(0, 0)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # of a mapping that large
            os.dup2(said, 1)
            os.dup2(said, 2)
            calls = random.Random(f"{seed}/calls").choice(CALLS)
            wrong = TARGETS[target](self._surface, seed, calls, self._records)
            os.write(2, (wrong or "").encode())
            status = WRONG if wrong else 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)

    def _wait(self, pid: int) -> int | None:
        """Wait for an episode; how it ended, or None when no call was made or answered for too long."""
        descriptor = os.pidfd_open(pid)
        calls = -1
        moved = time.monotonic()
        still = False
        while not still and not select.select([descriptor], [], [], STILL_S / 10)[0]:
            now = sum(record.calls for record in self._records)
            if now != calls:
                calls, moved = now, time.monotonic()
            still = time.monotonic() - moved > STILL_S
        if still:
            os.killpg(pid, signal.SIGABRT)  # with its clients; a sanitizer or faulthandler may have something to say
        os.close(descriptor)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return None if still else status


def total(fuzz: Fuzz, surface: Surface, known: dict[str, Any]) -> dict[str, Any]:
    """Give the result so far, added to an earlier one."""
    functions: dict[str, list[int]] = dict(known.get("simulated", {}))
    stubs: int = known.get("calls_of_others", 0)
    for index, function in enumerate(surface.functions):
        if function.simulated:
            before = functions.get(function.symbol, [0, 0])
            functions[function.symbol] = [before[0] + fuzz.called[index], before[1] + fuzz.succeeded[index]]
        else:
            stubs += fuzz.called[index]
    return {
        "calls": sum(called for called, _ in functions.values()) + stubs,
        "calls_of_others": stubs,
        "least_called": min(called for called, _ in functions.values()),
        "never_succeeded": sorted(name for name, (_, succeeded) in functions.items() if not succeeded),
        "simulated": functions,
    }


def main(options: argparse.Namespace, surface: Surface) -> int:
    """Play until the time is over."""
    known: dict[str, Any] = {}
    if options.out is not None and options.out.exists():
        known = json.loads(options.out.read_text(encoding="utf-8"))
        if (known["seed"], known["commit"]) != (options.seed, options.commit):
            known = {}
    episodes: int = known.get("episodes", 0)
    spent: float = known.get("seconds", 0.0)
    findings: list[dict[str, Any]] = known.get("findings", [])
    fuzz = Fuzz(surface)
    targets = [options.target] if options.target else sorted(TARGETS)
    began = time.monotonic()

    def result() -> dict[str, Any]:
        return {
            "seed": options.seed,
            "commit": options.commit,
            "seconds": round(spent + time.monotonic() - began, 1),
            "episodes": episodes,
            "findings": findings,
            **total(fuzz, surface, known),
        }

    saved = began

    def goes_on() -> bool:
        if options.episodes is not None:
            return episodes < int(options.episodes)
        return spent + time.monotonic() - began < float(options.seconds)

    while goes_on() and len(findings) < MOST_FINDINGS:
        found = fuzz.play(targets[episodes % len(targets)], f"{options.seed}.{episodes}")
        episodes += 1
        if found is not None:
            findings.append(found)
            tell(found)
        if options.out is not None and time.monotonic() - saved > 10:
            saved = time.monotonic()
            save(options.out, result())
    told = result()
    if options.out is not None:
        save(options.out, told)
    sys.stdout.write(json.dumps({**told, "simulated": len(told["simulated"]), "findings": len(findings)}) + "\n")
    return 1 if findings else 0


def save(file: Path, told: dict[str, Any]) -> None:
    """Write the result so that it is whole at any time."""
    part = file.with_name(file.name + ".part")
    part.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    part.replace(file)


def tell(found: dict[str, Any]) -> None:
    """Print a finding."""
    lines = [f"{found['target']} {found['seed']}: {found['what']}", found["said"]]
    for number, last in enumerate(found["last"]):
        lines += [f"  process {number}, last calls:", *(f"    {line}" for line in last)]
    sys.stderr.write("\n".join([*lines, f"  again: {found['replay']}", ""]))
    sys.stderr.flush()


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--episodes", type=int, help="so many, however long they take")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", choices=sorted(TARGETS))
    parser.add_argument("--replay", metavar="SEED", help="play one episode, of --target")
    parser.add_argument("--out", type=Path, help="write the result as JSON, and go on from it")
    parser.add_argument("--commit", default="", help="kept in the result; another one begins anew")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    chosen = parse(sys.argv[1:])
    types, functions = header.read()
    everything = Surface(header=types, functions=functions)
    if chosen.replay:
        again = Fuzz(everything).play(chosen.target, chosen.replay)
        if again is not None:
            tell(again)
        sys.exit(1 if again is not None else 0)
    sys.exit(main(chosen, everything))
