"""Ranks of which one lacks something: digests, its peer, or ops."""

from __future__ import annotations

import json
from typing import Any

import pytest
from bench import Bench, codes, profkit
from recording import step_recording
from test_ranks import AFTER, BEFORE, digests, record, rows, side, with_silent_nodes

from profkit.comparison.compare import compare
from profkit.comparison.model import Comparison, Input

LACKS: dict[str, dict[str, Any]] = {"no digests": {}, "another seed": {**digests(out="y"), "seed": 1}}


def compared(bench: Bench, rank_0_after: str, rank_1_after: dict[str, Any]) -> Comparison:
    """Two ranks a side, whose outputs before are x and y."""

    def ranks(label: str, layer: str, first: str, second: dict[str, Any]) -> Input:
        told = [record(0, label, **{"seed": 0, **digests(out=first)}), record(1, label, **{"seed": 0, **second})]
        return side(bench, label, *((rows(layer, rank), told[rank]) for rank in range(2)))

    return compare(ranks("before", BEFORE, "x", digests(out="y")), ranks("after", AFTER, rank_0_after, rank_1_after))


@pytest.mark.parametrize("lack", LACKS)
def test_a_rank_that_differs_confirms_nothing_whatever_another_lacks(bench: Bench, lack: str) -> None:
    comparison = compared(bench, "X", LACKS[lack])
    assert (comparison.verdict, comparison.work) == ("inconclusive", "unknown")


@pytest.mark.parametrize(
    ("lack", "code"), [("no digests", "digests-missing"), ("another seed", "digests-of-other-inputs")]
)
def test_equal_outputs_of_one_rank_do_not_vouch_for_another(bench: Bench, lack: str, code: str) -> None:
    comparison = compared(bench, "x", LACKS[lack])
    assert comparison.work != "preserved"
    (said,) = [r.message for r in comparison.reasons if r.code == code]
    assert "Rank 1 of " in said


def test_outputs_of_one_rank_do_not_name_the_layers_of_another(bench: Bench) -> None:
    # GIVEN a second rank whose outputs name its first layer alone
    told = [digests(out="x"), {"digests": {"outputs": {"layers.0/out": "y"}, "notes": {}}}]
    sides = [
        side(bench, label, *((rows(layer, rank), record(rank, label, seed=0, **told[rank])) for rank in range(2)))
        for label, layer in (("before", BEFORE), ("after", AFTER))
    ]
    comparison = compare(*sides)
    assert (comparison.verdict, comparison.work) == ("inconclusive", "partly")


def test_one_rank_alone_has_no_skew_and_is_no_average(bench: Bench) -> None:
    for arm, layer in (("eager", BEFORE), ("fused", AFTER)):
        bench.run_directory(step_recording([layer] * 3, replays=4).rows, arm, **record(0, arm))
    told = json.loads(profkit("layers", bench.directory / "eager", "--format", "json").stdout)
    assert set(told["jobs"][0]["skew"].values()) == {None}
    printed = profkit("diff", bench.directory / "eager", bench.directory / "fused").stdout
    assert "Skew between" not in printed
    assert "averaged over its ranks" not in printed
    assert "one rank of a job a side" in " ".join(printed.split())


def test_the_tables_of_several_jobs_are_told_apart(bench: Bench) -> None:
    for arm in ("eager", "fused"):
        (bench.directory / arm).mkdir()
        for rank in range(2):
            bench.run_directory(step_recording([AFTER] * 2).rows, f"{arm}/{rank}", **record(rank, arm))
    printed = profkit("layers", bench.directory).stdout
    assert [f"2 ranks of one job ({arm})" in printed for arm in ("eager", "fused")] == [True, True]


def silent_side(bench: Bench, label: str, layer: str, *silent: int, name: str = "w") -> Input:
    told = [record(rank, label) for rank in range(len(silent))]
    for own in told:
        own["workload"]["name"] = name
    return side(bench, label, *((with_silent_nodes(layer, silent=n), own) for n, own in zip(silent, told, strict=True)))


def test_the_recording_whose_silent_nodes_are_unlike_the_others_is_named_alone(bench: Bench) -> None:
    comparison = compare(silent_side(bench, "before", BEFORE, 2, 2), silent_side(bench, "after", AFTER, 2, 3))
    (said,) = [r.message for r in comparison.reasons if r.code == "nodes-without-ops"]
    assert said.startswith("9 graph nodes in layers of after/1 never ran an op; 3 of 4 runs here have 6")


def test_other_workloads_are_blamed_before_their_silent_nodes(bench: Bench) -> None:
    before = silent_side(bench, "before", BEFORE, 2, 2)
    assert codes(compare(before, silent_side(bench, "after", AFTER, 3, 3, name="v"))) == ["other-workload"]
    unsteady = codes(compare(before, silent_side(bench, "after", AFTER, 3, 4, name="v")))
    assert unsteady[0] == "other-workload"
    assert "nodes-without-ops" in unsteady
