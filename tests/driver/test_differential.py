"""The differential tool itself, and the transcripts that were recorded on hardware, replayed on the simulated driver.

Not verified: calls that the tool does not draw.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from allranks import sim
from tests.driver.differential import comparing
from tests.driver.differential.drawing import MIN_STEPS, draw_sequences
from tests.driver.differential.files import read_lines, write_lines
from tests.driver.differential.lending import LENT_VALUE
from tests.driver.differential.running import AtOnce, run_sequences
from tests.driver.differential.tallies import Tally

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).parent
EXPLAINED = FOLDER / "differential" / "explained.json"
TRANSCRIPTS = sorted((FOLDER / "transcripts").glob("*.jsonl.gz"))
MOST_EXPLAINED = 20
MIN_RECORDED = 500


def executed(sequences: list[dict[str, Any]], lends: bool = True, **how: Any) -> list[dict[str, Any]]:
    return list(run_sequences(str(sim.library_path()), sequences, AtOnce(**how), lends=lends))


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


def test_several_processes_say_the_same(
    drawn: list[dict[str, Any]], transcripts: list[dict[str, Any]], tmp_path: Path
) -> None:
    told = executed(drawn, jobs=3, batch=7)
    assert sorted(one["id"] for one in told[:-1]) == [one["id"] for one in drawn]
    assert compared(transcripts, told, tmp_path).differences == {}


def test_memory_of_another_process_is_opened_and_read() -> None:
    wanted = {"on": 1, "handle": "lent 1", "flags": 1}
    calls = [("cuIpcOpenMemHandle", wanted), ("cuIpcOpenMemHandle", wanted)]
    calls += [("cuMemcpyDtoH", {"on": 1, "size": 256, "source": "@0+64"})]
    calls += [("cuIpcCloseMemHandle", {"on": 1, "address": "@0"})] * 3
    sequence = {"id": 0, "steps": [{"call": call, "with": its} for call, its in calls]}
    opened, again, read, closed, last, gone = executed([sequence])[0]["results"]
    assert (opened, again) == ({"code": "SUCCESS", "in": "elsewhere"}, {"code": "SUCCESS", "in": "@0"})
    data = b"0:" + bytes([LENT_VALUE]) * 256
    assert read == {"code": "SUCCESS", "known": 256, "digest": hashlib.blake2s(data, digest_size=8).hexdigest()}
    assert (closed, last, gone) == ({"code": "SUCCESS"}, {"code": "SUCCESS"}, {"skipped": "@0 is not there"})
    assert executed([sequence], lends=False)[0]["results"][0] == {"skipped": "nobody lends"}


def test_no_two_sequences_differ_in_their_last_steps_only(drawn: list[dict[str, Any]]) -> None:
    beginnings = Counter(json.dumps(one["steps"][:8]) for one in drawn)
    assert max(beginnings.values()) == 1


def one_of(call: str, count: int, **its: Any) -> dict[str, Any]:
    return {"id": f"{count} x {call}", "steps": [{"call": call, "with": {"on": 0, **its}}] * count}


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_process_that_ends_is_replaced_and_the_step_is_known(monkeypatch: pytest.MonkeyPatch, jobs: int) -> None:
    monkeypatch.setenv("SIMCU_FAULTS", "*:cuEventCreate:2=kill")
    long, short = one_of("cuEventCreate", 4, flags=0), one_of("cuMemAlloc", 3, size=64)
    told = executed(
        [{**one, "id": index} for index, one in enumerate((short, long, short, short, long))], lends=False, jobs=jobs
    )
    assert {one["id"] for one in told[:-1] if "broken" in one} == {1, 4}
    for one in told[:-1]:
        if "broken" in one:
            assert (one["broken"], len(one["results"])) == (f"exit code {-signal.SIGKILL}", 2)


def test_a_sequence_that_takes_too_long_is_ended_with_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMCU_FAULTS", "*:cuMemAlloc:1=delay:600000")
    told = executed(
        [one_of("cuMemAlloc", 3, size=64), one_of("cuEventCreate", 2, flags=0)], lends=False, deadline_s=1.0
    )
    assert [(one.get("broken"), len(one["results"])) for one in told[:-1]] == [("no answer within 1 s", 1), (None, 2)]


def test_where_hardware_ended_is_a_difference_of_its_own(transcripts: list[dict[str, Any]], tmp_path: Path) -> None:
    first = transcripts[0]
    ended = {**first, "results": first["results"][:5], "broken": "exit code -11"}
    kinds = compared([ended], transcripts[:1], tmp_path).differences
    assert list(kinds) == [(first["steps"][5]["call"], "exit code -11", "whole")]


def test_the_number_of_a_handle_that_is_gone_may_be_given_again_or_not(tmp_path: Path) -> None:
    made = {"call": "cuMemCreate", "with": {"on": 0, "size": 1, "device": 0, "types": 0}}
    steps = [made, {"call": "cuMemRelease", "with": {"on": 0, "handle": "@0"}}, made]
    again, new = ([{"code": "SUCCESS", "handle": "new"}, {"code": "SUCCESS"}, {"code": "SUCCESS"} | last]
                  for last in ({"handle": "@0"}, {"handle": "new"}))  # fmt: skip
    gone, other = ([{"id": 0, "steps": steps, "results": results}] for results in (again, new))
    assert compared(gone, other, tmp_path).differences == {}
    alive, other = ([{"id": 0, "steps": [made, made], "results": [one[0], one[2]]}] for one in (again, new))
    assert len(compared(alive, other, tmp_path).differences) == 1


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tests.driver.differential", *arguments]


def test_a_run_that_was_ended_goes_on_where_it_was(drawn: list[dict[str, Any]], tmp_path: Path) -> None:
    sequences, out = tmp_path / "sequences.jsonl", tmp_path / "told.jsonl.gz"
    write_lines(sequences, drawn)
    arguments = ["run", "--library", str(sim.library_path()), "--in", str(sequences), "--out", str(out), "--jobs", "2"]
    whole = subprocess.run(command(*arguments), cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert f"{len(drawn)} sequences in" in whole
    torn = tmp_path / "torn.jsonl.gz"
    torn.write_bytes(out.read_bytes()[: out.stat().st_size // 2])
    there = len(list(read_lines(torn)))
    assert 0 < there < len(drawn)
    torn.replace(out)
    rest = subprocess.run(command(*arguments), cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert rest.startswith(f"{len(drawn) - there} sequences in")
    assert {one["id"] for one in read_lines(out)} == {*range(len(drawn)), "end"}


def children_of(process: int) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == process:
                yield int(entry.name)


def test_nothing_is_left_of_a_run_that_is_killed(drawn: list[dict[str, Any]], tmp_path: Path) -> None:
    sequences, out = tmp_path / "sequences.jsonl", tmp_path / "told.jsonl"
    write_lines(sequences, [{**one, "id": index} for index, one in enumerate(drawn * 100)])
    arguments = ["run", "--library", str(sim.library_path()), "--in", str(sequences), "--out", str(out), "--jobs", "2"]
    with subprocess.Popen(command(*arguments), cwd=ROOT) as run:
        while not out.exists() or not list(read_lines(out)):  # until the first one is done, and others are under way
            assert run.poll() is None
        ends = []
        for child in children_of(run.pid):
            with contextlib.suppress(ProcessLookupError):
                ends.append(os.pidfd_open(child))
        run.kill()
    assert ends
    for end in ends:
        assert select.select([end], [], [], 60.0)[0], "a process outlived the run"
        os.close(end)


def test_calls_and_codes_that_are_too_rare_are_told(transcripts: list[dict[str, Any]]) -> None:
    tally = Tally()
    for one in transcripts[:-1]:
        tally.add(one)
    assert not [line for line in tally.short_of() if line.startswith("cuMemCreate:")]
    tally.lengths += [0] * 100_000  # as if these calls were all of so many sequences
    told = list(tally.short_of())
    assert any(line.startswith("cuMemCreate:") for line in told)
    assert "UNKNOWN" in " ".join(told)


def test_each_explained_difference_has_a_reason_and_there_are_few() -> None:
    assert len(comparing.load_explained(EXPLAINED)) <= MOST_EXPLAINED


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.name)
def test_the_simulated_driver_answers_as_hardware_did(path: Path, tmp_path: Path) -> None:
    recorded = [one for one in read_lines(path) if one["id"] != "end"]
    other = tmp_path / "simulated.jsonl"
    lent = any(step["with"].get("handle", "").startswith("lent ") for one in recorded for step in one["steps"])
    sequences = [{"id": one["id"], "steps": one["steps"]} for one in recorded]
    write_lines(other, executed(sequences, lends=lent, jobs=2))
    comparison = comparing.Comparison(comparing.load_explained(EXPLAINED))
    comparison.files(path, other)
    lacking: Counter[str] = comparison.lacking
    assert comparison.sequences >= MIN_RECORDED
    assert comparison.alike >= comparison.sequences * 99 // 100
    assert not comparison.unexplained, "\n".join(comparison.report(20))
    assert not lacking, f"the simulated driver does not have {sorted(lacking)}"
