"""The line that runs a case again says all that decides how it runs."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from allranks.conformance.kept import replay_line
from allranks.conformance.settings import settings_of

USUAL = settings_of(backend="plain", ranks=4)
LINE = ["allranks", "replay", "case.json", "--backend", "plain"]


@pytest.mark.parametrize(
    ("changed", "options"),
    [
        ({}, ""),
        ({"quiet_timeout_s": 1.5}, "--quiet-timeout 1.5"),
        ({"world": "processes"}, "--world processes"),
        ({"world": "processes", "driver": "cuda", "deadline_s": 2.5}, "--world processes --driver cuda --deadline 2.5"),
        ({"world": "mpi"}, "--world mpi"),
        ({"world": "mpi", "launcher": "srun"}, "--world mpi --launcher srun"),
        ({"world": "mpi", "launcher": "none"}, "--world mpi"),
        ({"world": "mpi", "nodes": 2, "deadline_s": 3.0}, "--world mpi --nodes 2 --deadline 3"),
    ],
)
def test_line(changed: dict[str, Any], options: str) -> None:
    assert replay_line(Path("case.json"), replace(USUAL, **changed)) == shlex.join([*LINE, *options.split()])
