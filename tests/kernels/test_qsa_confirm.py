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


def only_times(measured: dict[str, Any]) -> dict[str, Any]:
    return {name: measured[name] for name in ("timing", "configurations")}


def both_states(document: dict[str, Any]) -> dict[str, Any]:
    """Evicted like hot, but for prefills, where it is left out."""
    document["protocol"]["states"] = ["hot", "evicted"]
    for measured in document["regions"]:
        if measured["shapes"]["mode"] == "prefill":
            measured["left_out"] = {"evicted": "it is large"}
            continue
        measured["timing"]["evicted"] = measured["timing"]["hot"]
        for configuration in measured["configurations"]:
            configuration["times"]["evicted"] = configuration["times"]["hot"]
    return document


def test_a_run_in_which_the_table_is_slower_nowhere_confirms_it(tmp_path: Path) -> None:
    done = confirmed(knowing(whole(win=True), (128, 2, 8)), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "mine is confirmed" in done.stdout
    (total,) = (line for line in done.stdout.splitlines() if line.startswith("all "))
    assert total.split() == ["all", "108", "0", "0", "0", "0"]


def test_entries_that_win_nowhere_are_named(tmp_path: Path) -> None:
    done = confirmed(knowing(whole(win=False), (128, 2, 8)), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "new entries that win nowhere: 1-24 bits_16, 1-24 fp8," in done.stdout


def test_one_slower_problem_refutes_a_table(tmp_path: Path) -> None:
    document = whole(win=True)
    first = document["regions"][0]
    document["regions"][0] = {**first, **only_times(swept({DEFAULT: 10, SM_90: 9, (128, 2, 8): 9.3}))}
    done = confirmed(knowing(document, (128, 2, 8)), tmp_path)
    assert done.returncode == 1
    assert "slower: r4-g3-kv1-bf16 hot, 1.033 of sm_90" in done.stdout
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
    assert "not timed: r4-g3-kv1-bf16 hot\nmine is NOT confirmed" in done.stdout


def test_the_better_known_entry_itself_is_the_same_and_the_worse_one_is_slower() -> None:
    document = knowing(sweep(swept({DEFAULT: 10, SM_90: 9}), swept({DEFAULT: 9, SM_90: 10}, rows=8)), SM_90)
    judged, untimed = qsa_confirm.judge([document], "mine")
    assert [(one.verdict, one.beside) for one in judged] == [("same entry", "sm_90"), ("worse", "default")]
    assert not untimed


def test_a_table_that_was_not_swept_cannot_be_confirmed(tmp_path: Path) -> None:
    done = confirmed(whole(win=True), tmp_path)
    assert done.returncode == 1
    assert "r4-g3-kv1-bf16 was swept without the table mine." in done.stderr


@pytest.mark.parametrize(
    "lost", ["nothing", "evicted everywhere", "one state", "all but one of a cell", "every problem"]
)
def test_every_problem_is_asked_for_in_every_state_of_the_protocol(lost: str, tmp_path: Path) -> None:
    document = both_states(knowing(whole(win=True), (128, 2, 8)))
    of = document["regions"]
    for measured in of if lost == "evicted everywhere" else of[5:6] if lost == "one state" else []:
        measured["timing"].pop("evicted", None)
        for configuration in measured["configurations"]:
            configuration["times"].pop("evicted", None)
    if lost == "all but one of a cell":
        document["regions"] = [of[0], *(m for m in of[1:] if m["shapes"]["rows"] != 4)]
    elif lost == "every problem":
        document["regions"] = []
    done = confirmed(document, tmp_path)
    assert done.returncode == (0 if lost == "nothing" else 1), done.stderr
    assert "; states hot, evicted\n" in done.stdout
    named = [line.removeprefix("not timed: ") for line in done.stdout.splitlines() if line.startswith("not timed")]
    assert (
        named[:1]
        == {
            "nothing": [],
            "evicted everywhere": ["r4-g3-kv1-bf16 evicted"],
            "one state": ["r4-g6-kv1-fp8 evicted"],
            "all but one of a cell": ["r4-g3-kv1-fp8 hot"],
            "every problem": ["r4-g3-kv1-bf16 hot"],
        }[lost]
    )
    assert ("and 204 more were not timed" in done.stdout) is (lost == "every problem")


@pytest.mark.parametrize("us", [float("nan"), float("inf"), 0, -1.0, "9", None])
def test_a_time_that_is_none_is_refused(us: Any, tmp_path: Path) -> None:
    document = knowing(whole(win=True), (128, 2, 8))
    document["regions"][7]["configurations"][0]["times"]["hot"]["us"] = us
    done = confirmed(document, tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Sweep 1 of 1 is damaged: Expected `float`")
    assert "$.regions[7].configurations[0].times[...].us" in done.stderr


def test_a_verdict_that_is_missing_is_refused(tmp_path: Path) -> None:
    document = knowing(whole(win=True), (128, 2, 8))
    document["regions"][0]["configurations"][-1]["times"]["hot"]["against"]["sm_90"] = None
    done = confirmed(document, tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == ("r4-g3-kv1-bf16 hot is damaged: the verdict of (128, 2, 8) beside sm_90 is amiss.\n")


def test_a_problem_under_anothers_name_is_refused(tmp_path: Path) -> None:
    document = knowing(whole(win=True), (128, 2, 8))
    document["regions"][0]["name"] = "r4-g3-kv1-fp8"
    done = confirmed(document, tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "r4-g3-kv1-fp8 is damaged: its dtype are not those" in done.stderr


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, SCRIPT, *arguments, "--confirm", "mine"]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)


def test_one_measurement_counts_once_and_another_one_of_the_same_problems_counts_too(tmp_path: Path) -> None:
    document = knowing(whole(win=True), (128, 2, 8))
    (tmp_path / "one.json").write_text(json.dumps(document))
    (tmp_path / "again.json").write_text(json.dumps({**document, "seed": 2}))
    (tmp_path / "part.json").write_text(json.dumps({**document, "regions": document["regions"][3:5]}))
    for twice in ("one.json", "part.json"):
        done = run(tmp_path, "one.json", twice)
        assert (done.returncode, done.stdout) == (1, "")
        assert " hot is given twice, by one and the same measurement." in done.stderr
    both = run(tmp_path, "one.json", "again.json")
    assert both.returncode == 0, both.stderr
    assert "all                           216" in both.stdout


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "sweep.json cannot be read: No such file or directory.\n"),
        ("{", "sweep.json is not valid JSON: "),
        ("[]", "sweep.json is no sweep.\n"),
        ("{}", "Give sweeps of qsa-attention of schema"),
        ('{"schema": "profkit.qsa-sweep/2"}', "sweep.json is damaged: KeyError 'regions' in what --compact wrote."),
        ('{"schema": "profkit.sweep/2", "workload": {"name": "qsa-attention"}}', "Sweep 1 of 1 is damaged: "),
    ],
)
def test_a_file_that_is_no_sweep_is_one_sentence(content: str | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "sweep.json").write_text(content)
    done = run(tmp_path, "sweep.json")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(message)
    assert done.stderr.count("\n") == 1
