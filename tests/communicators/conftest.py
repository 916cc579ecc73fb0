"""Real libraries: tests of those that are installed. ``make communicators`` makes an environment for each."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from allranks.conformance.worlds.sentinel import mapped

PACKAGES = {"mpi": "mpi4py", "torch": "torch"}
INSTALLED = [name for name, package in PACKAGES.items() if importlib.util.find_spec(package) is not None]


@pytest.fixture(params=PACKAGES)
def library(request: pytest.FixtureRequest) -> str:
    """Give the backends of libraries, one after the other."""
    name: str = request.param
    if name not in INSTALLED:
        pytest.skip(f"{PACKAGES[name]} is not installed; make communicators runs this")
    return name


@pytest.fixture
def mpi() -> None:
    """Leave tests out that need MPI."""
    if "mpi" not in INSTALLED:
        pytest.skip("mpi4py is not installed; make communicators runs this")


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """See that a test leaves no descriptor and no shared memory."""
    monkeypatch.chdir(tmp_path)
    shared, descriptors = set(os.listdir("/dev/shm")), len(os.listdir("/proc/self/fd"))
    yield
    left = {f"/dev/shm/{name}" for name in set(os.listdir("/dev/shm")) - shared}
    if left:  # what others use meanwhile is theirs
        left -= {path for pid in os.listdir("/proc") if pid.isdecimal() for path in mapped(pid)}
    assert left == set()
    assert len(os.listdir("/proc/self/fd")) == descriptors
