"""Narrowings: where a library's contract asks less of itself than a requirement does, and what follows from it.

A backend may have an attribute `narrowings`. A Program that goes beyond one is brought back within the contract before
it is run, step by step and always in the same way; with ``--strict`` it is run as it was drawn. What was taken out is
counted, so that a report shows both: that the requirement holds where the contract does, and where that ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from allranks.conformance import program as p
from allranks.conformance.backend import Backend
from allranks.conformance.data import ITEM_BYTES
from allranks.conformance.program import Program, Step
from allranks.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowing:
    """One thing that a requirement asks for and the library's contract does not offer.

    Parameters
    ----------
    requirement : str
        Id of the requirement: ``"RDV-5"``.
    reason : str
        What the library does not do, in one sentence.
    source : str
        Where its contract says so.
    dtypes : tuple of str
        Element types that it does not have.
    operations : tuple of str
        Reductions that it does not have.
    unequal_counts : bool
        That ranks bring unequal counts is not an error that it has to report.
    """

    requirement: str
    reason: str
    source: str
    dtypes: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    unequal_counts: bool = False


def narrowings_of(backend: Backend) -> tuple[Narrowing, ...]:
    """Give what a backend declares; nothing, if it does not.

    Raises
    ------
    allranks.errors.UsageError
        If it is no tuple of `Narrowing`, or one that says nothing.
    """
    found = getattr(backend, "narrowings", ())
    where = f"backend={backend.name!r}: narrowings"
    if not isinstance(found, tuple) or not all(isinstance(one, Narrowing) for one in found):
        raise UsageError(f"{where}: wants a tuple of Narrowing")
    for one in found:
        if not one.reason.strip() or not one.source.strip():
            raise UsageError(f"{where}: {one.requirement}: wants a reason and a source")
        if not one.dtypes and not one.operations and not one.unequal_counts:
            raise UsageError(f"{where}: {one.requirement}: takes nothing out")
    for what, all_of_them in (("dtype", p.DTYPES), ("operation", p.OPERATIONS)):
        declined: set[str] = set()
        for one in found:
            names = getattr(one, f"{what}s")
            declined |= set(names)
            if unknown := set(names) - set(all_of_them):
                known = ", ".join(all_of_them)
                raise UsageError(f"{where}: {one.requirement}: {what}s={sorted(unknown)}: known are {known}")
            if declined >= set(all_of_them):
                raise UsageError(f"{where}: {one.requirement}: leaves no {what}")
    return found


@dataclass(slots=True)
class Contract:
    """The narrowings that are in force, and how many steps each of them has changed."""

    narrowings: tuple[Narrowing, ...] = ()
    changed: Counter[Narrowing] = field(default_factory=Counter)

    def changed_since(self, before: Mapping[Narrowing, int]) -> dict[Narrowing, int]:
        """Give how many more steps each narrowing has changed since they were so many."""
        return {one: count - before.get(one, 0) for one, count in self.changed.items() if count > before.get(one, 0)}

    def within(self, program: Program) -> Program:
        """Give the Program as the contract allows it; itself, if it does."""
        if not self.narrowings:
            return program
        steps = tuple(self._within(step) for step in program.steps)
        return program if steps == program.steps else replace(program, steps=steps)

    def _within(self, step: Step) -> Step:
        if isinstance(step, p.Repeat):
            return replace(step, steps=tuple(self._within(inner) for inner in step.steps))
        if not isinstance(step, p.AllReduce | p.AllGather):
            return step
        for one in self.narrowings:
            if step.dtype in one.dtypes:
                step = replace(step, dtype=instead_of(step.dtype, self.narrowings))
                self.changed[one] += 1
            if isinstance(step, p.AllReduce) and step.operation in one.operations:
                declined = {name for other in self.narrowings for name in other.operations}
                step = replace(step, operation=next(name for name in p.OPERATIONS if name not in declined))
                self.changed[one] += 1
            if one.unequal_counts and step.empty_on:
                step = replace(step, empty_on=())
                self.changed[one] += 1
        return step


def contract_of(backend: Backend, *, strict: bool = False) -> Contract:
    """Give what Programs are brought within: nothing, strictly.

    Raises
    ------
    allranks.errors.UsageError
        If what the backend declares cannot be.
    """
    declared = narrowings_of(backend)
    return Contract(() if strict else declared)


def instead_of(dtype: str, narrowings: Iterable[Narrowing]) -> str:
    """Give a type that there is for one that there is not: of the same size, if any is."""
    declined = {name for one in narrowings for name in one.dtypes}
    left = [name for name in p.DTYPES if name not in declined]
    return next((name for name in left if ITEM_BYTES[name] == ITEM_BYTES[dtype]), left[0])
