"""When a sweep gives a new launch table: entries that win beyond noise and are slower nowhere, on inline sweeps."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from qsa_sweeps import DEFAULT, NEW, OTHER, SCRIPT, SM_90, named, qsa_table, sweep, swept, whole

from profkit.kernels.qsa.tables import Entry, Table, _entries, entry


def only(*regions: dict[str, Any]) -> Any:
    (choice,) = qsa_table.choose([sweep(*regions)]).values()
    return choice


def test_an_entry_that_wins_everywhere_is_taken() -> None:
    choice = only(
        swept({DEFAULT: 10, SM_90: 9, NEW: 8, OTHER: 8.5}),
        swept({DEFAULT: 20, SM_90: 21, NEW: 18, OTHER: 19}, rows=16),
    )
    assert (choice.numbers, choice.source, choice.points, choice.better) == (NEW, "measured", 2, 2)
    assert (choice.region, choice.cache) == ("1-24", "bits_16")
    # Beside the better known entry of each point: 8 of 9 and 18 of 20.
    assert choice.least == pytest.approx(8 / 9)
    assert choice.most == pytest.approx(18 / 20)
    assert choice.mean == pytest.approx((8 / 9 * 18 / 20) ** 0.5)


def test_an_entry_that_loses_anywhere_is_not_taken() -> None:
    choice = only(
        swept({DEFAULT: 10, SM_90: 9, NEW: 5, OTHER: 8.5}),
        swept({DEFAULT: 20, SM_90: 21, NEW: 20.5, OTHER: 19}, rows=16),
    )
    assert (choice.numbers, choice.source) == (OTHER, "measured")


@pytest.mark.parametrize(("us", "source"), [(20.3, "measured"), (21.5, "sm_90")])
@pytest.mark.parametrize("verdict", ["equal", "unclear"])
def test_slower_within_noise_is_no_loss_unless_it_is_much(us: float, source: str, verdict: str) -> None:
    noisy = swept({DEFAULT: 20, SM_90: 21, NEW: us}, rows=16)
    for configuration in noisy["configurations"]:
        for found in configuration["times"]["hot"]["against"].values():
            if found is not None:
                found["verdict"] = verdict
    assert only(swept({DEFAULT: 10, SM_90: 9, NEW: 5}), noisy).source == source


def test_an_entry_that_was_not_timed_everywhere_is_not_taken() -> None:
    choice = only(swept({DEFAULT: 10, SM_90: 9, NEW: 5}), swept({DEFAULT: 20, SM_90: 19}, rows=16))
    assert (choice.numbers, choice.source, choice.better) == (SM_90, "sm_90", 0)


def test_a_win_within_noise_is_none() -> None:
    assert only(swept({DEFAULT: 10, SM_90: 9, NEW: 8.85})).source == "sm_90"


def test_a_win_at_one_point_that_counts_for_nothing_on_average_is_none() -> None:
    regions = [swept({DEFAULT: 10, SM_90: 9, NEW: 9}, q_heads=heads) for heads in range(12, 17)]
    assert only(*regions, swept({DEFAULT: 10, SM_90: 9, NEW: 8.7})).source == "sm_90"


def test_without_a_winner_the_known_entry_that_is_faster_on_average_stays() -> None:
    choice = only(swept({DEFAULT: 10, SM_90: 12}), swept({DEFAULT: 21, SM_90: 20}, rows=16))
    assert (choice.numbers, choice.source) == (DEFAULT, "default")
    assert choice.known_worse == {"sm_90": 1, "default": 1}
    assert only(swept({DEFAULT: 10, SM_90: 10})).source == "sm_90"


def test_states_groups_and_head_counts_count_as_points_and_caches_are_apart() -> None:
    fp8 = entry("sm_90", 28, 1, prefill=False, fp8=True)
    default = entry("default", 28, 1, prefill=False, fp8=True)
    assert fp8 == default == Entry(32, 16, 1)
    choices = qsa_table.choose(
        [
            sweep(swept({DEFAULT: 10, SM_90: 9, NEW: 8}), swept({DEFAULT: 10, SM_90: 9, NEW: 8}, state="evicted")),
            sweep(
                swept({DEFAULT: 10, SM_90: 9, NEW: 8}, rows=2, kv_heads=2),
                swept({(32, 16, 1): 9, NEW: 8}, rows=28, dtype="fp8"),
            ),
        ]
    )
    assert {key: choice.points for key, choice in choices.items()} == {("1-24", "bits_16"): 3, ("25-32", "fp8"): 1}


@pytest.mark.parametrize("win", [True, False])
def test_the_script_says_whether_a_table_ships_and_writes_it(win: bool, tmp_path: Path) -> None:
    (tmp_path / "sweep.json").write_text(json.dumps(whole(win)))
    arguments = ["sweep.json", "--name", "mine", "--output", "table.json"]
    done = subprocess.run(
        [sys.executable, SCRIPT, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    written = json.loads((tmp_path / "table.json").read_text())
    assert written["ships"] is win
    assert len(written["entries"]) == 18
    nine = [(128, 2, 8)] * 9
    verdict = "18 of 18 entries win beyond noise: a table." if win else "0 of 18 entries win beyond noise: no table."
    assert verdict in done.stdout
    assert ("For TABLES in" in done.stdout) is win
    if win:
        source = done.stdout[done.stdout.index('    "mine": Table(') :]
        names = {"Table": Table, "_entries": _entries}
        (pasted,) = eval("{" + source + "}", names).values()
        assert pasted == Table("tuned on a GPU, 2026-01-02", _entries(*nine), _entries(*nine))


def test_a_row_of_markdown_for_each_problem_and_state_and_whether_the_h20_table_carries_over(tmp_path: Path) -> None:
    regions = [
        swept({DEFAULT: 10, SM_90: 9, NEW: 8}),
        swept({DEFAULT: 10, SM_90: 9.9, NEW: 8}, state="evicted"),
        swept({DEFAULT: 10, SM_90: 11, NEW: 8}, rows=8),
        {**swept({(32, 16, 1): 7.0}, rows=28, dtype="fp8"), "left_out": {"evicted": "it is large"}},
    ]
    (tmp_path / "sweep.json").write_text(json.dumps(sweep(*regions)))
    arguments = ["sweep.json", "--markdown", "table.md"]
    done = subprocess.run([sys.executable, SCRIPT, *arguments], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    written = (tmp_path / "table.md").read_text()
    lines = written.splitlines()
    assert lines[2:5] == [
        "| bf16 | evicted | 0 | 1 | 0 | 0 | 0 |",
        "| bf16 | hot | 1 | 0 | 0 | 1 | 0 |",
        "| fp8 | hot | 0 | 0 | 0 | 0 | 1 |",
    ]
    assert lines[2] in done.stdout
    known = "| 32,64,4 | 10.00 | 64,64,2 | 9.00"
    assert f"| r4 | hot | 1.25 {known} | 64,16,4 | 8.00 | 64,16,4 | 8.00 | 0.889 better (sm_90) |" in lines
    same = " ".join(["| 32,16,1 | 7.00"] * 4)
    assert f"| r28 | hot | 1.25 {same} | 1.000 same (default) |" in lines
    assert "r28 evicted was not timed: it is large." in lines


def test_regions_that_were_not_measured_leave_no_table(tmp_path: Path) -> None:
    (tmp_path / "sweep.json").write_text(json.dumps(sweep(swept({DEFAULT: 10, SM_90: 9, NEW: 8}))))
    done = subprocess.run([sys.executable, SCRIPT, "sweep.json"], cwd=tmp_path, capture_output=True, text=True)
    assert "1 of 1 entries win beyond noise: no table." in done.stdout
    assert "Not measured, so no table: 1-24 fp8, 25-32 bits_16" in done.stdout


def test_a_region_without_the_known_entries_is_left_out_and_named() -> None:
    known = {DEFAULT: 10, SM_90: 9, NEW: 8}
    without, nothing = swept(known, rows=8), swept(known, rows=12)
    without["configurations"] = [c for c in without["configurations"] if c["parameters"] != named(DEFAULT)]
    nothing["timing"], nothing["configurations"] = {}, []
    document = sweep(swept(known), without, nothing)
    assert qsa_table.untimed([document]) == ["r8 hot", "r12"]
    (choice,) = qsa_table.choose([document]).values()
    assert choice.points == 1


def test_sweeps_of_two_devices_or_of_something_else_are_refused() -> None:
    one = sweep(swept({DEFAULT: 10, SM_90: 9}))
    with pytest.raises(SystemExit, match="One table is of one device"):
        qsa_table.choose([one, {**one, "device": {"name": "another"}}])
    with pytest.raises(SystemExit, match="sweeps of qsa-attention"):
        qsa_table.choose([{**one, "schema": "profkit.layers/1"}])
