"""docs/multicast.md names the test that holds each rule; the tests it names exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_test_that_the_table_names_exists() -> None:
    named: list[tuple[str, str]] = []
    for line in (ROOT / "docs" / "multicast.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("|"):
            for part in line.rstrip(" |").rsplit("|", 1)[-1].split(";"):
                file, colon, tests = part.strip().partition(": ")
                named += [(file, test) for test in re.findall(r"`(\w+)`", tests if colon else "")]
    assert len(named) > 40
    missing = []
    for file, test in named:
        rows = (ROOT / "tests" / "sim" / "rows" / f"test_multicast_{file}.py").read_text(encoding="utf-8")
        if f"def test_{test}(" not in rows:
            missing.append(f"{file}: {test}")
    assert missing == []
