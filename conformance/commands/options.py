"""Options that the subcommands share, and how their values are checked."""

from __future__ import annotations

import argparse
import os
import typing
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TypeVar

from allranks import sim
from allranks.conformance.launchers import LAUNCHERS
from allranks.conformance.settings import MOST_RANKS, WORLDS
from allranks.conformance.worlds.hardware import DriverName
from allranks.conformance.worlds.processes.world import DEADLINE_S
from allranks.conformance.worlds.threads import QUIET_TIMEOUT_S
from allranks.errors import UsageError

T = TypeVar("T")


class Parser(argparse.ArgumentParser):
    """Raises `UsageError` instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong with the command line."""
        raise UsageError(f"{self.prog}: {message}")


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


def read(option: str, reader: Callable[[str], T], text: str) -> T:
    """Read an option's text as argparse would.

    Raises
    ------
    allranks.errors.UsageError
        If it is not what the reader wants.
    """
    try:
        return reader(text)
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"{option}: {error}") from None


def whole(text: str) -> int:
    """Read a whole number from 0 on."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number from 0 on")
    return int(text)


def positive(text: str) -> int:
    """Read a whole number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number from 1 on")
    return int(text)


def ranks(text: str) -> int:
    """Read a number of ranks."""
    count = positive(text)
    if count > MOST_RANKS:
        raise argparse.ArgumentTypeError(f"{text!r}: at most {MOST_RANKS} ranks")
    return count


def seconds(text: str) -> float:
    """Read a time in seconds."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}: seconds, more than 0")
    return value


def duration(text: str) -> float:
    """Read a time in seconds, which may end in ``s`` or ``m``."""
    unit = {"s": 1.0, "m": 60.0}.get(text[-1:], 0.0)
    return seconds(text[:-1]) * unit if unit else seconds(text)


def writable(text: str) -> Path:
    """Read the name of a file to be written at the end; that it can be is found out now."""
    path = Path(text)
    there = path.exists()
    try:
        with path.open("ab"):
            pass
        if not there:
            path.unlink()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: cannot be written: {error.strerror}") from None
    return path


def folder(text: str) -> Path:
    """Read the name of a folder, which is made if it is missing."""
    path = Path(text)
    if path.exists() and not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r}: not a folder")
    nearest = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise argparse.ArgumentTypeError(f"{text!r}: cannot be written: {nearest} forbids it")
    return path
