"""Options that the subcommands share, and how their values are checked."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NoReturn

from allranks import sim
from allranks.errors import UsageError


class Parser(argparse.ArgumentParser):
    """Raises `UsageError` instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong with the command line."""
        raise UsageError(f"{self.prog}: {message}")


def add_world(parser: argparse.ArgumentParser) -> None:
    """Add what a world is made of."""
    parser.add_argument("--backend", default="refimpl", metavar="NAME|MODULE:CLASS", help="the communicator under test")
    parser.add_argument("--machine", default="h100", metavar="M", help="the simulated machine")


def machine_for(name: str, ranks: int) -> sim.Machine:
    """Give the machine with enough devices: at least 8, or one a rank."""
    return sim.machine(name, devices=max(8, ranks))


def positive(text: str) -> int:
    """Read a whole number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number from 1 on")
    return int(text)


def ranks(text: str) -> int:
    """Read a number of ranks."""
    count = positive(text)
    if count > 128:
        raise argparse.ArgumentTypeError(f"{text!r}: at most 128 ranks")
    return count


def folder(text: str) -> Path:
    """Read the name of a folder, which is made if it is missing."""
    path = Path(text)
    if path.exists() and not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r}: not a folder")
    return path
