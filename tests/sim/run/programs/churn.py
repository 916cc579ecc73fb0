"""Shared memory and multicast, round after round, until it is done or somebody is gone: exit code 3 then."""

from __future__ import annotations

import os
import sys

from tests.sim.run.programs.client import (
    GRANULE,
    RANK,
    SIZE,
    RefusedError,
    Star,
    answer,
    create,
    create_team,
    export,
    import_once,
    mapped,
    ok,
    start,
    unmapped,
)


def turn(star: Star) -> None:
    team = create_team(SIZE) if RANK == 0 else 0
    descriptor = star.share(export(team) if RANK == 0 else -1)
    if RANK == 0:
        os.close(descriptor)
    else:
        team = import_once(descriptor)
    memory = create(RANK)
    address = mapped(memory, GRANULE, RANK)
    ok("cuMulticastAddDevice", team, RANK)
    star.barrier()
    ok("cuMulticastBindAddr", team, 0, address, GRANULE, 0)
    through = mapped(team, GRANULE, RANK)
    star.barrier()
    ok("cuMemsetD8_v2", through, RANK, GRANULE)
    stream = answer("cuStreamCreate", 1)
    ok("cuMemsetD8Async", address, RANK, 4096, stream)
    ok("cuStreamSynchronize", stream)
    ok("cuStreamDestroy_v2", stream)
    descriptor = star.share(export(memory) if RANK == 0 else -1)
    shared = import_once(descriptor)
    other = mapped(shared, GRANULE, RANK)
    ok("cuMemsetD8_v2", other, 1, 100)
    unmapped(other, GRANULE)
    ok("cuMemRelease", shared)
    star.barrier()
    unmapped(through, GRANULE)
    ok("cuMulticastUnbind", team, RANK, 0, GRANULE)
    ok("cuMemRelease", team)
    unmapped(address, GRANULE)
    ok("cuMemRelease", memory)


def main() -> int:
    try:
        star = Star()
        start(RANK)
        plain = answer("cuMemAlloc_v2", 3 << 20)
        for _ in range(2):
            turn(star)
        ok("cuMemFree_v2", plain)
    except (RefusedError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 3
    return 0


sys.exit(main())
