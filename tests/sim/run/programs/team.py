"""A multicast object of all ranks' devices, shared through an exported descriptor, as MSCCL++ does it.

Nobody waits after adding a device: binding does. Rank 0 then fills through the multicast address, and every rank finds
that in its own memory. With `missing` the last rank never adds its device, with `gone` it ends instead.
"""

from __future__ import annotations

import os
import sys

from tests.sim.run.programs.client import (
    GRANULE,
    RANK,
    SIZE,
    Star,
    create,
    create_team,
    export,
    import_once,
    mapped,
    ok,
    read,
    start,
    unmapped,
)

star = Star()
start(RANK)
team = create_team(SIZE) if RANK == 0 else 0
descriptor = star.share(export(team) if RANK == 0 else -1)
if RANK == 0:
    os.close(descriptor)
else:
    team = import_once(descriptor)
memory = create(RANK)
address = mapped(memory, GRANULE, RANK)
if sys.argv[1:] == ["gone"] and RANK == SIZE - 1:
    os._exit(0)
if len(sys.argv) == 1 or RANK != SIZE - 1:
    ok("cuMulticastAddDevice", team, RANK)
ok("cuMulticastBindAddr", team, 0, address, GRANULE, 0)
through = mapped(team, GRANULE, RANK)
star.barrier()
if RANK == 0:
    ok("cuMemsetD8_v2", through + 5, 7, 3)
star.barrier()
assert read(address, 10) == b"\0" * 5 + b"\7" * 3 + b"\0" * 2
star.barrier()
unmapped(through, GRANULE)
ok("cuMulticastUnbind", team, RANK, 0, GRANULE)
ok("cuMemRelease", team)
unmapped(address, GRANULE)
ok("cuMemRelease", memory)
sys.stdout.write("bound\n")
