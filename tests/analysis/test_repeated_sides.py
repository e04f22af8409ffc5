"""Sides of several runs: how runs are called, what of a capture is missing, which times and which force apply."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench import Bench, codes, profkit
from recording import step_recording, step_trace

from profkit.comparison.compare import compare
from profkit.comparison.model import Gates, Input
from profkit.errors import ProfkitError
from profkit.reporters import diff, diff_document, diff_table
from profkit.runs import planned

BEFORE, FUSED = "gemm:3000 fill:900 mask:900 pack:1300", "gemm:3000 pack:1800"


def write_run(directory: Path, layer: str, seed: int) -> None:
    """A run of three layers, in `directory`."""
    directory.mkdir(parents=True)
    step_trace(directory / "trace.sqlite", [layer] * 3, replays=6, jitter_ns=6, seed=seed)
    record = {"schema": "profkit.run/1", "trace": "trace.sqlite"}
    (directory / "run.json").write_text(json.dumps(record), encoding="utf-8")


def plan(root: Path, **changed: Any) -> None:
    """A capture.json of two arms and three pairs."""
    content = {"arms": [{"name": "old"}, {"name": "new"}], "pairs": 3, **changed}
    root.mkdir(exist_ok=True)
    (root / "capture.json").write_text(json.dumps({"schema": planned.SCHEMA, "plan": content}), encoding="utf-8")


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    """A repeated capture of which the last repetition of one arm is missing, and whose first baseline is slow."""
    root = tmp_path / "pool"
    plan(root)
    for pair in range(3):
        slow = BEFORE.replace("3000", "9000") if pair == 0 else BEFORE
        write_run(root / "old" / str(pair) / "0", slow, pair)
        if pair < 2:
            write_run(root / "new" / str(pair) / "0", FUSED, 10 + pair)
    return root


@pytest.mark.parametrize(
    ("before", "after", "first"),
    [
        ("pool/old", "pool/new", "pool/old/0/0"),
        ("pool/old/*", "pool/new/*", "pool/old/0/0"),
        ("pool/old/*/0", "pool/new/*/0", "pool/old/0/0"),
        ("pool/old", "./pool/n*", "pool/old/0/0"),
    ],
)
def test_the_first_run_keeps_its_name_and_what_is_missing_is_said(
    pool: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: str, first: str
) -> None:
    monkeypatch.chdir(pool.parent)
    data = json.loads(profkit("diff", before, after, "--format", "json").stdout)
    said = {reason["code"]: reason["message"] for reason in data["reasons"]}
    assert said["unlike-run"].startswith(f"{data['before']['runs'][0]} is unlike")
    assert data["before"]["runs"][0] in (first, "0/0")
    assert "Not there: 1 of 3 planned repetitions of new (pair 2)." in said["repetitions-missing"]
    # THEN what is counted is of all runs: 3 runs of 6 replays of 3 layers of 4 launches
    assert data["before"]["ledger"]["in_layers"] == 3 * 6 * 3 * 4
    assert sum(data["before"]["methods"].values()) == 3 * 6 * 3 * 4


def test_an_arm_may_be_the_working_directory(pool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(pool / "new")
    assert [(m.arm, m.pairs) for m in planned.missing(".")] == [("new", [2])]
    assert [(m.arm, m.pairs) for m in planned.missing("./*")] == [("new", [2])]


def test_a_glob_misses_nothing_that_it_does_not_name(pool: Path) -> None:
    assert list(planned.missing(str(pool / "new" / "[01]"))) == []


@pytest.mark.parametrize(
    "changed", [{"pairs": 0}, {"pairs": -1}, {"pairs": 10**7}, {"nproc": -3}, {"nproc": 0}, {"arms": []}]
)
def test_a_plan_that_cannot_be_is_an_error(tmp_path: Path, changed: dict[str, Any]) -> None:
    plan(tmp_path, **changed)
    with pytest.raises(ProfkitError, match="is not as profkit writes it"):
        list(planned.missing(str(tmp_path)))


@pytest.mark.parametrize("name", ["capture.json", "old/1/0/run.json"])
def test_json_nested_too_deep_is_an_error_that_names_the_file(pool: Path, name: str) -> None:
    (pool / name).write_text("[" * 100_000, encoding="utf-8")
    done = profkit("diff", pool)
    assert done.returncode == 2
    assert f"{pool / name} is not valid JSON" in done.stderr
    assert "another -o" not in done.stderr


def several(bench: Bench, label: str, layer: str, count: int, seed: int) -> Input:
    """Several runs of one side."""
    first, *more = [
        bench.side(step_recording([layer] * 3, replays=8, jitter_ns=6, seed=seed + i, outside="embed:70").rows, f"{i}")
        for i in range(count)
    ]
    return replace(first, label=label, more=tuple(more))


def test_one_run_against_several_is_not_called_one_process_a_side(bench: Bench) -> None:
    comparison = compare(several(bench, "one", BEFORE, 1, 0), several(bench, "many", FUSED, 3, 10))
    message = next(r.message for r in comparison.reasons if r.code == "replays-not-runs")
    assert message.startswith("one is one run, so times compare its replays with those of 3 runs of many;")


def test_times_per_layer_and_per_step_are_told_apart(bench: Bench) -> None:
    comparison = compare(several(bench, "a", BEFORE, 1, 0), several(bench, "b", FUSED, 1, 10))
    line = diff.others_line(comparison, diff_table.build(comparison))
    assert line is not None
    assert line.startswith("Nothing else moved")
    assert "µs a layer" in line
    assert "and outside the selected layers " in line
    assert "µs a step" in line


def test_force_says_what_it_does_not_set_aside(bench: Bench) -> None:
    sides = [bench.side(step_recording(["gemm pack"] * layers).rows, f"{layers}") for layers in (3, 4)]
    comparison = compare(*sides, Gates(force=True))
    assert codes(comparison)[:2] == ["other-layer-count", "not-forced"]
    assert "not-forced" not in codes(compare(*sides))
    assert diff_document.report(comparison).verdict == "inconclusive"
