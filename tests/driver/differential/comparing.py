"""Two runs of the same sequences, compared call by call.

A difference is of a *kind*: the call, and what each side said (its code, or, where the codes are equal, which value
differs). Kinds that are explained are in ``explained.json``, each with its reason. Once a call succeeded on one side
only, what follows in its sequence is about different states, and is not compared. Where the answer depends on how far
the device is, success and NOT_READY are the same. The number of a handle that was released, with nothing mapped of it,
may be given out again or not. A sequence in which the runner lost its books is compared as far as they held.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.driver.differential.execution import BOOKS_DO_NOT_HOLD, LEFT_OPEN
from tests.driver.differential.files import read_lines
from tests.driver.differential.tallies import SKIPPED, Tally, code_of
from tests.driver.differential.world import World

Kind = tuple[str, str, str]  # call, reference, other

MAKES_HANDLES = ("cuMemCreate", "cuMemImportFromShareableHandle")

# These change nothing, so that what follows can be compared after all.

QUERIES = ("Get", "Query", "ExportPointer", "CanAccess", "Synchronize", "ElapsedTime")


@dataclass(slots=True)
class Example:
    """Where a kind of difference was seen first, and how often."""

    sequence: Any
    step: int
    arguments: Any
    reference: Any
    other: Any
    count: int = 0


def load_explained(path: Path) -> dict[Kind, str]:
    """Read the explained kinds.

    Raises
    ------
    OSError
        If the file cannot be read, or an entry has no reason.
    """
    found: dict[Kind, str] = {}
    for entry in json.loads(path.read_text(encoding="utf-8")):
        kind = (entry["call"], entry["hardware"], entry["simulated"])
        if not entry.get("reason"):
            raise OSError(f"{path}: {kind} has no reason")
        found[kind] = entry["reason"]
    return found


def told_in(transcript: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Give the results of a transcript as far as its books held, with the handles by the objects that have them now.

    The runner names the first object that had a handle's number; once that object is gone for good, the number is
    nobody's, and may be a new object's.
    """
    world, heirs = World(), dict[str, str]()
    for index, (step, result) in enumerate(zip(transcript["steps"], transcript["results"], strict=False)):
        if result.get("skipped") == BOOKS_DO_NOT_HOLD:
            return
        name, handle = f"@{index}", result.get("handle", "")
        if handle in world.things and step["call"] in MAKES_HANDLES and world.forgotten(heirs.get(handle, handle)):
            heirs[handle] = name
            result = {**result, "handle": "new"}
        elif handle in heirs:
            result = {**result, "handle": heirs[handle]}
        yield result
        if result.get("code") == "SUCCESS":
            try:
                world.apply(name, step["call"], step["with"])
            except KeyError:
                return


def kind_of(call: str, reference: dict[str, Any], other: dict[str, Any]) -> Kind | None:
    """Say how two results differ; None if they do not."""
    codes = code_of(reference), code_of(other)
    if codes[0] != codes[1]:
        return (call, *codes)
    if codes[0] == SKIPPED:
        return None
    for name in sorted(reference.keys() | other.keys()):
        if name not in ("code", "racy") and reference.get(name) != other.get(name):
            return (call, f"{name}={json.dumps(reference.get(name))}", f"{name}={json.dumps(other.get(name))}")
    return None


