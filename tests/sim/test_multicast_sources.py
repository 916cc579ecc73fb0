"""docs/multicast.md names the test that holds each rule; the tests it names exist.

Not verified here: that those tests fail where the rule is not kept; ``make evidence-rules`` does, and its result is in
``docs/results``.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.sim.switched_off.__main__ import SOURCES, named_rows, rows_of, switched_off
from tests.sim.switched_off.rules import RULES, Off

# Held by other tests than rows, or not by a condition in the simulated driver.
ELSEWHERE = {
    "A load-reduce reduces over all devices, for the types and operations of the PTX table",
    "`multicast_granularity_minimum_bytes`",
    "`multicast_granularity_recommended_bytes`",
    "`binding_on_free`",
    "`multicast_supported`",
}
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


def test_every_rule_of_the_simulated_driver_can_be_switched_off() -> None:
    without = [
        rule for rule in named_rows() if rule not in ELSEWHERE and not any(rule.startswith(off.rule) for off in RULES)
    ]
    assert without == []


@pytest.mark.parametrize("off", RULES, ids=lambda off: off.rule)
def test_what_is_switched_off_is_in_the_source_once_and_has_rows(off: Off) -> None:
    assert switched_off(off) != (SOURCES / off.file).read_text(encoding="utf-8")
    assert rows_of(off)
