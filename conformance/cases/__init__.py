"""Case files that are shipped: public reports as Programs, to be replayed on any backend."""

from __future__ import annotations

from importlib import resources

from allranks.conformance.casefile import Case, loads


def shipped() -> dict[str, Case]:
    """Give the shipped cases by name, in order."""
    files = sorted(resources.files(__name__).iterdir(), key=lambda file: file.name)
    return {
        file.name.removesuffix(".json"): loads(file.read_text(encoding="utf-8"), file.name)
        for file in files
        if file.name.endswith(".json")
    }
