"""A test that hangs ends its process, with every thread's stack: nothing else could, if Python's own lock is held."""

from __future__ import annotations

import faulthandler
from collections.abc import Iterator

import pytest

LONGEST_TEST_S = 400.0


@pytest.fixture(autouse=True)
def _no_test_hangs() -> Iterator[None]:
    faulthandler.dump_traceback_later(LONGEST_TEST_S, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
