"""Several runs of one side: ranks of a job, or repeated captures of one arm."""

from __future__ import annotations

import json
from dataclasses import replace

from bench import Bench, codes, profkit
from nsys_builder import Rows
from recording import step_recording

from profkit.comparison.compare import compare
from profkit.comparison.model import Comparison, Gates, Input
from profkit.errors import ProfkitError
from profkit.model.census import KindCensus

BEFORE, FUSED = "gemm:3000 fill:900 mask:900 pack:1300", "gemm:3000 pack:1800"


def run(layer: str, seed: int, *, replays: int = 6, outside: str = "") -> Rows:
    """One run of 3 layers."""
    return step_recording([layer] * 3, replays=replays, jitter_ns=6, seed=seed, outside=outside).rows


def side(bench: Bench, label: str, *rows: Rows) -> Input:
    """Several recordings as one side."""
    first, *more = [bench.side(r, f"{label}/{i}") for i, r in enumerate(rows)]
    return replace(first, label=label, more=tuple(more))


def repeated(bench: Bench, *, replays: tuple[int, int, int] = (6, 6, 6)) -> Comparison:
    """Three captures a side."""
    before = side(bench, "before", *(run(BEFORE, i, replays=n) for i, n in enumerate(replays)))
    after = side(bench, "after", *(run(FUSED, 10 + i, replays=n) for i, n in enumerate(replays)))
    return compare(before, after, Gates(expect_removed=2))


def test_repeated_runs_are_judged_as_independent_runs(bench: Bench) -> None:
    comparison = repeated(bench)
    assert (comparison.verdict, comparison.samples) == ("confirmed", "runs")
    assert "replays-not-runs" not in codes(comparison)


def test_launches_stay_per_layer_per_step(bench: Bench) -> None:
    net = repeated(bench, replays=(2, 5, 9)).net
    assert net is not None
    assert (net.launches_per_layer, net.launches_per_step) == (-2, -6)


def test_merged_runs_count_once_each_whatever_their_number_of_steps(bench: Bench) -> None:
    rows = [run(BEFORE, i, replays=n, outside="embed:70") for i, n in enumerate((2, 5))]
    parts = [bench.count(r).chosen for r in rows]
    merged = side(bench, "a", *rows).chosen
    assert merged.kind.steps == 7

    def per_step(kind: KindCensus) -> float:
        return float(kind.slots["ns"].sum()) / kind.kind.steps

    mean = sum(map(per_step, parts)) / 2
    # THEN each by-step time is rounded to a nanosecond, and rows are the sums of what their steps show
    assert abs(per_step(merged) - mean) <= 0.5 * len(merged.slots)
    assert merged.slots["ns"].tolist() == merged.slot_ns.sum(axis=1).tolist()
    assert (merged.slots["launches"] == 7).all()


def test_the_table_of_unequal_runs_agrees_with_its_intervals(bench: Bench) -> None:
    # GIVEN a slow and a fast rank on both sides, the slow one with few steps before and many after
    slow, fast = BEFORE.replace("3000", "9000"), BEFORE
    before = side(bench, "before", run(fast, 1, replays=9), run(slow, 2, replays=2))
    after = side(bench, "after", run(fast, 3, replays=2), run(slow, 4, replays=9))
    comparison = compare(before, after)
    assert comparison.verdict == "neutral"
    net = comparison.net
    assert net is not None
    assert abs(net.ns_per_layer) < 20
    for finding in comparison.findings:
        per = comparison.selected_layers[0] * comparison.steps[0]
        assert abs((finding.row.ns_after - finding.row.ns_before) / per - finding.delta) < 2


def test_outside_rows_of_one_canonical_name_keep_all_their_time(bench: Bench) -> None:
    outside = "triton_poi_fused_add_1:500 triton_poi_fused_add_2:700"
    merged = side(bench, "a", *(run(BEFORE, i, outside=outside) for i in range(2))).chosen
    assert int(merged.outside_ns.sum()) == int(merged.outside["ns"].sum())


def test_a_run_unlike_the_others_is_named(bench: Bench) -> None:
    before = side(bench, "before", run(BEFORE, 1), run(BEFORE, 2), run(BEFORE + " extra", 3))
    after = side(bench, "after", run(FUSED, 4), run(FUSED, 5), run(FUSED, 6))
    said = [r.message for r in compare(before, after).reasons if r.code == "unlike-run"]
    assert said
    assert all(text.startswith("before/2 ") for text in said)
    assert "5 launches a layer where the others have 4" in said[0]


def test_runs_with_other_layers_are_refused_or_inconclusive(bench: Bench) -> None:
    other = step_recording([BEFORE] * 2, replays=6).rows
    sides = side(bench, "before", run(BEFORE, 1), other), side(bench, "after", run(FUSED, 2), run(FUSED, 3))
    try:
        comparison = compare(*sides)
    except ProfkitError:
        return
    assert comparison.verdict == "inconclusive"


def test_a_repetition_that_was_set_aside_is_in_no_average(bench: Bench) -> None:
    stalled = {"code": "compiled-inside-window", "message": "1 compilation ran inside the recorded window."}
    for number in range(3):
        bench.run_directory(run(BEFORE, number), str(number), set_aside=stalled if number == 1 else None)
    bench.run_directory(run(BEFORE.replace("900", "9000"), 9), "slow", set_aside=stalled)
    specs = [bench.directory / name for name in ("0", "1", "2", "slow")]
    data = json.loads(profkit("layers", *specs, "--format", "json").stdout)
    assert (data["average"]["runs"], data["average"]["unlike"]) == (2, [])
    assert round(data["average"]["kernel_us"], 1) == 6.1
    for output_format in ("text", "md"):
        said = profkit("layers", *specs, "--format", output_format).stdout.replace("\\", "")
        assert said.count("Set aside, and in no average: compiled-inside-window") == 2