@dataclass(slots=True)
class Comparison:
    """What was compared so far."""

    explained: dict[Kind, str]
    tally: Tally = field(default_factory=Tally)  # of the reference
    differences: dict[Kind, Example] = field(default_factory=dict)
    used: dict[Kind, int] = field(default_factory=dict)
    sequences: int = 0
    alike: int = 0  # sequences without a difference, an explained one included
    lacks: set[str] = field(default_factory=set)  # calls that the other library does not have
    calls: int = 0
    not_compared: int = 0
    lacking: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    _differs: int = 0

    @property
    def unexplained(self) -> bool:
        """Whether a difference is not explained."""
        return bool(self.differences)

    def files(self, reference: Path, other: Path) -> None:
        """Compare two files of transcripts."""
        ours = {told["id"]: told for told in read_lines(other)}
        self.lacks = set(ours.pop("end", {}).get("lacks", ()))
        for told in read_lines(reference):
            if told["id"] != "end":
                self.sequence(told, ours.pop(told["id"], None))

    def sequence(self, reference: dict[str, Any], other: dict[str, Any] | None) -> None:
        """Compare two transcripts of one sequence."""
        self.sequences += 1
        self.tally.add(reference)
        differed = self._differs
        if other is None or other["steps"] != reference["steps"]:
            self._differ(("sequence", "there", "not there"), reference, 0, None, None)
            return
        for told, whose in ((reference, "reference"), (other, "other")):
            if "broken" in told:
                self.broken.append(f"{whose} {told['id']}: {told['broken']}")
        if self._differ_in_steps(reference, other):
            return
        ends = [len(told["results"]) for told in (reference, other)]
        if min(ends) < len(reference["steps"]):  # a process ended, or hung
            call = reference["steps"][min(ends)]["call"] if min(ends) else "sequence"
            kind = (call, str(reference.get("broken", "whole")), str(other.get("broken", "whole")))
            self._differ(kind, reference, min(ends), None, None)
            return
        if "broken" not in reference and reference.get("end") != other.get("end"):
            kind = ("end", json.dumps(reference.get("end")), json.dumps(other.get("end")))
            self._differ(kind, reference, len(reference["steps"]), None, None)
            return
        self.alike += self._differs == differed

    def _differ_in_steps(self, reference: dict[str, Any], other: dict[str, Any]) -> bool:
        """Compare results; say whether what follows is about different states."""
        answers = zip(reference["steps"], told_in(reference), told_in(other), strict=False)
        for index, (step, left, right) in enumerate(answers):
            call = step["call"]
            if call in self.lacks:
                self.lacking[call] += 1
                if code_of(left) == "SUCCESS" and not any(word in call for word in QUERIES):
                    self.not_compared += len(reference["steps"]) - index - 1
                    return True
                continue
            if any(told.get("skipped", "").startswith(LEFT_OPEN) for told in (left, right)):
                if code_of(left) != code_of(right) and "Get" not in call:
                    self.not_compared += len(reference["steps"]) - index - 1
                    return False
                continue
            self.calls += 1
            found = kind_of(call, left, right)
            if found is None:
                continue
            self._differ(found, reference, index, left, right)
            if "SUCCESS" in found[1:] and not any(word in call for word in QUERIES):
                self.not_compared += len(reference["steps"]) - index - 1
                return True
        return False

    def _differ(self, kind: Kind, told: dict[str, Any], index: int, left: Any, right: Any) -> None:
        self._differs += 1
        if kind in self.explained:
            self.used[kind] = self.used.get(kind, 0) + 1
            return
        step = told["steps"][index] if index < len(told["steps"]) else None
        example = self.differences.setdefault(kind, Example(told["id"], index, step and step["with"], left, right))
        example.count += 1

    def summary(self) -> dict[str, Any]:
        """Give the figures, and every kind of difference with its reason, as they are kept in docs/results."""
        kinds = [
            {"call": kind[0], "hardware": kind[1], "simulated": kind[2], "calls": count, "reason": self.explained[kind]}
            for kind, count in sorted(self.used.items(), key=lambda one: -one[1])
        ]
        kinds += [
            {"call": kind[0], "hardware": kind[1], "simulated": kind[2], "calls": example.count, "reason": None}
            for kind, example in sorted(self.differences.items(), key=lambda one: -one[1].count)
        ]
        return {
            "sequences": self.sequences,
            "median_length": self.tally.median,
            "calls_compared": self.calls,
            "agree_in_every_call": self.alike,
            "differences": kinds,
            "codes": dict(self.tally.total().most_common()),
            "too_rare": list(self.tally.short_of()),
        }

    def report(self, show: int) -> Iterator[str]:
        """Say what was compared, in lines."""
        yield f"{self.sequences} sequences of median length {self.tally.median}, {self.calls} calls compared"
        yield f"alike in every call: {self.alike}"
        yield f"not compared after one side's success: {self.not_compared}; broken: {self.broken[:10]}"
        yield from self.tally.report()
        if self.lacking:
            yield f"not in the other library: {dict(self.lacking)}"
        yield f"explained differences: {len(self.used)} kinds, {sum(self.used.values())} calls"
        for kind, count in sorted(self.used.items()):
            yield f"  {count} x {kind[0]}: {kind[1]} / {kind[2]}: {self.explained[kind]}"
        yield f"unexplained differences: {len(self.differences)} kinds"
        ordered = sorted(self.differences.items(), key=lambda one: -one[1].count)
        for kind, example in ordered[:show]:
            yield f"  {example.count} x {kind[0]}: {kind[1]} / {kind[2]}"
            yield f"    sequence {example.sequence}, step {example.step}: {json.dumps(example.arguments)}"
            yield f"    {json.dumps(example.reference)}"
            yield f"    {json.dumps(example.other)}"
