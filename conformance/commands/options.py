"""Options that the subcommands of the suite share; how values are checked is in `allranks.options`."""

from __future__ import annotations

import argparse
import typing

from allranks import sim
from allranks.conformance.launchers import LAUNCHERS
from allranks.conformance.settings import MOST_RANKS, WORLDS
from allranks.conformance.worlds.hardware import DriverName
from allranks.conformance.worlds.processes.world import DEADLINE_S
from allranks.conformance.worlds.threads import QUIET_TIMEOUT_S
from allranks.options import Parser as Parser
from allranks.options import duration as duration
from allranks.options import folder as folder
from allranks.options import positive as positive
from allranks.options import read as read
from allranks.options import seconds as seconds
from allranks.options import whole as whole
from allranks.options import writable as writable


def add_world(parser: argparse.ArgumentParser) -> None:
    """Add what a world is made of."""
    parser.add_argument("--backend", default="refimpl", metavar="NAME|MODULE:CLASS", help="the communicator under test")
    parser.add_argument("--machine", default="h100", metavar="M", help="the simulated machine")


def add_quiet_timeout(parser: argparse.ArgumentParser) -> None:
    """Add how long a backend may stay away from the driver."""
    parser.add_argument(
        "--quiet-timeout",
        type=seconds,
        default=QUIET_TIMEOUT_S,
        metavar="S",
        help=f"real seconds that the backend may stay away from the driver (default {QUIET_TIMEOUT_S:g})",
    )


def add_processes(parser: argparse.ArgumentParser) -> None:
    """Add in which world, and what world `processes` needs to know."""
    parser.add_argument(
        "--world", choices=WORLDS, help="where ranks run (default: as the backend needs it; see docs/worlds.md)"
    )
    parser.add_argument("--launcher", choices=LAUNCHERS, help="world mpi: what starts the ranks (default mpiexec)")
    parser.add_argument(
        "--driver",
        choices=typing.get_args(DriverName),
        default="sim",
        help="cuda: real GPUs, one for each rank, in world processes (default sim)",
    )
    parser.add_argument("--nodes", type=positive, metavar="N", help="world mpi: nodes to simulate (default 1)")
    parser.add_argument(
        "--deadline",
        type=duration,
        metavar="S",
        help=f"worlds of processes: seconds without progress that end a run (default {DEADLINE_S:g})",
    )


def machine_for(name: str, ranks: int) -> sim.Machine:
    """Give the machine with enough devices: at least 8, or one a rank."""
    return sim.machine(name, devices=max(8, ranks))


def ranks(text: str) -> int:
    """Read a number of ranks."""
    count = positive(text)
    if count > MOST_RANKS:
        raise argparse.ArgumentTypeError(f"{text!r}: at most {MOST_RANKS} ranks")
    return count
