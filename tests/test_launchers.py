"""Which command starts ranks: the launcher has to be the one of the library, and what is missing is said in a line."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from allranks.conformance import launchers
from allranks.conformance.backends.plain import PlainBackend
from allranks.conformance.launchers import family_of, launch, launcher_of, wire_name
from allranks.errors import UsageError


def program(folder: Path, name: str, says: str) -> Path:
    """Make a program that says this."""
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{says}'\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a folder that is all there is on PATH; the interpreter lies elsewhere, alone."""
    monkeypatch.setenv("PATH", f"{tmp_path}")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "elsewhere" / "python"))
    return tmp_path


def of_library(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setattr(launchers, "mpi_library", lambda: said)


@pytest.mark.parametrize(
    ("said", "family"),
    [
        ("Open MPI v5.0.11, package: Open MPI user@localhost Distribution", "openmpi"),
        ("mpiexec.openmpi (OpenRTE) 4.1.4", "openmpi"),
        ("mpiexec (Open MPI) 5.0.11", "openmpi"),
        ("MPICH Version: 4.0.2", "mpich"),
        ("HYDRA build details:\n Version: 5.0.2", "mpich"),
        ("Intel(R) MPI Library 2021.9 for Linux* OS", "mpich"),
        ("mpiexec of nobody", ""),
    ],
)
def test_a_family_is_known_by_what_it_says(said: str, family: str) -> None:
    assert family_of(said) == family


def test_the_launcher_of_the_library_is_taken(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(bare, "mpiexec", "mpiexec (OpenRTE) 4.1.4")
    hydra = program(bare, "mpiexec.mpich", "HYDRA build details:")
    of_library(monkeypatch, "MPICH Version: 4.0.2")
    found = launch("mpiexec", 3)
    assert found.command[:3] == (str(hydra), "-n", "3")
    assert "--oversubscribe" not in found.command


def test_open_mpi_may_start_more_ranks_than_there_are_processors(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(bare, "mpiexec", "mpiexec (OpenRTE) 4.1.4")
    of_library(monkeypatch, "Open MPI v4.1.4")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert {"--oversubscribe", "--bind-to", "none", "--allow-run-as-root"} <= set(launch("mpiexec", 2).command)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "--allow-run-as-root" not in launch("mpiexec", 2).command


def test_nodes_of_one_machine_use_what_hosts_use(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(bare, "mpiexec", "mpiexec (OpenRTE) 4.1.4")
    program(bare, "mpiexec.mpich", "HYDRA build details:")
    of_library(monkeypatch, "Open MPI v4.1.4")
    assert launch("mpiexec", 2, nodes=2).environment["OMPI_MCA_btl"] == "self,tcp"
    of_library(monkeypatch, "MPICH Version: 4.0.2")
    assert launch("mpiexec", 4, nodes=2).environment["MPIR_CVAR_NUM_CLIQUES"] == "2"


def test_what_the_user_has_set_stays(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(bare, "mpiexec", "HYDRA build details:")
    of_library(monkeypatch, "MPICH Version: 4.0.2")
    assert launch("mpiexec", 2).environment["FI_TCP_IFACE"] == "lo"
    monkeypatch.setenv("FI_TCP_IFACE", "eth0")
    assert "FI_TCP_IFACE" not in launch("mpiexec", 2).environment


def test_a_launcher_of_another_library_is_named(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = program(bare, "mpiexec", "mpiexec (OpenRTE) 4.1.4")
    of_library(monkeypatch, "MPICH Version: 4.0.2")
    with pytest.raises(UsageError, match="none on PATH or beside") as caught:
        launch("mpiexec", 2)
    assert f"{other} is of openmpi" in str(caught.value)


@pytest.mark.usefixtures("bare")
def test_a_launcher_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    of_library(monkeypatch, "MPICH Version: 4.0.2")
    with pytest.raises(UsageError, match="launcher='mpiexec': none on PATH or beside"):
        launch("mpiexec", 2)
    with pytest.raises(UsageError, match="launcher='srun': not found on PATH"):
        launch("srun", 2)


def test_srun_ends_all_ranks_with_one(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    srun = program(bare, "srun", "slurm 24.05")
    of_library(monkeypatch, "MPICH Version: 4.0.2")
    assert launch("srun", 4).command == (str(srun), "--ntasks=4", "--kill-on-bad-exit=1")


@pytest.mark.parametrize("what", ["mpi4py", "torch"])
def test_a_package_that_is_missing(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=f"{what} is not installed"):
        launch("mpiexec" if what == "mpi4py" else "torchrun", 2)


def test_a_library_that_cannot_be_loaded_is_told_in_a_line(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (bare / "elsewhere").mkdir()
    failing = program(bare / "elsewhere", "python", "")
    failing.write_text("#!/bin/sh\necho 'RuntimeError: cannot load MPI library' >&2\necho more >&2\nexit 1\n")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    with pytest.raises(UsageError) as caught:
        launchers.mpi_library()
    assert str(caught.value) == "world='mpi': mpi4py finds no MPI library: RuntimeError: cannot load MPI library"


@pytest.mark.parametrize(
    ("world", "launcher", "nodes", "wanted"),
    [
        ("threads", "mpiexec", None, "launcher='mpiexec': only for world mpi"),
        ("processes", None, 2, "nodes=2: only for world mpi"),
        ("mpi", "qsub", None, "launcher='qsub': one of mpiexec, srun, torchrun, none"),
        ("mpi", None, 0, "nodes=0: a whole number from 1 on"),
        ("mpi", "srun", 2, "nodes=2: nodes are simulated with launcher mpiexec only"),
    ],
)
def test_what_does_not_go_together(world: str, launcher: str | None, nodes: int | None, wanted: str) -> None:
    with pytest.raises(UsageError) as caught:
        launcher_of(PlainBackend(), world, launcher, nodes)  # type: ignore[arg-type]
    assert wanted in str(caught.value)


def test_ranks_of_torchrun_have_its_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    assert [wire_name(one) for one in launchers.LAUNCHERS] == ["mpi", "mpi", "store", "mpi"]
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert wire_name("none") == "store"
