"""Backend torch-nccl as far as it goes without a GPU: what it declares, its views of memory, what it says is missing.

Not verified: anything that NCCL does; `make gpu-nccl` runs that.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allranks import cli
from allranks.conformance.backend import load_backend
from allranks.conformance.backends import nccl
from allranks.conformance.checks import judge
from allranks.conformance.data import ITEM_BYTES, operand
from allranks.conformance.draws import draw_values
from allranks.conformance.narrowing import contract_of, instead_of, narrowings_of
from allranks.conformance.program import DTYPES, AllReduce, Operand, Program, Region
from allranks.conformance.strategies import programs
from allranks.conformance.worlds.hardware import DISABLING
from allranks.conformance.worlds.processes.world import ProcessesWorld
from allranks.errors import UsageError

# NCCL's types, of those that torch maps to them. Source: NCCLUtils.hpp of PyTorch 2.11, ncclDataType.
TORCH_HANDS_ON = {"int8", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64"}


@pytest.fixture
def torch() -> Any:
    """Give torch, whichever it is."""
    return pytest.importorskip("torch", reason="torch is not installed; make communicators runs this")


class FakeContext:
    """One rank of two; what it exchanges is not looked at."""

    rank, rank_count, device, timeout_s = 0, 2, 0, 1.0


@pytest.fixture
def built_with_cuda(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Have a torch found that says it was built with CUDA, and that cannot be imported."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('this torch is never imported')\n")
    (tmp_path / "torch" / "version.py").write_text("__version__ = '2.11.0+cu130'\ncuda = '13.0'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    nccl.built_with.cache_clear()
    yield tmp_path
    nccl.built_with.cache_clear()


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Give the one line that a command is refused with."""
    assert cli.main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    return line.removeprefix("allranks: error: ")


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is installed; so it is not missing")
def test_torch_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    found = said(capsys, "check", "--backend", "torch-nccl", "--driver", "cuda", "--ranks", "2")
    assert found == "backend='torch-nccl': torch is not installed (pip install torch)"


def test_torch_without_cuda(torch: Any, capsys: pytest.CaptureFixture[str]) -> None:
    if torch.version.cuda is not None:
        pytest.skip("this torch has CUDA; one without is wanted")
    found = said(capsys, "check", "--backend", "torch-nccl", "--driver", "cuda", "--ranks", "2")
    assert found == f"backend='torch-nccl': this torch ({torch.__version__}) was built without CUDA"
    with pytest.raises(UsageError, match="this torch was built without NCCL"):
        nccl._torch()


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="there is a GPU; so it is not missing")
@pytest.mark.usefixtures("built_with_cuda")
def test_no_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    found = said(capsys, "check", "--backend", "torch-nccl", "--driver", "cuda", "--ranks", "2")
    assert found.startswith("driver='cuda': libcuda.so.1 cannot be loaded (")
    found = said(capsys, "replay", "life-connect-and-close", "--backend", "torch-nccl", "--driver", "cuda")
    assert found.startswith("driver='cuda': libcuda.so.1 cannot be loaded (")


@pytest.mark.usefixtures("built_with_cuda")
def test_real_gpus_have_to_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["check"], ["check", "--world", "processes"], ["replay", "life-connect-and-close"]):
        found = said(capsys, *command, "--backend", "torch-nccl")
        assert found == "driver='sim': backend torch-nccl works on real GPUs only, which is --driver cuda"


@pytest.mark.usefixtures("built_with_cuda")
def test_it_opens_nothing_where_multicast_is_not_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*DISABLING, "ALLRANKS_ALLOW_HARDWARE_MULTICAST"):
        monkeypatch.delenv(name, raising=False)  # no driver is loaded in this process
    with pytest.raises(UsageError, match="multicast is not disabled in the environment of this process"):
        nccl.NcclBackend().open(FakeContext())  # type: ignore[arg-type]  # it is refused before it is looked at
    for name, value in DISABLING.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ImportError, match="never imported"):
        nccl.NcclBackend().open(FakeContext())  # type: ignore[arg-type]  # it is refused before it is looked at


