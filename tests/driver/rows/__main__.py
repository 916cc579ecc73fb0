"""Run the rows on the driver that ``ALLRANKS_DRIVER`` names: one JSON object a row, exit code 1 if one fails."""

from __future__ import annotations

import importlib
import json
import os
import sys
import unittest
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from tests.driver.rows.client import VARIABLE

Failure = tuple[type[BaseException], BaseException, TracebackType] | tuple[None, None, None]


def rows() -> Iterator[unittest.TestCase]:
    """Give all rows."""
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        module = importlib.import_module(f"tests.driver.rows.{path.stem}")
        for suite in unittest.defaultTestLoader.loadTestsFromModule(module):
            assert isinstance(suite, unittest.TestSuite)
            yield from (row for row in suite if isinstance(row, unittest.TestCase))


def name_of(row: unittest.TestCase) -> str:
    """Give a row's name, without the packages around it."""
    return row.id().removeprefix("tests.driver.rows.")


class Told(unittest.TestResult):
    """Prints how each row ends."""

    def tell(self, row: unittest.TestCase, verdict: str, text: str = "") -> None:
        print(json.dumps({"row": name_of(row), "verdict": verdict, "text": text}), flush=True)  # noqa: T201

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802
        super().addSuccess(test)
        self.tell(test, "passed")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
        super().addSkip(test, reason)
        self.tell(test, "skipped", reason)

    def addFailure(self, test: unittest.TestCase, err: Failure) -> None:  # noqa: N802
        super().addFailure(test, err)
        self.tell(test, "failed", self.failures[-1][1])

    def addError(self, test: unittest.TestCase, err: Failure) -> None:  # noqa: N802
        super().addError(test, err)
        self.tell(test, "failed", self.errors[-1][1])


def main() -> int:
    if VARIABLE not in os.environ:
        print(f"allranks: {VARIABLE}: names the driver library, such as libcuda.so.1", file=sys.stderr)  # noqa: T201
        return 2
    told = Told()
    unittest.TestSuite(rows()).run(told)
    return 0 if told.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
