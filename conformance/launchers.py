"""Launchers: the command that starts the ranks of a world `mpi`, on this machine or by the site's own scheduler.

``mpiexec`` has to be the one of the MPI library that mpi4py loads: another one starts N jobs of one rank each. So the
library is asked what it is, and the launchers that can be found are asked too.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, get_args

from allranks.conformance.backend import Backend
from allranks.errors import UsageError

Launcher = Literal["mpiexec", "srun", "torchrun", "none"]
LAUNCHERS: Final[tuple[Launcher, ...]] = get_args(Launcher)

_ASK_S: Final = 60.0
_ASK_LIBRARY: Final = (
    "import mpi4py; mpi4py.rc.initialize = False\n"
    "from mpi4py import MPI; print(MPI.Get_library_version().replace(chr(0), ''))"
)
# What the versions of a family say of themselves, in lower case.
_FAMILIES: Final = {
    "openmpi": ("open mpi", "openrte", "open-mpi", "prrte", "prte"),
    "mpich": ("mpich", "hydra", "intel(r) mpi", "mvapich"),
}
# Ranks of one machine talk over loopback only; what the user has set stays.
_LOOPBACK: Final = {
    "OMPI_MCA_btl_tcp_if_include": "lo",
    "OMPI_MCA_oob_tcp_if_include": "lo",
    "FI_TCP_IFACE": "lo",
    "GLOO_SOCKET_IFNAME": "lo",
    "OMP_NUM_THREADS": "1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A command line but for the program that each rank runs, and what is added to the environment."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    library: str = ""


def launcher_of(backend: Backend, world: str, launcher: Launcher | None, nodes: int | None) -> Launcher:
    """Give the launcher that was asked for, or that the backend is usually started by.

    Raises
    ------
    allranks.errors.UsageError
        If it does not go with the rest.
    """
    for name, given in (("launcher", launcher), ("nodes", nodes)):
        if world != "mpi" and given is not None:
            raise UsageError(f"{name}={given!r}: only for world mpi, and this is world {world}")
    usual: Launcher = getattr(backend, "launcher", "mpiexec")
    chosen = launcher or usual
    if chosen not in LAUNCHERS:
        raise UsageError(f"launcher={chosen!r}: one of {', '.join(LAUNCHERS)}")
    if nodes is not None and nodes < 1:
        raise UsageError(f"nodes={nodes}: a whole number from 1 on")
    if nodes is not None and nodes > 1 and chosen != "mpiexec":
        raise UsageError(f"nodes={nodes}: nodes are simulated with launcher mpiexec only")
    return chosen


def wire_name(launcher: Launcher) -> str:
    """Say what ranks talk over: MPI, or the store of ``torchrun``, if that starts or has started them."""
    if launcher == "none":
        return "store" if "TORCHELASTIC_RUN_ID" in os.environ else "mpi"
    return "store" if launcher == "torchrun" else "mpi"


def launch(launcher: Launcher, ranks: int, *, nodes: int = 1) -> Launch:
    """Give the command that starts a number of ranks.

    Parameters
    ----------
    launcher : {"mpiexec", "srun", "torchrun"}
        By what.
    ranks : int
        How many.
    nodes : int
        Nodes that the ranks of this machine shall think they are on; they then use what MPI uses between hosts.

    Raises
    ------
    allranks.errors.UsageError
        If it is missing, or does not belong to the MPI library in use.
    """
    if launcher == "none":
        raise ValueError("launcher='none': starts nothing")
    if launcher == "torchrun":
        if importlib.util.find_spec("torch") is None:
            raise UsageError("launcher='torchrun': torch is not installed")
        torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}")
        return Launch(command=(*torchrun, "--no-python"), environment=_loopback())
    library = mpi_library()
    if launcher == "srun":
        if (srun := shutil.which("srun")) is None:
            raise UsageError("launcher='srun': not found on PATH")
        return Launch(command=(srun, f"--ntasks={ranks}", "--kill-on-bad-exit=1"), library=library)
    family = family_of(library)
    command: tuple[str, ...] = (str(_mpiexec(family, library)), "-n", str(ranks))
    environment = _loopback()
    if family == "openmpi":
        command += ("--oversubscribe", "--bind-to", "none")
        if os.geteuid() == 0:
            command += ("--allow-run-as-root",)
        if nodes > 1:
            environment["OMPI_MCA_btl"] = "self,tcp"
    else:
        command += ("-launcher", "fork", "-bind-to", "none")
        if nodes > 1:
            environment["MPIR_CVAR_NUM_CLIQUES"] = str(nodes)
    return Launch(command=command, environment=environment, library=library)


def _loopback() -> dict[str, str]:
    return {name: value for name, value in _LOOPBACK.items() if name not in os.environ}


def mpi_library() -> str:
    """Say which MPI library mpi4py loads.

    Raises
    ------
    allranks.errors.UsageError
        If there is none, or no mpi4py; the message says which of the two.
    """
    if importlib.util.find_spec("mpi4py") is None:
        raise UsageError("world='mpi': mpi4py is not installed (pip install mpi4py, and an MPI such as mpich)")
    asked = _ask([sys.executable, "-c", _ASK_LIBRARY])
    if asked.returncode:
        said = [line for line in asked.stderr.splitlines() if line.strip()] or ["it says nothing"]
        why = next((line for line in said if "cannot load" in line or "cannot open" in line), said[-1])
        raise UsageError(f"world='mpi': mpi4py finds no MPI library: {why.strip()}")
    return " ".join(next((line for line in asked.stdout.splitlines() if line.strip()), "unknown").split())


def family_of(said: str) -> str:
    """Give the family of a library or of a launcher by what it says: "mpich" or "openmpi"; empty: it is neither."""
    for family, marks in _FAMILIES.items():
        if any(mark in said.lower() for mark in marks):
            return family
    return ""


def _mpiexec(family: str, library: str) -> Path:
    found: list[str] = []
    for path in _candidates(family):
        asked = _ask([str(path), "--version"])
        theirs = family_of(asked.stdout + asked.stderr)
        if family and theirs == family:
            return path
        found.append(f"{path} is of {theirs or 'another MPI'}")
    what = f"launcher='mpiexec': none on PATH or beside {sys.executable} that starts ranks of {library!r}"
    raise UsageError(f"{what} ({'; '.join(found)})" if found else what)


def _candidates(family: str) -> Iterator[Path]:
    seen: set[str] = set()
    folders = [str(Path(sys.executable).parent), *os.environ.get("PATH", "").split(os.pathsep)]
    names = ("mpiexec", f"mpiexec.{family}", "mpiexec.hydra", "mpirun")
    for name in names:
        for folder in folders:
            found = shutil.which(name, path=folder) if folder else None
            if found is not None and os.path.realpath(found) not in seen:
                seen.add(os.path.realpath(found))
                yield Path(found)


def _ask(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PMI_", "OMPI_COMM_"))}
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ASK_S,
            check=False,
            stdin=subprocess.DEVNULL,
            env=environment,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(list(command), 1, "", str(error))
