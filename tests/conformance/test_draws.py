"""A seed draws the same Programs everywhere: the digest of draws is the same however the suite is run."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import strategies as st

from allranks import _native, sim
from allranks.conformance.backend import load_backend
from allranks.conformance.draws import draw_programs, draw_values, drawn_values
from allranks.conformance.engine import Engine
from allranks.conformance.program import Program
from allranks.errors import UsageError
from allranks.sim.broker import client_folder

SOURCES = Path(__file__).resolve().parents[2]
COUNT = 12
FAMILIES = ("COLL", "LIFE")

# A local module: Hypothesis mixes the constants that it finds in such modules into what it draws from wide ranges.
RANDOM_HELPER = """
from allranks.conformance.backends.plain import PlainBackend

CONSTANTS = (123, 255, 1021, 4093, 65521, 1 << 21, 100_003, 0.125, "helper", b"helper")


class Backend(PlainBackend):
    name = "helper"
"""


def digests(seed: int = 0, count: int = COUNT) -> dict[str, str]:
    """Give the digests of draws in this process."""
    engine = Engine(load_backend("plain"), sim.machine("h100"), ("COLL-1", "LIFE-1"), seed=seed, max_ranks=2)
    for family in engine.families():
        engine.run_family(family, count)
    engine.close()
    return engine.result.draws


def by_command(folder: Path, backend: str, package_in: Path | None = None) -> dict[str, str]:
    """Give the digests that ``allranks check --json`` writes, run in a folder; `package_in` is where the package is."""
    code = "import sys; from allranks.cli import main; sys.exit(main())"
    environment = dict(os.environ)
    if package_in is not None:
        environment["PYTHONPATH"] = str(package_in)
        code = f"import allranks; assert allranks.__file__.startswith({str(package_in)!r}); {code}"
    arguments = ["check", "COLL-1", "LIFE-1", "--ranks", "2", "--programs", str(COUNT), "--json", "report.json"]
    command = [sys.executable, "-P", "-c", code, *arguments, "--backend", backend]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, env=environment)
    draws: dict[str, str] = json.loads((folder / "report.json").read_text(encoding="utf-8"))["draws"]
    return draws


def by_pytest(folder: Path, *arguments: str) -> dict[str, str]:
    """Give the digests that the pytest plugin notes, run in a folder."""
    command = [sys.executable, "-P", "-m", "pytest", "-p", "no:cacheprovider", "--pyargs", "allranks.conformance"]
    command += ["--allranks-backend", "plain", "--allranks-ranks", "2", "--allranks-programs", str(COUNT)]
    command += ["--allranks-requirements", "COLL-1,LIFE-1", "-k", "DETERMINISM", "--junit-xml", "junit.xml"]
    subprocess.run([*command, *arguments], cwd=folder, check=True, capture_output=True)
    found = {}
    for test in ElementTree.parse(folder / "junit.xml").iter("testcase"):
        source = test.get("name", "").partition("[")[2].rstrip("]")
        for noted in test.iter("property"):
            if noted.get("name") == "draws" and noted.get("value"):
                found[source] = noted.get("value", "")
    return found


def test_two_processes_with_and_without_a_local_module_and_one_and_two_workers(tmp_path: Path) -> None:
    here = digests()
    assert set(here) == set(FAMILIES)
    (tmp_path / "random_helper.py").write_text(RANDOM_HELPER, encoding="utf-8")
    (tmp_path / "empty").mkdir()
    assert by_command(tmp_path / "empty", "plain") == here
    assert by_command(tmp_path, "random_helper:Backend") == here
    assert by_pytest(tmp_path / "empty", "-n", "1") == here
    assert by_pytest(tmp_path / "empty", "-n", "2") == here


def test_the_installed_package_and_the_source_tree(tmp_path: Path) -> None:
    """An editable install imports the sources where they lie; here by links to them, beside the built libraries."""
    stage = tmp_path / "stage"
    run = sorted(str(path) for path in client_folder().iterdir())
    built = (str(sim.library_path()), str(_native.__file__), *run)
    make_stage = SOURCES / "csrc" / "cmake" / "make_stage.py"
    subprocess.run([sys.executable, str(make_stage), str(SOURCES), str(stage / "allranks"), *built], check=True)
    (tmp_path / "empty").mkdir()
    assert by_command(tmp_path / "empty", "plain", stage) == digests()


def test_the_digest_depends_on_the_seed_and_on_every_program() -> None:
    assert len({digests(seed, count)["COLL"] for seed, count in ((0, 3), (1, 3), (0, 4))}) == 3


@pytest.mark.parametrize("count", [1, 8, 9, 100])
def test_values_are_drawn_independently_and_the_simplest_is_used_once(count: int) -> None:
    """Hypothesis alone follows each value by variations of it: of these, most differ from the one before in a place."""
    drawn: list[list[int]] = []
    strategy = st.lists(st.integers(0, 100), min_size=20, max_size=20)
    draw_values(strategy, count, drawn.append, seed=5)
    assert len(drawn) == count
    assert list(drawn_values(strategy, count, seed=5)) == drawn
    assert [number for number, value in enumerate(drawn) if not any(value)] == [0]
    alike = [sum(a == b for a, b in zip(one, two, strict=True)) for one, two in itertools.pairwise(drawn)]
    assert max(alike, default=0) < 10


def test_what_a_user_of_values_raises_comes_as_it_is_and_nothing_is_used_again() -> None:
    """Hypothesis by itself tries a value once more that has failed, and calls it flaky if that goes well."""
    used: list[int] = []

    def use(value: int) -> None:
        used.append(value)
        if len(used) == 12:
            raise UsageError("the ranks are gone")

    with pytest.raises(UsageError, match=r"^the ranks are gone$"):
        draw_values(st.integers(0, 10**6), 20, use, seed=1)
    assert len(used) == 12


@pytest.mark.parametrize("family", FAMILIES)
def test_a_run_that_goes_on_draws_the_same_programs(family: str) -> None:
    def drawn() -> list[Program]:
        programs: list[Program] = []
        draw_programs(family, COUNT, lambda program, number: programs.append(program), seed=3, max_ranks=4)
        return programs

    assert drawn() == drawn()

    whole = Engine(load_backend("plain"), sim.machine("h100"), ("COLL-1",), seed=3, max_ranks=4)
    rest = Engine(load_backend("plain"), sim.machine("h100"), ("COLL-1",), seed=3, max_ranks=4)
    whole.run_family(family, COUNT)
    rest.run_family(family, COUNT, skip=COUNT - 2)
    for engine in (whole, rest):
        engine.close()
    assert rest.result.draws == whole.result.draws
    assert (whole.result.programs, rest.result.programs) == (COUNT, 2)
