"""How the values of options are read and checked, for every subcommand."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TypeVar

from allranks.errors import UsageError

T = TypeVar("T")


class Parser(argparse.ArgumentParser):
    """Raises `UsageError` instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong with the command line."""
        raise UsageError(f"{self.prog}: {message}")


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
