"""Pairs that once were confirmed, or found alike, although launches or work were lost."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from bench import Bench, codes, names, outputs, run_record
from nsys_builder import Rows
from recording import Graph, Op, Recording, step_recording

from profkit.capture import outputs as recorded_outputs
from profkit.capture.outputs import Raw
from profkit.comparison.compare import compare
from profkit.comparison.model import Gates, Input
from profkit.counting.count import take_census
from profkit.model.outputs import OutputNumbers

FULL = "gemm:3000 combine/mask/a:900 combine/mask/b:900 combine/pack:1300"
DROPPED = "gemm:3000 combine/pack:1300"


def step(layer: str, *, layers: int = 4, seed: int = 0, **options: Any) -> Rows:
    """A step of equal layers, jittered."""
    return step_recording([layer] * layers, replays=12, seed=seed, jitter_ns=4, **options).rows


@pytest.mark.parametrize("after", ["gemm:3000 fused/pack:1300", "gemm:3000 combine/pack_v2:1300"])
def test_another_name_of_a_range_or_kernel_is_no_sign_of_work(bench: Bench, after: str) -> None:
    comparison = bench.diff(step(FULL), step(after, seed=1))
    assert (comparison.verdict, comparison.work) == ("inconclusive", "unknown")
    assert names(comparison, "removed") == ["a", "b"]


def test_ranges_that_share_no_name_do_not_tear_launches_apart(bench: Bench) -> None:
    comparison = bench.diff(step("x/gemm:3000 x/pack:1300"), step("y/gemm:3000 y/pack:1300", seed=1))
    assert comparison.verdict == "neutral"
    assert "scopes-ignored" in codes(comparison)


def test_launches_that_are_gone_elsewhere_are_never_nothing_else_moved(bench: Bench) -> None:
    comparison = bench.diff(step(FULL), step("combine/pack:1300", seed=1), scope="^combine", gates=Gates(2))
    assert "nothing-else-moved" not in codes(comparison)
    assert (comparison.verdict, codes(comparison)[0]) == ("inconclusive", "gone-unexplained")


def known(value: float, layers: int = 4) -> dict[str, OutputNumbers]:
    """Numbers of an output of each layer that holds nothing but `value`."""
    filled = np.full((8, 16), value, np.float32)
    raw = {f"layers.{i}/out": Raw("float32", filled.shape, filled.reshape(-1).view(np.uint8)) for i in range(layers)}
    return recorded_outputs.numbers(raw, lambda own: own)


@pytest.mark.parametrize(("value", "work"), [(1.0, "preserved"), (math.nan, "unknown"), (math.inf, "unknown")])
def test_outputs_that_are_not_finite_tell_nothing(bench: Bench, value: float, work: str) -> None:
    record = {"seed": 0, "digests": {"outputs": outputs(4)}}
    sides = [
        replace(bench.side(step(layer, seed=seed), label, record), numbers=known(value))
        for seed, (label, layer) in enumerate((("before", FULL), ("after", DROPPED)))
    ]
    comparison = compare(*sides)
    assert comparison.work == work
    assert comparison.verdict == ("confirmed" if work == "preserved" else "inconclusive")


def test_a_layer_whose_output_is_not_finite_is_not_checked_and_that_is_said(bench: Bench) -> None:
    record = {"seed": 0, "digests": {"outputs": outputs(4)}}
    numbers = {**known(1.0), "layers.2/out": known(math.nan)["layers.2/out"]}
    sides = [
        replace(bench.side(step(layer, seed=seed), label, record), numbers=numbers)
        for seed, (label, layer) in enumerate((("before", FULL), ("after", DROPPED)))
    ]
    comparison = compare(*sides)
    assert (comparison.verdict, comparison.work) == ("inconclusive", "partly")
    assert "outputs-not-finite" in codes(comparison)


@pytest.mark.parametrize(("before", "after", "work"), [(3, 4, "partly"), (4, 3, "lost")])
def test_a_layer_whose_output_one_side_alone_has_is_not_checked_or_lost(
    bench: Bench, before: int, after: int, work: str
) -> None:
    records = ({"seed": 0, "digests": {"outputs": outputs(n)}} for n in (before, after))
    comparison = bench.diff(step(FULL), step(DROPPED, seed=1), records=tuple(records))
    assert comparison.work == work
    assert comparison.verdict == ("refuted" if work == "lost" else "inconclusive")


@pytest.mark.parametrize("replays", [4, 40])
def test_a_recording_of_another_length_has_lost_and_moved_nothing(bench: Bench, replays: int) -> None:
    # The passes before the capture are as many in both, and so a larger share of few steps.
    before = step_recording([FULL] * 4, replays=12, warm_up=True, jitter_ns=4).rows
    after = step_recording([DROPPED] * 4, replays=replays, warm_up=True, jitter_ns=4, seed=1).rows
    more = step_recording(["gemm:3000 combine/pack:1300 copy:500"] * 4, replays=replays, warm_up=True, seed=2).rows
    assert bench.diff(before, after, gates=Gates(expect_removed=2)).verdict == "confirmed"
    assert bench.diff(before, more, gates=Gates(expect_removed=1)).verdict == "confirmed"


def serve(layer: str, between: str, *, seed: int = 0, inside: str = "") -> Rows:
    """Replays with eager launches behind each, as a server samples; the first is followed by other things too."""
    recording = step_recording([layer] * 3, outside=inside, replays=1, seed=seed, jitter_ns=4)
    (graph,) = {kernel.graph for kernel in recording.rows.kernels}
    nodes = [Op(k.name, k.end - k.start) for k in recording.rows.kernels]
    recording.launch_all("warm:500 warm:500")
    replayed = Graph(int(graph or 0), [(k.node or 0, op) for k, op in zip(recording.rows.kernels, nodes, strict=False)])
    for _ in range(12):
        recording.replay(replayed)
        recording.launch_all(between)
    return recording.rows


@pytest.mark.parametrize(
    ("layer", "between", "inside", "verdict", "said"),
    [
        (DROPPED, "head:5000 sample:800", "", "confirmed", "nothing-else-moved"),
        # The head is gone from every step, and no layer's output tells.
        (DROPPED, "sample:800", "", "inconclusive", "gone-unexplained"),
        (FULL, "sample:800", "", "inconclusive", "gone-unexplained"),
        # It runs in the graph now.
        (DROPPED, "sample:800", "head:5000", "confirmed", "between-steps-differ"),
        (FULL, "head:5000 sample:800 +DtoH:500", "", "changed", "between-steps-differ"),
    ],
)
def test_what_runs_eagerly_between_the_steps_is_not_lost_without_a_word(
    bench: Bench, layer: str, between: str, inside: str, verdict: str, said: str
) -> None:
    before, after = serve(FULL, "head:5000 sample:800"), serve(layer, between, seed=1, inside=inside)
    gates = Gates(expect_removed=2) if layer == DROPPED else Gates()
    comparison = bench.diff(before, after, gates=gates)
    assert (comparison.verdict, said in codes(comparison)) == (verdict, True), comparison.reasons


@pytest.mark.parametrize(
    ("other_after", "verdict"),
    [
        (DROPPED, "confirmed"),
        ("combine/pack:1300", "inconclusive"),
    ],
)
def test_what_the_graph_of_another_batch_lost_is_lost(bench: Bench, other_after: str, verdict: str) -> None:
    def both(first: str, second: str, seed: int) -> Rows:
        recording = Recording(jitter_ns=4, seed=seed)
        for layer, replays in ((first, 12), (f"{second} tail:400", 6)):
            with recording.capture() as graph:
                for number in range(3):
                    with recording.range(f"layers.{number}"):
                        recording.launch_all(layer)
            recording.replay(recording.clone(graph), replays)
        return recording.rows

    comparison = bench.diff(both(FULL, FULL, 0), both(DROPPED, other_after, 1), gates=Gates(expect_removed=2))
    assert comparison.verdict == verdict, comparison.reasons
    if verdict == "inconclusive":
        assert "gemm from the steps of graph" in comparison.reasons[0].message


def test_one_of_several_launches_of_a_name_outside_the_layers_that_has_another_grid_is_seen(bench: Bench) -> None:
    trace = bench.trace(step_recording(["gemm pack"] * 3, replays=4, outside="embed embed embed").rows)
    nodes = sorted(trace.ops["node"][trace.ops["name"] == "embed"].unique().tolist())

    def side(*grids: int) -> Input:
        of_node = dict(zip(nodes, grids, strict=True))
        grid = [of_node.get(node, 4) for node in trace.ops["node"].tolist()]
        return Input("side", take_census(replace(trace, ops=trace.ops.assign(grid_x=grid, grid_y=1, grid_z=1))))

    assert compare(side(8, 8, 16), side(8, 16, 8)).verdict == "neutral"
    comparison = compare(side(8, 8, 16), side(8, 17, 16))
    assert comparison.verdict == "changed"
    assert "grid 16x1x1 × 1, 8x1x1 × 2 → 16x1x1 × 1, 17x1x1 × 1, 8x1x1 × 1" in comparison.reasons[0].message


def test_no_step_is_faster_whose_work_runs_between_the_steps_now(bench: Bench) -> None:
    before, after = serve(FULL, "sample:800"), serve(DROPPED, "sample:800 " + "a:900 b:900 " * 3, seed=1)
    comparison = bench.diff(before, after, gates=Gates(expect_faster_percent=10))
    assert (comparison.verdict, codes(comparison)[0]) == ("inconclusive", "faster-unknown")
    assert comparison.net is not None
    assert comparison.net.launches_per_step == 0
    assert comparison.net.ns_per_step == pytest.approx(0, abs=50)


def test_new_launches_fail_the_gate_on_removed_ones(bench: Bench) -> None:
    after = step_recording([DROPPED] * 3 + [f"{DROPPED} more:700 more:700"], replays=12, seed=1, jitter_ns=4).rows
    comparison = bench.diff(step(FULL), after, gates=Gates(expect_removed=2))
    assert comparison.verdict == "refuted"
    assert "unexpected-removal" in codes(comparison)


def test_a_number_that_no_layer_can_have_names_none(bench: Bench) -> None:
    # THEN the layers are found by the pattern of their kernels instead, and numbered from 0
    census = bench.count(step("a b", layer_range="layers.9999999999999999999{i}.mla"))
    assert census.chosen.layers["number"].tolist() == [0, 1, 2, 3]


def test_every_run_of_a_side_must_have_digests_of_the_same_inputs(bench: Bench) -> None:
    record = run_record({"seed": 0, "digests": {"outputs": outputs()}})
    odd = run_record({"seed": 1, "digests": {"outputs": outputs(layers_0="XX")}})
    runs = [
        Input(str(i), bench.count(step(layer, seed=i)), r, str(i))
        for i, (layer, r) in enumerate([(FULL, record), (FULL, record), (DROPPED, record), (DROPPED, odd)])
    ]
    comparison = compare(replace(runs[0], more=(runs[1],)), replace(runs[2], more=(runs[3],)))
    assert (comparison.verdict, comparison.work) == ("inconclusive", "unknown")
    runs[3] = replace(runs[3], record=run_record({"seed": 0}))
    comparison = compare(replace(runs[0], more=(runs[1],)), replace(runs[2], more=(runs[3],)))
    assert comparison.work == "unknown"


def test_a_gate_sees_the_one_layer_that_became_slower(bench: Bench) -> None:
    before = step("gemm:3000 pack:1300")
    slow = step_recording(["gemm:2000 pack:1300"] * 3 + ["gemm:3000 pack:4300"], replays=12, seed=1, jitter_ns=4).rows
    comparison = bench.diff(before, slow, gates=Gates(max_regression_percent=5))
    assert (comparison.verdict, codes(comparison)[0]) == ("refuted", "regression")


def test_launches_that_only_left_their_ranges_are_not_gone_and_became_nothing(bench: Bench) -> None:
    # GIVEN as many launches outside the layers as there were inside
    after = step_recording([DROPPED] * 4, replays=12, seed=1, jitter_ns=4, outside=" ".join(["a:900 b:900"] * 4)).rows
    comparison = bench.diff(step(FULL), after)
    assert comparison.verdict == "changed"
    assert names(comparison, "moved") == ["a", "b"]
    assert comparison.fusions == ()


def test_a_whole_that_is_slower_is_not_neutral_because_no_part_shows_it(bench: Bench) -> None:
    many = " ".join(f"k{i}:2000" for i in range(20))
    slower = many.replace("2000", "2095")
    comparison = bench.diff(step(many), step(slower, seed=1))
    assert (comparison.verdict, codes(comparison)[0]) == ("changed", "layer-time-changed")


def test_times_of_one_step_are_not_called_alike(bench: Bench) -> None:
    before = step_recording([FULL] * 4, replays=1).rows
    after = step_recording([FULL.replace("1300", "99000")] * 4, replays=1).rows
    comparison = bench.diff(before, after)
    assert "beyond noise" not in comparison.reasons[0].message


def test_a_slower_untraced_step_is_not_neutral(bench: Bench) -> None:
    def record(median: float) -> dict[str, Any]:
        return {"untraced": {"median": median, "p25": median - 1, "p75": median + 1}}

    comparison = bench.diff(step(FULL), step(FULL, seed=1), records=(record(700), record(1400)))
    assert (comparison.verdict, codes(comparison)[0]) == ("changed", "step-time-changed")