@pytest.mark.usefixtures("built_with_cuda")
def test_the_contract_leaves_what_torch_hands_on_to_nccl() -> None:
    backend = load_backend("torch-nccl")
    declared = narrowings_of(backend)
    left = set(DTYPES) - {name for one in declared for name in one.dtypes}
    assert left == TORCH_HANDS_ON
    assert {instead_of(name, declared) for name in ("uint32", "uint64")} == {"int32", "int64"}
    region = Operand(Region())
    step = AllReduce(send=region, receive=region, count=4, dtype="uint64", empty_on=(1,))
    (narrowed,) = contract_of(backend).within(Program(rank_count=2, steps=(step,))).steps
    assert isinstance(narrowed, AllReduce)
    assert (narrowed.dtype, narrowed.empty_on) == ("int64", ())


@pytest.mark.usefixtures("built_with_cuda")
def test_what_torch_was_built_with_is_known_without_importing_it() -> None:
    assert nccl.built_with()["cuda"] == "13.0"
    assert "torch" not in sys.modules


def test_memory_is_shown_as_the_array_interface_has_it() -> None:
    shown = nccl.DeviceBytes(0x7F00_0000_0000, 24).__cuda_array_interface__
    assert shown == {
        "shape": (24,),
        "typestr": "|u1",
        "data": (0x7F00_0000_0000, False),
        "strides": None,
        "version": 3,
    }
    assert np.dtype(str(shown["typestr"])) == np.uint8


@pytest.mark.parametrize("dtype", sorted(TORCH_HANDS_ON))
def test_a_view_of_every_type_is_the_same_memory(torch: Any, dtype: str) -> None:
    bits = operand(seed=1, rank=0, step=2, count=6, dtype=dtype, operation="sum", rank_count=2)
    memory = (ctypes.c_char * bits.nbytes).from_buffer_copy(bits.tobytes())
    raw = torch.frombuffer(memory, dtype=torch.uint8)
    seen = nccl.typed(torch, raw, dtype)
    assert seen.dtype == getattr(torch, dtype)
    assert (seen.numel(), seen.element_size()) == (6, ITEM_BYTES[dtype])
    assert seen.data_ptr() == ctypes.addressof(memory)
    values = (bits.astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else bits
    assert seen.tolist() == values.tolist()
    seen[1] = 3
    assert bytes(memory) != bits.tobytes()


def test_torch_itself_maps_these_types(torch: Any) -> None:
    header = Path(torch.__file__).parent / "include/torch/csrc/distributed/c10d/NCCLUtils.hpp"
    if not header.exists():
        pytest.skip("this torch comes without its headers, which have the table; one with them is wanted")
    table = header.read_text().partition("ncclDataType = {")[2].partition("};")[0]
    mapped = set(re.findall(r"\{at::k(\w+), nccl", table))
    names = {"Char": "int8", "Byte": "uint8", "Int": "int32", "Long": "int64", "Half": "float16"}
    names |= {"BFloat16": "bfloat16", "Float": "float32", "Double": "float64", "UInt32": "uint32", "UInt64": "uint64"}
    assert {names[kind] for kind in mapped if kind in names} == TORCH_HANDS_ON


def test_after_close_it_refuses(torch: Any) -> None:
    made = nccl.NcclCommunicator(torch, None, 0)
    made.there = False
    made.close()
    with pytest.raises(UsageError, match="the communicator is closed"):
        made.all_reduce(0, 0, 1, "int32", "sum")
    with pytest.raises(UsageError, match="dtype='uint32': torch hands NCCL no such type"):
        nccl.NcclCommunicator(torch, None, 0).all_gather(0, 0, 1, "uint32")


@pytest.mark.usefixtures("torch")
def test_what_it_does_with_tensors_is_right_over_gloo() -> None:
    drawn: list[Program] = []
    draw_values(programs("COLL", max_ranks=3, min_ranks=2), 25, drawn.append, seed=4)
    evaluated = 0
    with ProcessesWorld("tests.communicators.nccl_over_gloo:OverGloo") as world:
        contract = contract_of(world.backend)
        for program in map(contract.within, drawn):
            trace = world.run(program)
            for name, outcome in judge(program, trace, ("COLL-1", "COLL-2", "COLL-3", "RDV-1", "LIFE-7")).items():
                assert not outcome.violations, (name, outcome.violations)
                evaluated += outcome.evaluated
    assert evaluated > 100
