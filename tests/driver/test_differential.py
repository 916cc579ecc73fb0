"""The differential tool itself, and the transcripts that were recorded on hardware, replayed on the simulated driver.

Not verified: calls that the tool does not draw.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from allranks import sim
from tests.driver.differential import comparing
from tests.driver.differential.drawing import MIN_STEPS, draw_sequences
from tests.driver.differential.files import read_lines, write_lines
from tests.driver.differential.running import run_sequences

FOLDER = Path(__file__).parent
EXPLAINED = FOLDER / "differential" / "explained.json"
TRANSCRIPTS = sorted((FOLDER / "transcripts").glob("*.jsonl.gz"))
MOST_EXPLAINED = 20


def executed(sequences: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return list(run_sequences(str(sim.library_path()), sequences))


@pytest.fixture(scope="module")
def drawn() -> list[dict[str, Any]]:
    return [{"id": index, "steps": steps} for index, steps in enumerate(draw_sequences(60, 3))]


@pytest.fixture(scope="module")
def transcripts(drawn: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return executed(drawn)


def compared(reference: list[dict[str, Any]], other: list[dict[str, Any]], folder: Path) -> comparing.Comparison:
    comparison = comparing.Comparison({})
    paths = folder / "reference.jsonl", folder / "other.jsonl.gz"
    for path, lines in zip(paths, (reference, other), strict=True):
        write_lines(path, lines)
    comparison.files(*paths)
    return comparison


def test_sequences_are_the_same_for_the_same_number_and_long_enough(drawn: list[dict[str, Any]]) -> None:
    assert list(draw_sequences(60, 3)) == [one["steps"] for one in drawn]
    assert min(len(one["steps"]) for one in drawn) >= MIN_STEPS


def test_a_run_is_repeated_and_leaves_nothing(
    drawn: list[dict[str, Any]], transcripts: list[dict[str, Any]], tmp_path: Path
) -> None:
    comparison = compared(transcripts, executed(drawn), tmp_path)
    assert comparison.sequences == len(drawn)
    assert "\n".join(comparison.report(20)).endswith("unexplained differences: 0 kinds")
    assert [one["end"] for one in transcripts[:-1]] == [[]] * len(drawn)
    assert comparison.broken == []


def test_a_code_and_a_value_that_differ_are_found(transcripts: list[dict[str, Any]], tmp_path: Path) -> None:
    changed = json.loads(json.dumps(transcripts))
    results = [result for one in changed for result in one.get("results", ())]
    code = next(result for result in results if result.get("code") == "INVALID_VALUE")
    code["code"] = "NOT_PERMITTED"
    value = next(result for result in results if "size" in result)
    value["size"] += 1
    kinds = compared(transcripts, changed, tmp_path).differences
    assert {kind[1:] for kind in kinds} == {
        ("INVALID_VALUE", "NOT_PERMITTED"),
        (f"size={value['size'] - 1}", f"size={value['size']}"),
    }


def test_a_sequence_that_is_missing_is_found(transcripts: list[dict[str, Any]], tmp_path: Path) -> None:
    assert list(compared(transcripts, transcripts[1:], tmp_path).differences) == [("sequence", "there", "not there")]


def test_a_query_may_be_early_only_where_that_is_open() -> None:
    ready, early = {"code": "SUCCESS"}, {"code": "NOT_READY"}
    assert comparing.kind_of("cuStreamQuery", ready, early) == ("cuStreamQuery", "SUCCESS", "NOT_READY")
    assert comparing.kind_of("cuStreamQuery", {**ready, "racy": True}, {**early, "racy": True}) is None


def test_each_explained_difference_has_a_reason_and_there_are_few() -> None:
    assert len(comparing.load_explained(EXPLAINED)) <= MOST_EXPLAINED


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.name)
def test_the_simulated_driver_answers_as_hardware_did(path: Path, tmp_path: Path) -> None:
    recorded = [one for one in read_lines(path) if one["id"] != "end"]
    other = tmp_path / "simulated.jsonl"
    write_lines(other, executed([{"id": one["id"], "steps": one["steps"]} for one in recorded]))
    comparison = comparing.Comparison(comparing.load_explained(EXPLAINED))
    comparison.files(path, other)
    lacking: Counter[str] = comparison.lacking
    assert not comparison.unexplained, "\n".join(comparison.report(20))
    assert not lacking, f"the simulated driver does not have {sorted(lacking)}"
