"""Whether another run confirms a launch table, on inline sweeps."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace
from qsa_sweeps import DEFAULT, SM_90, run, sweep, swept, whole

from profkit.sweep.records import Sweep

MINE = (128, 2, 8)


def confirmed(directory: Path, **sweeps: Sweep | str) -> subprocess.CompletedProcess[str]:
    return run(directory, "--confirm", "mine", **sweeps)


def test_a_run_in_which_the_table_is_slower_nowhere_confirms_it(tmp_path: Path) -> None:
    done = confirmed(tmp_path, again=whole(win=True, mine=MINE))
    assert done.returncode == 0, done.stderr
    assert "mine is confirmed" in done.stdout
    (total,) = (line for line in done.stdout.splitlines() if line.startswith("all "))
    assert total.split() == ["all", "108", "0", "0", "0", "0"]


def test_one_slower_problem_refutes_a_table(tmp_path: Path) -> None:
    document = whole(win=True, mine=MINE)
    first = document.regions[0]
    slower = swept({DEFAULT: 10, SM_90: 9, MINE: 9.3}, mine=MINE, name=first.name)
    document.regions[0] = replace(slower, shapes=first.shapes)
    done = confirmed(tmp_path, again=document)
    assert done.returncode == 1
    assert "slower: r4-g3-kv1-bf16 hot, 1.033 of sm_90" in done.stdout
    assert "mine is NOT confirmed" in done.stdout


@pytest.mark.parametrize("missing", ["configuration", "region", "timing"])
def test_what_was_not_timed_confirms_nothing(missing: str, tmp_path: Path) -> None:
    document = whole(win=True, mine=MINE)
    first = document.regions[0]
    if missing == "region":
        document.regions.pop(0)
    elif missing == "timing":
        untimed = [replace(one, times={}, status="failed") for one in first.configurations]
        document.regions[0] = replace(first, timing={}, configurations=untimed)
    else:
        times = {(32, 64, 4): 10.0, (64, 64, 2): 10.0}
        document.regions[0] = replace(swept(times, mine=MINE, name=first.name), shapes=first.shapes)
    done = confirmed(tmp_path, again=document)
    assert done.returncode == 1, done.stderr
    assert "not timed: r4-g3-kv1-bf16 hot\nmine is NOT confirmed" in done.stdout


def test_the_better_known_entry_itself_is_the_same_and_the_worse_one_is_slower(tmp_path: Path) -> None:
    regions = [swept({DEFAULT: 10, SM_90: 9}, mine=SM_90), swept({DEFAULT: 9, SM_90: 10}, rows=8, mine=SM_90)]
    done = confirmed(tmp_path, again=sweep(*regions))
    (total,) = (line for line in done.stdout.splitlines() if line.startswith("all "))
    assert total.split() == ["all", "0", "0", "0", "1", "1"]
    assert "slower: r8 hot, 1.111 of default" in done.stdout


def test_a_table_that_was_not_swept_cannot_be_confirmed(tmp_path: Path) -> None:
    done = confirmed(tmp_path, again=whole(win=True))
    assert done.returncode == 1
    assert "r4-g3-kv1-bf16 was swept without the table mine." in done.stderr


@pytest.mark.parametrize("lost", ["nothing", "one state", "all but one of a cell", "every problem"])
def test_every_problem_is_asked_for_in_every_state_of_the_protocol(lost: str, tmp_path: Path) -> None:
    document = whole(win=True, mine=MINE, states=("hot", "evicted"))
    of = document.regions
    for number, region in enumerate(of):
        # Of prefills one state is left out with its reason; of another problem without one.
        if region.shapes["mode"] == "prefill" or (lost == "one state" and number == 5):
            hot = [replace(one, times={"hot": one.times["hot"]}) for one in region.configurations]
            left_out = {"evicted": "it is large"} if number != 5 else {}
            of[number] = replace(region, timing={"hot": region.timing["hot"]}, configurations=hot, left_out=left_out)
    if lost == "all but one of a cell":
        document.regions = [of[0], *(one for one in of[1:] if one.shapes["rows"] != 4)]
    elif lost == "every problem":
        document.regions = []
    done = confirmed(tmp_path, again=document)
    assert done.returncode == (0 if lost == "nothing" else 1), done.stderr
    assert "; states hot, evicted\n" in done.stdout
    named = [line.removeprefix("not timed: ") for line in done.stdout.splitlines() if line.startswith("not timed")]
    assert (
        named[:1]
        == {
            "nothing": [],
            "one state": ["r4-g6-kv1-fp8 evicted"],
            "all but one of a cell": ["r4-g3-kv1-fp8 hot"],
            "every problem": ["r4-g3-kv1-bf16 hot"],
        }[lost]
    )
    assert ("and 204 more were not timed" in done.stdout) is (lost == "every problem")


def test_a_problem_under_anothers_name_is_refused(tmp_path: Path) -> None:
    region = swept({DEFAULT: 10, SM_90: 9}, mine=SM_90, name="r4-g3-kv1-fp8")
    done = confirmed(tmp_path, again=sweep(region))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "r4-g3-kv1-fp8 has other shapes than the problem of that name.\n"


def test_one_measurement_counts_once_and_another_one_of_the_same_problems_counts_too(tmp_path: Path) -> None:
    document = whole(win=True, mine=MINE)
    done = confirmed(tmp_path, one=document, twice=document)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "r4-g3-kv1-bf16 is given twice, by one and the same measurement.\n"
    both = confirmed(tmp_path, one=document, again=replace(document, seed=2))
    assert both.returncode == 0, both.stderr
    assert "all                           216" in both.stdout


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "sweep.json "),
        ("{}", "sweep.json: schema is None"),
        ('{"schema": "profkit.sweep/2"}', "sweep.json is not "),
    ],
)
def test_a_file_that_is_no_sweep_is_one_sentence(content: str, message: str, tmp_path: Path) -> None:
    done = confirmed(tmp_path, sweep=content)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(message)
    assert done.stderr.count("\n") == 1
