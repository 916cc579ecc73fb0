"""The registry of requirements: what a conforming communicator does.

One file a family, in TOML, so that reports and documents are made from the same words. Each requirement holds for every
per-rank sequence of buffers and every interleaving, from one rank on. One that names no check cannot be evaluated yet.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final, Literal

from allranks.errors import UsageError

Level = Literal["must", "should"]
Observed = Literal["status", "bytes", "writes", "resolve", "ledger", "driver calls", "backend"]

# Families in the order of reports, with what each is about.
FAMILY_TITLES: Final = {
    "RDV": "all ranks, or none",
    "CACHE": "what is cached is true",
    "NVLS": "multicast",
    "LIFE": "everything is given back",
    "COLL": "the bytes are right",
    "CONC": "together",
    "BOOT": "coming up",
    "ERR": "bad input",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One thing that a conforming communicator does.

    Parameters
    ----------
    id : str
        ``"CACHE-2"``.
    statement : str
        What holds.
    why : str
        What goes wrong without it.
    level : {"must", "should"}
        Whether breaking it fails a run.
    capabilities : tuple of str
        What a backend needs, one of them at least, for the requirement to apply; empty: always.
    observed : tuple of str
        What a check has to see: how steps ended (status), device memory (bytes), every write to it (writes), where
        addresses lead (resolve), what is alive (ledger), calls of the driver, what the backend says of itself.
    checks : tuple of str
        Functions in `allranks.conformance.checks` that enforce it; empty: none yet.
    origins : tuple of str
        Public reports of what goes wrong without it, as ``owner/repo#number``.
    """

    id: str
    statement: str
    why: str
    level: Level = "must"
    capabilities: tuple[str, ...] = ()
    observed: tuple[Observed, ...] = ()
    checks: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()

    @property
    def family(self) -> str:
        """The part of the id before the dash."""
        return self.id.partition("-")[0]


def _read_family(family: str) -> dict[str, Requirement]:
    text = resources.files(__name__).joinpath(f"{family.lower()}.toml").read_text(encoding="utf-8")
    found = {}
    for name, entry in tomllib.loads(text).items():
        fields: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()
        }
        found[name] = Requirement(id=name, **fields)
    return found


REQUIREMENTS: Final[dict[str, Requirement]] = {
    name: requirement for family in FAMILY_TITLES for name, requirement in _read_family(family).items()
}
CHECKED: Final = tuple(name for name, requirement in REQUIREMENTS.items() if requirement.checks)
# Families that Programs are generated for.
FAMILIES: Final = tuple(dict.fromkeys(REQUIREMENTS[name].family for name in CHECKED))


def select(names: list[str]) -> tuple[str, ...]:
    """Give the ids that the names mean: ids, families, or, when there are none, everything that has a check.

    A family means those of its requirements that have a check, if any has one; by its id each can be asked for.

    Raises
    ------
    allranks.errors.UsageError
        If a name is neither.
    """
    if not names:
        return CHECKED
    chosen: list[str] = []
    for name in names:
        family = [known for known, requirement in REQUIREMENTS.items() if requirement.family == name.upper()]
        checked = [known for known in family if known in CHECKED]
        found = [name.upper()] if name.upper() in REQUIREMENTS else checked or family
        if not found:
            known = ", ".join(FAMILY_TITLES)
            raise UsageError(f"requirement={name!r}: an id such as RDV-2, or one of the families {known}")
        chosen += [one for one in found if one not in chosen]
    return tuple(chosen)
