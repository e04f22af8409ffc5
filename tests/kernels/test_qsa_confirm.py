"""Whether another run confirms a launch table, on inline sweeps."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from qsa_sweeps import DEFAULT, SCRIPT, SM_90, named, qsa_confirm, sweep, swept, whole


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


def test_entries_that_win_nowhere_are_named(tmp_path: Path) -> None:
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
