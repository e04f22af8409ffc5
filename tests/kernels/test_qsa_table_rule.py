"""When a sweep gives a new launch table: entries that win beyond noise and are slower nowhere, on inline sweeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from qsa_sweeps import DEFAULT, NEW, OTHER, SM_90, qsa_table, run, sweep, swept, whole

from profkit.kernels.qsa.tables import Entry, Table, _entries, entry
from profkit.sweep.records import Region


def only(*regions: Region) -> Any:
    (choice,) = qsa_table.choose([sweep(*regions)]).values()
    return choice


def test_an_entry_that_wins_everywhere_is_taken() -> None:
    choices = qsa_table.choose(
        [
            sweep(
                swept({DEFAULT: 10, SM_90: 9, NEW: 8, OTHER: 8.5}),
                swept({DEFAULT: 20, SM_90: 21, NEW: 18, OTHER: 19}, rows=16),
            )
        ]
    )
    ((cell, choice),) = choices.items()
    assert cell == ("1-24", "bits_16")
    assert (choice.numbers, choice.source, choice.points, choice.better) == (NEW, "measured", 2, 2)
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
    noisy = swept({DEFAULT: 20, SM_90: 21, NEW: us}, rows=16, verdict=verdict)
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
    assert only(swept({DEFAULT: 10, SM_90: 10})).source == "sm_90"


def test_states_groups_and_head_counts_count_as_points_and_caches_are_apart() -> None:
    fp8 = entry("sm_90", 28, 1, prefill=False, fp8=True)
    default = entry("default", 28, 1, prefill=False, fp8=True)
    assert fp8 == default == Entry(32, 16, 1)
    choices = qsa_table.choose(
        [
            sweep(swept({DEFAULT: 10, SM_90: 9, NEW: 8}, states=("hot", "evicted"))),
            sweep(
                swept({DEFAULT: 10, SM_90: 9, NEW: 8}, rows=2, kv_heads=2),
                swept({(32, 16, 1): 9, NEW: 8}, rows=28, dtype="fp8"),
            ),
        ]
    )
    assert {key: choice.points for key, choice in choices.items()} == {("1-24", "bits_16"): 3, ("25-32", "fp8"): 1}


@pytest.mark.parametrize("win", [True, False])
def test_the_script_says_whether_a_table_ships_and_prints_it(win: bool, tmp_path: Path) -> None:
    done = run(tmp_path, "--name", "mine", sweep=whole(win))
    assert done.returncode == 0, done.stderr
    nine = [(128, 2, 8)] * 9
    verdict = "18 of 18 entries win beyond noise: a table." if win else "0 of 18 entries win beyond noise: no table."
    assert verdict in done.stdout
    assert ("For TABLES in" in done.stdout) is win
    if win:
        source = done.stdout[done.stdout.index('    "mine": Table(') :]
        names = {"Table": Table, "_entries": _entries}
        (pasted,) = eval("{" + source + "}", names).values()
        assert pasted == Table("tuned on a GPU, 2026-01-02", _entries(*nine), _entries(*nine))


def test_regions_that_were_not_measured_leave_no_table(tmp_path: Path) -> None:
    done = run(tmp_path, sweep=sweep(swept({DEFAULT: 10, SM_90: 9, NEW: 8})))
    assert "1 of 1 entries win beyond noise: no table." in done.stdout
    assert "Not measured, so no table: 1-24 fp8, 25-32 bits_16" in done.stdout


def test_a_region_without_the_known_entries_is_left_out_and_named(tmp_path: Path) -> None:
    known = {DEFAULT: 10, SM_90: 9, NEW: 8}
    nothing = swept(known, rows=12)
    untimed = [replace(one, times={}, status="failed") for one in nothing.configurations]
    document = sweep(
        swept(known), swept({SM_90: 9, NEW: 8}, rows=8), replace(nothing, timing={}, configurations=untimed)
    )
    (choice,) = qsa_table.choose([document]).values()
    assert choice.points == 1
    assert "a known entry was not timed: r8 hot, r12 hot." in run(tmp_path, sweep=document).stdout


def test_sweeps_of_two_devices_or_of_something_else_are_refused() -> None:
    one = sweep(swept({DEFAULT: 10, SM_90: 9}))
    with pytest.raises(SystemExit, match="One table is of one device"):
        qsa_table.choose([one, sweep(swept({DEFAULT: 10, SM_90: 9}), device="another")])
    with pytest.raises(SystemExit, match="sweeps of qsa-attention"):
        qsa_table.choose([replace(one, workload=replace(one.workload, name="dsa-candidates"))])
