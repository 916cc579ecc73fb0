"""The hardware guard: on which libraries and in which environments multicast calls are resolved.

Tested on a recording table only: no library is opened, no call is made, and no environment is changed.

Not verified: what a real driver does.
"""

from __future__ import annotations

import pytest

from allranks._native import driver as native

REAL = ["cu*"]  # every entry point of cuda.h, and no simcuVersion
SIMULATED = ["cu*", "simcu*"]
ALLOW = {"ALLRANKS_ALLOW_HARDWARE_MULTICAST": "1"}
DISABLING = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
    "MSCCLPP_FORCE_DISABLE_NVLS": "1",
}


def multicast_lookups(present: list[str], environment: dict[str, str]) -> list[str]:
    asked, _ = native.record_lookups(present, environment)
    return [name for name in asked if "Multicast" in name]


def test_a_real_library_is_not_even_asked_by_default() -> None:
    asked, decision = native.record_lookups(REAL, {})
    assert "cuMemCreate" in asked
    assert multicast_lookups(REAL, {}) == []
    assert not decision.allowed
    assert "ALLRANKS_ALLOW_HARDWARE_MULTICAST" in decision.reason


def test_a_real_library_is_asked_when_allowed() -> None:
    assert "cuMulticastCreate" in multicast_lookups(REAL, ALLOW)


@pytest.mark.parametrize("name", DISABLING)
def test_each_disabling_variable_wins_over_the_permission(name: str) -> None:
    environment = ALLOW | {name: DISABLING[name]}
    assert multicast_lookups(REAL, environment) == []
    decision = native.decide_multicast(False, environment)
    assert not decision.allowed
    assert decision.reason == f"{name}={DISABLING[name]}"


@pytest.mark.parametrize("value", ["0", "", "true", "yes", "2", " 1"])
def test_only_1_allows(value: str) -> None:
    assert not native.decide_multicast(False, {"ALLRANKS_ALLOW_HARDWARE_MULTICAST": value}).allowed


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("NCCL_NVLS_ENABLE", "1", True),
        ("NCCL_NVLS_ENABLE", "2", True),
        ("NCCL_NVLS_ENABLE", "", True),
        ("NCCL_NVLS_ENABLE", "00", False),
        ("NCCL_NVLS_ENABLE", "off", False),
        ("NVSHMEM_DISABLE_NVLS", "0", True),
        ("NVSHMEM_DISABLE_NVLS", "false", True),
        ("NVSHMEM_DISABLE_NVLS", "TRUE", False),
        ("TORCH_SYMM_MEM_DISABLE_MULTICAST", "yes", False),
        ("MSCCLPP_FORCE_DISABLE_NVLS", "anything", False),
    ],
)
def test_values_that_are_not_understood_forbid(name: str, value: str, allowed: bool) -> None:
    assert native.decide_multicast(False, ALLOW | {name: value}).allowed is allowed


@pytest.mark.parametrize("environment", [{}, DISABLING])
def test_the_simulated_driver_has_multicast_always(environment: dict[str, str]) -> None:
    assert "cuMulticastCreate" in multicast_lookups(SIMULATED, environment)


def test_the_mark_is_looked_for_before_anything_else() -> None:
    asked, _ = native.record_lookups(REAL, {})
    assert asked[0] == "simcuVersion"
    assert len(asked) == len(set(asked))


def test_a_library_without_an_entry_point_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a recording table: the driver lacks cuInit"):
        native.record_lookups([], {})
