"""Expected failures: what a communicator is known to break, each with its reason.

A TOML file of ``"RDV-2" = "our issue 17: channels are looked up locally"``. The key is a requirement, or one family's
item of it as pytest names it, ``"RDV-2[CACHE]"``. An entry that does not fail any more is an error, so that the file
never says less than the truth.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from allranks.conformance.requirements import FAMILIES, REQUIREMENTS
from allranks.errors import UsageError

if TYPE_CHECKING:
    from allranks.conformance.result import Result

_KEY: Final = re.compile(r"(?P<requirement>[A-Z]+-\d+)(?:\[(?P<source>\w+)\])?")


@dataclass(frozen=True, slots=True)
class Expected:
    """Reasons by requirement, or by requirement and source of Programs (a family, or ``cases``)."""

    entries: Mapping[tuple[str, str], str] = field(default_factory=lambda: MappingProxyType({}))
    path: str = ""

    def reason(self, requirement: str, source: str = "") -> str:
        """Say why the requirement is expected to fail, on the Programs of a source or on any; empty: it is not."""
        if source:
            return self.entries.get((requirement, source)) or self.entries.get((requirement, ""), "")
        return next((reason for (name, _), reason in self.entries.items() if name == requirement), "")

    def must_fail(self, requirement: str, source: str) -> bool:
        """Whether the item itself has to fail.

        An entry without a source stands for the requirement's own family; elsewhere it only allows the failure.
        """
        own = REQUIREMENTS[requirement].family == source
        return (requirement, source) in self.entries or (own and (requirement, "") in self.entries)

    def stale(self, result: Result) -> dict[str, str]:
        """Give a line for each requirement with an entry that a whole run shows not to fail."""
        names = dict.fromkeys(name for name, _ in self.entries)
        return {
            name: f"{self.path}: {name}: expected to fail ({self.reason(name)}), but the result is "
            f"{result.status(name)}: remove the entry"
            for name in names
            if name in result.requirements and name not in result.findings
        }


NOTHING_EXPECTED: Final = Expected()


def load_expected(path: Path) -> Expected:
    """Read a file of expected failures.

    Raises
    ------
    allranks.errors.UsageError
        If it cannot be read, names no requirement, or gives no reason.
    """
    try:
        read = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"expected-failures={str(path)!r}: cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"expected-failures={str(path)!r}: no TOML: {error}") from None
    entries: dict[tuple[str, str], str] = {}
    for key, reason in read.items():
        match = _KEY.fullmatch(key)
        if match is None or match["requirement"] not in REQUIREMENTS:
            raise UsageError(f"{path}: {key!r}: no requirement; keys are such as RDV-2 or RDV-2[CACHE]")
        source = match["source"] or ""
        if source and source not in (*FAMILIES, "cases"):
            raise UsageError(f"{path}: {key!r}: no family with Programs; there are {', '.join(FAMILIES)} and cases")
        if not isinstance(reason, str) or not reason.strip():
            raise UsageError(f"{path}: {key}={reason!r}: wants a reason, as text")
        entries[match["requirement"], source] = reason.strip()
    return Expected(MappingProxyType(entries), str(path))
