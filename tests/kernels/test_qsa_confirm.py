"""Whether another run confirms a launch table, and a sweep made compact, on inline sweeps."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from qsa_sweeps import DEFAULT, NEW, SCRIPT, SM_90, named, qsa_confirm, qsa_summary, sweep, swept, whole


def confirmed(document: dict[str, Any], directory: Path) -> subprocess.CompletedProcess[str]:
    (directory / "again.json").write_text(json.dumps(document))
    arguments = [sys.executable, SCRIPT, "again.json", "--confirm", "mine"]
    return subprocess.run(arguments, cwd=directory, capture_output=True, text=True, check=False)


def knowing(document: dict[str, Any], numbers: tuple[int, int, int]) -> dict[str, Any]:
    for measured in document["regions"]:
        measured["known"]["mine"] = named(numbers)
    return document


def test_a_run_in_which_the_table_is_slower_nowhere_confirms_it(tmp_path: Path) -> None:
    done = confirmed(knowing(whole(win=True), (128, 2, 8)), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "mine is confirmed" in done.stdout
    (total,) = (line for line in done.stdout.splitlines() if line.startswith("all "))
    assert total.split() == ["all", "18", "0", "0", "0"]


def test_entries_that_win_nowhere_arenamed(tmp_path: Path) -> None:
    done = confirmed(knowing(whole(win=False), (128, 2, 8)), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "new entries that win nowhere: 1-24 bits_16, 1-24 fp8," in done.stdout


def test_one_slower_problem_refutes_a_table(tmp_path: Path) -> None:
    document = whole(win=True)
    document["regions"][0] = swept({DEFAULT: 10, SM_90: 9, (128, 2, 8): 9.3})
    done = confirmed(knowing(document, (128, 2, 8)), tmp_path)
    assert done.returncode == 1
    assert "slower: r4 hot, 1.033 of sm_90" in done.stdout
    assert "mine is NOT confirmed" in done.stdout


@pytest.mark.parametrize("missing", ["configuration", "region", "timing"])
def test_what_was_not_timed_confirms_nothing(missing: str, tmp_path: Path) -> None:
    document = knowing(whole(win=True), (128, 2, 8))
    first = document["regions"][0]
    if missing == "region":
        document["regions"].pop(0)
    elif missing == "timing":
        first["timing"] = {}
    else:
        first["configurations"] = [c for c in first["configurations"] if c["parameters"] != named((128, 2, 8))]
    done = confirmed(document, tmp_path)
    assert done.returncode == 1
    told = {"configuration": "r4 hot", "region": "1-24 bits_16", "timing": "r4"}[missing]
    assert f"not timed: {told}\n" in done.stdout


def test_the_better_known_entry_itself_is_the_same_and_the_worse_one_is_slower() -> None:
    document = knowing(sweep(swept({DEFAULT: 10, SM_90: 9}), swept({DEFAULT: 9, SM_90: 10}, rows=8)), SM_90)
    judged, untimed = qsa_confirm.judge([document], "mine")
    assert [(one.verdict, one.beside) for one in judged] == [("same entry", "sm_90"), ("worse", "default")]
    assert not untimed


def test_a_table_that_was_not_swept_cannot_be_confirmed(tmp_path: Path) -> None:
    done = confirmed(whole(win=True), tmp_path)
    assert done.returncode == 1
    assert "r4 was swept without the table mine." in done.stderr


def test_a_compact_sweep_has_the_medians_of_what_was_timed_and_the_times_of_the_screening() -> None:
    document = {**sweep(swept({DEFAULT: 10, SM_90: 9})), "versions": {}}
    (measured,) = document["regions"]
    measured["least_bytes"] = 1234
    measured["timing"]["hot"]["nothing_us"] = 0.5
    for configuration in measured["configurations"]:
        us = configuration["times"]["hot"]["us"]
        configuration["times"]["hot"] |= {"p25_us": us - 1, "p75_us": us + 1}
    rejected = {"parameters": named(NEW), "times": {}, "screen_us": {}}
    measured["configurations"] += [{**rejected, "screen_us": {"hot": 30.5}}, rejected]
    written = json.loads(qsa_summary.compact(document))
    assert written["schema"] == "profkit.qsa-sweep/1"
    assert written["seed"] == 1
    (region,) = written["regions"]
    assert region["timed"] == [[32, 64, 4, {"hot": [10, 9, 11]}], [64, 64, 2, {"hot": [9, 8, 10]}]]
    assert region["screened"] == [[64, 16, 4, [30.5]]]
    assert region["noise_percent"] == {"hot": 1.25}
    assert region["nothing_us"] == {"hot": 0.5}
    assert region["known"] == {"default": [32, 64, 4], "sm_90": [64, 64, 2]}
