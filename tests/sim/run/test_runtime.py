"""Programs of the runtime library under `allranks sim run`: compiled ones, and what nvcc and ctypes make of it."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import util
from pathlib import Path

import pytest

from allranks.sim.broker import client_folder
from tests.sim.run.conftest import ROOT, Ran, environment, program
from tests.sim.run.programs.symbols import exported

SimRun = Callable[..., Ran]
PROGRAMS = Path(__file__).parent / "programs"
LIBRARY = client_folder() / "libcudart.so.13"
COMPILER = os.environ.get("CXX", "g++")

# What each part of a program does that is wrong on purpose, as the report names it.
FINDINGS: dict[tuple[str, str], set[str]] = {
    ("data", "memory"): set(),
    ("data", "host"): {"swallowed"},
    ("data", "streams"): set(),
    ("data", "events"): set(),
    ("data", "pools"): set(),
    ("state", "devices"): set(),
    ("state", "errors"): {"swallowed", "unsupported"},
    ("state", "sticky"): {"alive", "multicast_unbound", "swallowed"},
    ("state", "capture"): set(),
    ("state", "launches"): set(),
    ("state", "contexts"): set(),
    ("state", "forks"): set(),
}


def cuda_folders() -> list[Path]:
    """Give the include folders of a CUDA package or toolkit, as the build finds them."""
    found = subprocess.run(
        [sys.executable, str(ROOT / "csrc" / "cmake" / "find_cuda_headers.py")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    if not found or not (Path(found) / "cuda_runtime_api.h").is_file():
        pytest.skip("no cuda_runtime_api.h here: install nvidia-cuda-runtime")
    return [ROOT / "csrc" / "simcudart" / "include", Path(found)]


def compile_program(*command: str | Path) -> None:
    """Run a compiler, without what is preloaded into tests of sanitized libraries."""
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    subprocess.run([str(word) for word in command], env=plain, check=True)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the programs, and link them to the library as a program is linked to the real one; give their folder."""
    if shutil.which(COMPILER) is None:
        pytest.skip(f"no {COMPILER} here: set CXX to a C++ compiler")
    folder = tmp_path_factory.mktemp("runtime")
    includes = [f"-I{folder}" for folder in cuda_folders()]
    links = [f"-L{client_folder()}", "-l:libcudart.so.13", "-pthread"]
    for name in sorted({name for name, _ in FINDINGS}):
        source = PROGRAMS / f"runtime_{name}.cpp"
        compile_program(COMPILER, "-std=c++20", *includes, source, "-o", folder / name, *links)
    return folder


@pytest.mark.parametrize(("name", "part"), FINDINGS)
def test_a_compiled_program(sim_run: SimRun, compiled: Path, name: str, part: str) -> None:
    ran = sim_run(1, [str(compiled / name), part])
    assert ran.out == "[0] as it should be\n", ran.err
    assert set(ran.kinds(0)) == FINDINGS[name, part], ran.err
    assert ran.code == (1 if FINDINGS[name, part] else 0)


def test_functions_that_are_not_there_are_named(sim_run: SimRun, compiled: Path) -> None:
    assert sim_run(1, [str(compiled / "state"), "errors"]).texts("unsupported") == ["cudaGraphCreate"]


def test_launches_are_recorded(sim_run: SimRun, compiled: Path) -> None:
    ran = sim_run(1, [str(compiled / "state"), "launches"])
    assert "(kernel some_kernel: launched 4 times, recorded and not executed)" in ran.err


