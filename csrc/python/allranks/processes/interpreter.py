"""How another Python is started that finds the same modules as this one."""

from __future__ import annotations

import json
import os
import sys


def interpreter(module: str, *arguments: str) -> list[str]:
    """Give the command of a Python that calls ``main(*arguments)`` of a module.

    Parameters
    ----------
    module : str
        Its name; it is looked for where this process looks for modules now.
    arguments : str
        What its ``main`` gets.
    """
    start = f"import json, sys; sys.path[:] = json.loads(sys.argv[1]); from {module} import main; main(*sys.argv[2:])"
    return [sys.executable, "-P", "-c", start, json.dumps([os.fspath(path) for path in sys.path]), *arguments]
