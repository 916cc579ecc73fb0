"""What the differential tool may call, and of which library: no test here calls a driver.

Not verified: that the allowed calls themselves are harmless.
"""

from __future__ import annotations

import ctypes

import pytest

from allranks.conformance.worlds import hardware
from tests.driver.differential import abi, running
from tests.driver.differential.execution import CALLS

FORBIDDEN = ("Multicast", "Managed", "Reset", "SetLimit", "SetFlags", "CtxCreate", "CtxDestroy", "Launch", "Profiler")


class Table:
    """A library that has everything but simcuVersion, and notes what is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> object:
        self.asked.append(name)
        if name == "simcuVersion":
            raise AttributeError(name)

        class Function:
            restype: object = None

            def __call__(self, *arguments: object) -> int:
                return 0

        return Function()


def library(monkeypatch: pytest.MonkeyPatch, table: Table) -> abi.Library:
    for name, value in abi.DISABLING.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: table)
    return abi.Library("libcuda.so.1")


@pytest.mark.parametrize("word", FORBIDDEN)
def test_the_list_has_nothing_dangerous(word: str) -> None:
    assert [name for name in abi.ALLOWED if word in name] == []


@pytest.mark.parametrize(
    "name", ["cuMulticastCreate", "cuMulticastBindMem", "cuMemAllocManaged", "cuDevicePrimaryCtxReset", "cuCtxDestroy"]
)
def test_what_is_not_in_the_list_is_refused_before_it_is_looked_up(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    table = Table()
    loaded = library(monkeypatch, table)
    with pytest.raises(abi.RefusedError, match=name):
        loaded.call(name, 0)
    assert table.asked == ["simcuVersion"]


def test_multicast_is_refused_also_when_somebody_puts_it_into_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table()
    loaded = library(monkeypatch, table)
    monkeypatch.setattr(abi, "ALLOWED", {**abi.ALLOWED, "cuMulticastCreate": "cuMulticastCreate"})
    with pytest.raises(abi.RefusedError, match="cuMulticastCreate"):
        loaded.call("cuMulticastCreate", 0)
    assert "cuMulticastCreate" not in table.asked


def test_what_is_for_a_simulated_driver_is_refused_of_a_real_one(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table()
    loaded = library(monkeypatch, table)
    with pytest.raises(abi.RefusedError, match="cuMulticastCreate"):
        loaded.call_simulated("cuMulticastCreate", 0)
    assert table.asked == ["simcuVersion"]


def test_an_allowed_call_is_made_by_its_symbol(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table()
    assert library(monkeypatch, table).call("cuMemFree", 0) == 0
    assert table.asked[-1] == "cuMemFree_v2"


def test_the_variables_are_those_of_the_product() -> None:
    assert abi.DISABLING == hardware.DISABLING


@pytest.mark.parametrize("name", abi.DISABLING)
@pytest.mark.parametrize("value", [None, "", "2"])
def test_a_real_driver_is_refused_unless_every_variable_is_set(name: str, value: str | None) -> None:
    environment = {**abi.DISABLING, **({} if value is None else {name: value})}
    if value is None:
        del environment[name]
    assert f"{name}={abi.DISABLING[name]}" in (abi.refusal(False, environment) or "")
    assert abi.refusal(True, environment) is None


def test_a_real_driver_is_let_in_with_all_of_them() -> None:
    assert abi.refusal(False, abi.DISABLING) is None


def test_every_call_of_sequences_can_be_made_and_no_other() -> None:
    assert running.CALLS is CALLS
    assert sorted(CALLS) == sorted(abi.SEQUENCE_CALLS)
