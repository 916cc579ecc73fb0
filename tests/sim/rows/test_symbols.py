"""All of cuda.h is there, and says so when it is not simulated."""

from __future__ import annotations

import ctypes
import importlib.resources
import os
import re
import subprocess
import sys

import pytest

from allranks import sim
from tests.sim.rows.driver_client import RESULT, driver, loaded_driver, ok

# Versions of a function that cuda.h itself gives no plain name any more are not declared for clients.
DECLARATION = re.compile(r"\bCUresult\s+CUDAAPI\s+(cu[A-Z]\w*)\s*\(")
RENAMING = re.compile(r"^\s*#define\s+cu[A-Z]\w*\s+(?:__CUDA_API_PT(DS|SZ)\()?(cu[A-Z]\w*)\)?\s*$", re.MULTILINE)


def declared_names() -> set[str]:
    """Give every function that the header of NVIDIA's wheel declares, under every name that it goes by."""
    header = importlib.resources.files("nvidia.cu13").joinpath("include").joinpath("cuda.h").read_text(encoding="utf-8")
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", header, flags=re.DOTALL)
    names = set(DECLARATION.findall(text))
    for per_thread, target in RENAMING.findall(text):
        names.add(target)
        if per_thread:
            names.add(f"{target}_pt{per_thread.lower()}")
    return names


def test_every_function_of_the_header_is_exported() -> None:
    library, _ = loaded_driver()
    names = declared_names()
    assert len(names) > 500
    assert [name for name in sorted(names) if not hasattr(library, name)] == []


def test_nothing_else_is_exported() -> None:
    listing = subprocess.run(
        ["nm", "--dynamic", "--defined-only", str(sim.library_path())], capture_output=True, text=True, check=False
    )
    if listing.returncode != 0:
        pytest.skip("no nm here; install binutils")
    exported = {line.split()[-1].split("@")[0] for line in listing.stdout.splitlines()}
    assert [name for name in sorted(exported) if not name.startswith(("cu", "simcu"))] == []


def test_its_name_is_its_own() -> None:
    """The library is never taken for the real driver by its SONAME."""
    listing = subprocess.run(
        ["readelf", "--dynamic", str(sim.library_path())], capture_output=True, text=True, check=False
    )
    if listing.returncode != 0:
        pytest.skip("no readelf here; install binutils")
    assert "[libsimcuda.so.0]" in listing.stdout


UNSUPPORTED_TWICE = """
from cuda.bindings import driver
import os
ok = driver.CUresult.CUDA_SUCCESS
assert driver.cuInit(0)[0] == ok
for _ in range(2):
    assert driver.cuGraphCreate(0)[0] == driver.CUresult.CUDA_ERROR_NOT_SUPPORTED
"""


def test_a_function_that_is_not_simulated_says_so_once() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", UNSUPPORTED_TWICE], env=dict(os.environ), capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count("cuGraphCreate") == 1
    assert "CUDA_ERROR_NOT_SUPPORTED" in ran.stderr


@pytest.mark.usefixtures("process")
def test_a_function_by_name_is_the_exported_one() -> None:
    library, _ = loaded_driver()
    address, status = ok(driver.cuGetProcAddress(b"cuMemAlloc", 13000, 0))
    assert status == driver.CUdriverProcAddressQueryResult.CU_GET_PROC_ADDRESS_SUCCESS
    assert int(address) == ctypes.cast(library.cuMemAlloc_v2, ctypes.c_void_p).value


@pytest.mark.usefixtures("process")
def test_a_function_by_name_for_an_older_version() -> None:
    """A stub is a function too; cuStreamGetCaptureInfo has had several versions."""
    library, _ = loaded_driver()
    address, _ = ok(driver.cuGetProcAddress(b"cuStreamGetCaptureInfo", 10010, 0))
    assert int(address) == ctypes.cast(library.cuStreamGetCaptureInfo, ctypes.c_void_p).value


def query(name: bytes, version: int, flags: int = 0) -> tuple[int, int, bool]:
    """Ask for a function as C clients do; give the code, the status and whether there was an address."""
    library, _ = loaded_driver()
    address, status = ctypes.c_void_p(), ctypes.c_int(-1)
    code = library.cuGetProcAddress_v2(
        name, ctypes.byref(address), version, ctypes.c_uint64(flags), ctypes.byref(status)
    )
    return code, status.value, bool(address.value)


STATUS = driver.CUdriverProcAddressQueryResult


def test_a_function_that_came_later_than_the_version() -> None:
    assert query(b"cuMulticastCreate", 11000)[1:] == (STATUS.CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT, False)
    assert query(b"cuMulticastCreate", 12010) == (RESULT.CUDA_SUCCESS, STATUS.CU_GET_PROC_ADDRESS_SUCCESS, True)


def test_a_function_that_never_was() -> None:
    assert query(b"cuNoSuchThing", 13000)[1:] == (STATUS.CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, False)


def test_a_query_with_unknown_flags() -> None:
    assert query(b"cuMemAlloc", 13000, flags=64)[0] == RESULT.CUDA_ERROR_INVALID_VALUE
