"""The Backend protocol is frozen as version 1: names and signatures are those that are written down, docs included."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path

import pytest

from allranks import cli, errors
from allranks.conformance import backend
from allranks.conformance.commands.init import filled
from allranks.conformance.data import ITEM_BYTES
from allranks.conformance.narrowing import Narrowing
from allranks.conformance.program import DTYPES, OPERATIONS

WRITTEN = Path(__file__).with_name("protocol-1.txt")
PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"
CLASSES = (
    backend.Backend,
    backend.RankContext,
    backend.Communicator,
    backend.Channels,
    backend.Group,
    backend.Binding,
)
ERRORS = (errors.UsageError, errors.PeerLost, errors.Timeout)


def signature(function: object) -> str:
    """Give a signature as it is written, without `self`."""
    assert callable(function)
    found = inspect.signature(function)
    parameters = [
        f"{one.name}: {one.annotation}" + ("" if one.default is one.empty else f" = {one.default!r}")
        for one in found.parameters.values()
        if one.name != "self"
    ]
    return f"({', '.join(parameters)}) -> {found.return_annotation}"


def members(kind: type) -> Iterator[str]:
    """Give what a protocol's class asks for, a line each."""
    for name, annotation in inspect.get_annotations(kind).items():
        yield f"{kind.__name__}.{name}: {annotation}"
    for name, found in vars(kind).items():
        if isinstance(found, property):
            assert found.fget is not None
            yield f"{kind.__name__}.{name}: {inspect.signature(found.fget).return_annotation}"
        elif inspect.isfunction(found) and not name.startswith("_"):
            yield f"{kind.__name__}.{name}{signature(found)}"


def protocol() -> list[str]:
    """Give the whole protocol, a line for each thing that a backend can rely on."""
    lines = [line for kind in CLASSES for line in members(kind)]
    lines += [f"declaration {name}" for name in backend.DECLARATIONS]
    lines += [f"capability {name}" for name in backend.CAPABILITIES]
    lines += [f"memory space {name}" for name in typing.get_args(backend.MemorySpace)]
    for one in dataclasses.fields(Narrowing):
        lines.append(f"Narrowing.{one.name}: {one.type}" + ("" if one.default is dataclasses.MISSING else " = ..."))
    lines += [f"dtype {name}: {ITEM_BYTES[name]} bytes" for name in DTYPES]
    lines += [f"operation {name}" for name in OPERATIONS]
    lines += [f"error {kind.__name__}({', '.join(base.__name__ for base in kind.__bases__)})" for kind in ERRORS]
    return lines


def test_version_1_is_what_is_written_down() -> None:
    there, written = protocol(), WRITTEN.read_text(encoding="utf-8").splitlines()
    lost = [line for line in written if line not in there]
    new = [line for line in there if line not in written]
    assert not lost, "gone or changed: a backend of version 1 breaks, so this is another version"
    assert not new, f"new: if backends of version 1 can do without, add it to {WRITTEN.name} and the CHANGELOG"


def test_the_versions_that_are_known_begin_with_the_usual_one() -> None:
    assert backend.PROTOCOL_VERSION in backend.PROTOCOL_VERSIONS
    assert backend.PROTOCOL_VERSION == 1  # what a backend that says nothing was written for never changes


class Numbered:
    """A backend that says which version it follows."""

    name = "numbered"
    protocol_version: object = 1

    def capabilities(self, context: backend.RankContext) -> frozenset[str]:
        """Say that there is nothing."""
        return frozenset()

    def open(self, context: backend.RankContext) -> backend.Communicator:
        """Open nothing."""
        raise NotImplementedError


class OfLater(Numbered):
    """Of a version that is not there yet."""

    protocol_version = 2


class OfWords(Numbered):
    """Of no number."""

    protocol_version = "1"


class OfTruth(Numbered):
    """Of what is equal to 1, and no number."""

    protocol_version = True


def test_a_version_that_is_known_is_taken() -> None:
    assert backend.protocol_of(backend.make_backend(Numbered)) == 1
    assert backend.protocol_of(backend.load_backend("plain")) == 1  # it does not say


@pytest.mark.parametrize(("kind", "said"), [("OfLater", "2"), ("OfWords", "'1'"), ("OfTruth", "True")])
def test_a_version_that_is_not_known_is_said_in_a_line(
    kind: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["check", "--backend", f"{__name__}:{kind}"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"allranks: error: backend='numbered': protocol_version={said}: this suite knows 1\n"


def table(head: tuple[str, str], rows: Mapping[str, str]) -> str:
    """Give a table as the page has it."""
    lines = [f"| {head[0]} | {head[1]} |", "| --- | --- |"]
    return "\n".join([*lines, *(f"| `{name}` | {text} |" for name, text in rows.items())])


def shown() -> list[str]:
    """Give what the page has of the code, word for word."""
    template = resources.files("allranks.conformance.templates").joinpath("host.txt").read_text(encoding="utf-8")
    return [
        f"```python\n{filled(template, 'mylib')}```",
        table(("capability", "means"), backend.CAPABILITIES),
        table(("declaration", "says; and what holds without it"), backend.DECLARATIONS),
        table(("dtype", "bytes an element"), {name: str(ITEM_BYTES[name]) for name in DTYPES}),
        f"Operations: {', '.join(f'`{name}`' for name in OPERATIONS)}.",
    ]


@pytest.mark.parametrize("part", range(5))
def test_the_page_shows_what_the_code_has(part: int) -> None:
    assert shown()[part] in PAGE.read_text(encoding="utf-8")


def test_the_page_explains_every_method() -> None:
    text = PAGE.read_text(encoding="utf-8")
    methods = {line.partition("(")[0].partition(".")[2] for line in protocol() if "(" in line}
    assert [name for name in methods if name and f"`{name}" not in text] == []
