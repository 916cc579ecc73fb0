"""The command ``allranks``: finds a subcommand, runs it, and turns what happened into an exit code.

Subcommands are entry points of the group ``allranks.commands``; each is a callable that takes the arguments after its
name and returns an exit code. Only the subcommand that was asked for is imported, so a part that is broken or not
installed does not stop the others.

Exit codes: 0 all is well; 1 a violation was found; 2 wrong usage or a missing part; 3 nothing was checked, or the run
is incomplete; 4 a failure of Allranks itself; 130 interrupted.
"""

from __future__ import annotations

import enum
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata

from allranks.errors import UsageError

GROUP = "allranks.commands"

Command = Callable[[list[str]], int]


class ExitCode(enum.IntEnum):
    """What the exit code of ``allranks`` means."""

    WELL = 0
    VIOLATION = 1
    USAGE = 2
    INCOMPLETE = 3
    OWN_FAILURE = 4
    INTERRUPTED = 130


_EXIT_CODES_HELP = (
    "exit codes: 0 all is well, 1 a violation was found, 2 wrong usage or a missing part,\n"
    "            3 nothing checked or incomplete, 4 a failure of allranks itself, 130 interrupted\n"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand.

    Parameters
    ----------
    arguments : sequence of str, optional
        What follows the command's name; those of the process when None.

    Returns
    -------
    int
        The subcommand's exit code, or the `ExitCode` of how it failed.
    """
    argv = list(sys.argv[1:] if arguments is None else arguments)
    commands = find_commands()
    if not argv:
        sys.stderr.write(_help(commands))
        return ExitCode.USAGE
    name, *rest = argv
    if name in ("-h", "--help"):
        sys.stdout.write(_help(commands))
        return ExitCode.WELL
    if name in ("-V", "--version"):
        sys.stdout.write(f"allranks {metadata.version('allranks')}\n")
        return ExitCode.WELL
    if name not in commands:
        known = ", ".join(sorted(commands)) or "none is installed"
        return _usage(f"no subcommand {name!r}; there are: {known}")
    return _run(commands[name], rest)


def find_commands() -> Mapping[str, metadata.EntryPoint]:
    """Find the installed subcommands without importing them.

    Returns
    -------
    mapping of str to EntryPoint
        By name. Of two with one name the first on ``sys.path`` wins, as it does for modules.
    """
    commands: dict[str, metadata.EntryPoint] = {}
    for entry_point in metadata.entry_points(group=GROUP):
        commands.setdefault(entry_point.name, entry_point)
    return commands


def _run(entry_point: metadata.EntryPoint, argv: list[str]) -> int:
    try:
        command: Command = entry_point.load()
        return command(argv)
    except UsageError as error:
        return _usage(str(error))
    except KeyboardInterrupt:
        sys.stderr.write("allranks: interrupted\n")
        return ExitCode.INTERRUPTED
    except Exception as error:  # noqa: BLE001 -- the outermost frame: whatever it is becomes an exit code
        traceback.print_exc(file=sys.stderr)
        sys.stderr.write(
            f"allranks: failure of allranks itself in {entry_point.name!r}: {type(error).__name__}: {error}\n"
            f"allranks: to run it again: allranks {' '.join([entry_point.name, *argv])}\n"
        )
        return ExitCode.OWN_FAILURE


def _usage(message: str) -> int:
    sys.stderr.write(f"allranks: error: {' '.join(message.split())}\n")
    return ExitCode.USAGE


def _help(commands: Mapping[str, metadata.EntryPoint]) -> str:
    width = max(map(len, commands), default=0)
    lines = [f"  {name:<{width}}  {_summary(commands[name])}" for name in sorted(commands)]
    return (
        "usage: allranks SUBCOMMAND [ARGUMENT...]\n"
        "       allranks SUBCOMMAND --help\n"
        "       allranks --version | --help\n\n"
        "subcommands:\n" + "".join(f"{line}\n" for line in lines) + "\n" + _EXIT_CODES_HELP
    )


def _summary(entry_point: metadata.EntryPoint) -> str:
    """First line of a subcommand's docstring, or why there is none; one that is broken does not hide the others."""
    try:
        documentation = inspect.getdoc(entry_point.load())
    except Exception as error:  # noqa: BLE001 -- a broken part is shown in the help, whatever breaks it
        return f"(cannot be loaded: {type(error).__name__}: {error})"
    return documentation.splitlines()[0] if documentation else ""