def test_nvcc(sim_run: SimRun, tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc here: a CUDA toolkit has it")
    output = tmp_path / "kernel"
    compile_program(nvcc, "-cudart", "shared", "-arch=sm_90", PROGRAMS / "kernel.cu", "-o", output)
    ran = sim_run(2, [str(output)])
    assert ran.code == 0, ran.err
    assert sorted(ran.out.splitlines()) == ["[0] launched", "[1] launched"]
    assert len(re.findall(r"kernel _Z5scale\w+: launched 1 times, recorded and not executed", ran.err)) == 2


def test_memory_and_events_of_another_process(sim_run: SimRun) -> None:
    ran = sim_run(2, program("runtime_ipc"))
    assert ran.code == 0, ran.err
    assert sorted(ran.out.splitlines()) == ["[0] shared", "[1] shared"]


def test_no_function_falls_over_zeros(sim_run: SimRun) -> None:
    ran = sim_run(1, program("runtime_zeros", str(LIBRARY)))
    assert "exit" not in ran.kinds(0), ran.err
    assert "killed" not in ran.kinds(0), ran.err
    assert int(ran.out.removeprefix("[0] ")) > 300


def test_a_driver_that_lacks_functions_is_answered_for(tmp_path: Path) -> None:
    if shutil.which(COMPILER) is None:
        pytest.skip(f"no {COMPILER} here: set CXX to a C++ compiler")
    (tmp_path / "driver.cpp").write_text('extern "C" int cuInit(unsigned) { return 0; }\n', encoding="utf-8")
    driver = tmp_path / "libcuda.so.1"
    compile_program(COMPILER, "-shared", "-fPIC", tmp_path / "driver.cpp", "-o", driver)
    zeros = subprocess.run(
        program("runtime_zeros_anywhere", str(LIBRARY)),
        env=environment() | {"LD_LIBRARY_PATH": str(tmp_path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert zeros.returncode == 0, zeros.stderr
    assert zeros.stdout == "801 801 801\n"  # cudaErrorNotSupported


def real_library() -> Path:
    """Give NVIDIA's own library, of which only its tables are asked here."""
    nvidia = util.find_spec("nvidia")
    for location in (nvidia.submodule_search_locations or []) if nvidia else []:
        library = Path(location) / "cu13" / "lib" / "libcudart.so.13"
        if library.is_file():
            return library
    pytest.skip("no libcudart.so.13 of NVIDIA's here: install nvidia-cuda-runtime")


# Not in any header.
INTERNAL = re.compile("__cudaGetProcAddress|__cudaRegisterHostVar|__cudaRegisterUnifiedTable|cudaSubgrid.*")


def test_it_has_the_real_librarys_functions() -> None:
    for prefix in ("cuda", "__cuda"):
        missing = set(exported(real_library(), prefix)) - set(exported(LIBRARY, prefix))
        assert [name for name in sorted(missing) if not INTERNAL.fullmatch(name)] == []


def test_symbols_have_the_real_librarys_version() -> None:
    library, libc = ctypes.CDLL(str(LIBRARY)), ctypes.CDLL(None)
    libc.dlvsym.restype = ctypes.c_void_p
    libc.dlvsym.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
    for name in (b"cudaMalloc", b"__cudaRegisterFatBinary", b"cudaMemcpyAsync_ptsz"):
        assert libc.dlvsym(library._handle, name, b"libcudart.so.13")
        assert not libc.dlvsym(library._handle, name, b"libcudart.so.12")


def test_names_and_texts_of_errors_are_the_real_librarys() -> None:
    asked = []
    for path in (real_library(), LIBRARY):
        library = ctypes.CDLL(str(path))
        library.cudaGetErrorName.restype = library.cudaGetErrorString.restype = ctypes.c_char_p
        asked.append([(library.cudaGetErrorName(code), library.cudaGetErrorString(code)) for code in range(-1, 10002)])
    assert asked[0] == asked[1]


def test_the_real_library_inside_of_another_one_is_refused_and_named(sim_run: SimRun) -> None:
    text = "from cuda.bindings import runtime\nprint(int(runtime.cudaMalloc(100)[0]))"
    ran = sim_run(1, [sys.executable, "-c", text])
    assert ran.out == "[0] 801\n", ran.err  # cudaErrorNotSupported
    assert ran.texts("unsupported") == ["cuGetExportTable"]


def test_what_nvml_says(sim_run: SimRun) -> None:
    pytest.importorskip("cuda.bindings.nvml", reason="cuda-bindings without its nvml module: a newer one has it")
    ran = sim_run(1, [sys.executable, "-m", "tests.sim.run.programs.management"])
    assert ran.out == "[0] 8 devices\n", ran.err
    assert ran.code == 0, ran.err
