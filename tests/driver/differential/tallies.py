"""How often each call answered what: whether a set of sequences says enough about every call and every code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from tests.driver.differential.abi import SEQUENCE_CALLS

# Of 10,000 sequences; of fewer, so much less.
MIN_SUCCESSES: Final = 200  # of each call
MIN_TIMES: Final = 20  # of each code
WHOLE: Final = 10_000

SKIPPED: Final = "skipped"


def code_of(result: dict[str, Any]) -> str:
    """Give what counts as the code of a result."""
    if "skipped" in result:
        return SKIPPED
    if result.get("racy") and result["code"] == "NOT_READY":
        return "SUCCESS"
    return str(result["code"])


class Tally:
    """Counts of the codes that each call answered."""

    def __init__(self) -> None:
        self.codes: dict[str, Counter[str]] = {}
        self.lengths: list[int] = []

    def add(self, transcript: dict[str, Any]) -> None:
        """Count a transcript."""
        self.lengths.append(len(transcript["steps"]))
        for step, result in zip(transcript["steps"], transcript["results"], strict=False):
            self.codes.setdefault(step["call"], Counter())[code_of(result)] += 1

    @property
    def median(self) -> int:
        """The median length of the sequences."""
        return sorted(self.lengths)[len(self.lengths) // 2] if self.lengths else 0

    def total(self) -> Counter[str]:
        """Give how often each code was answered at all."""
        total: Counter[str] = Counter()
        for counts in self.codes.values():
            total += counts
        return total

    def short_of(self) -> Iterator[str]:
        """Say which calls and which codes were seen too rarely."""
        share = len(self.lengths) / WHOLE
        for call in SEQUENCE_CALLS:
            count = self.codes.get(call, Counter())["SUCCESS"]
            if count < MIN_SUCCESSES * share:
                yield f"{call}: {count} successes"
        for code, count in sorted(self.total().items()):
            if code != SKIPPED and count < MIN_TIMES * share:
                yield f"{code}: {count} times"

    def report(self) -> Iterator[str]:
        """Say what was counted, in lines."""
        for call in sorted(self.codes):
            codes = ", ".join(f"{code} {count}" for code, count in self.codes[call].most_common())
            yield f"  {call}: {codes}"
        yield "all codes: " + ", ".join(f"{code} {count}" for code, count in self.total().most_common())
