"""The rows on a real driver: those that need nothing simulated, each in a child process, and never multicast.

``ALLRANKS_DRIVER_ROWS=hardware python -m pytest tests/sim/rows``, on a machine with two GPUs and `cuda-bindings`. It is
refused unless multicast is disabled in every library that is known to use it. A child ends with its row, so that
nothing is left on the device, and no row finds a context that another one has broken.
"""

from __future__ import annotations

import inspect
import os
import select
import signal
import traceback
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

# What makes or takes a simulated host.
_SIMULATED: Final = frozenset({"node", "make_node", "process", "importer", "pair"})
_FORBIDDEN: Final = ("Multicast", "Managed", "Reset", "SetLimit", "SetFlags", "Profiler", "cuLaunchKernel")
FILES: Final = ("test_multicast_*.py", "test_fork.py", "test_symbols.py", "test_machine.py")
LIMIT_S: Final = 60.0
_MOST_BYTES: Final = 1 << 20


class RefusedError(Exception):
    """The call is none that a lent GPU may be asked for."""


class Guarded:
    """The client's module, without the calls that are not made on hardware.

    Parameters
    ----------
    module : module
        ``cuda.bindings.driver``.
    """

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        """Give what the module has under a name."""
        if name.startswith("cu") and any(word in name for word in _FORBIDDEN):
            raise RefusedError(f"{name}: not on hardware")
        return getattr(self._module, name)


def refusal(environment: Mapping[str, str], disabling: Mapping[str, str]) -> str | None:
    """Say what is missing for rows to be run on hardware."""
    missing = [f"{name}={value}" for name, value in disabling.items() if environment.get(name) != value]
    return f"rows on hardware: set {' '.join(missing)}" if missing else None


def can_run(row: pytest.Item) -> bool:
    """Whether a row needs nothing simulated."""
    function = getattr(row, "function", None)
    return function is not None and not _SIMULATED & set(inspect.signature(function).parameters)


def run_in_child(start: Callable[[], None], row: Callable[[], None], limit_s: float = LIMIT_S) -> None:
    """Start the driver and run a row in a child process; what it raises is raised here.

    Raises
    ------
    AssertionError
        With the child's own words, or how it ended.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        said = b"+"
        try:
            start()
            row()
        except RefusedError as error:
            said = f"s{error}".encode()
        except pytest.skip.Exception as skipped:
            said = f"s{skipped.msg}".encode()
        except BaseException:  # whatever a row raises is told
            said = f"-{traceback.format_exc()}".encode()
        os.write(writing, said[:_MOST_BYTES])
        os._exit(0)
    os.close(writing)
    said = b""
    while select.select([reading], [], [], limit_s)[0] and (part := os.read(reading, _MOST_BYTES)):
        said += part
    os.close(reading)
    if not said:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if said.startswith(b"s"):
        pytest.skip(said[1:].decode())
    assert said == b"+", said[1:].decode() or f"the row said nothing within {limit_s:g} s, exit status {status}"
