"""Fusions: what stands in the place of the launches that are gone (F2), and what moved out of the layers."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest
from bench import Bench, codes, names, outputs
from nsys_builder import Rows
from recording import Recording, step_recording

from profkit.comparison.model import Comparison, Gates
from profkit.reporters import diff, diff_document, diff_table, markdown

DIGESTS = {"seed": 0, "digests": {"outputs": outputs()}}
EIGHT = "arange search add clamp index eq ge or"


def step(layer: str, *, jitter_ns: float = 4, seed: int = 0, outside: str = "") -> Rows:
    """A step of 4 equal layers, replayed 12 times with jitter."""
    return step_recording([layer] * 4, replays=12, jitter_ns=jitter_ns, seed=seed, outside=outside).rows


def fusions(comparison: Comparison) -> list[tuple[list[str], str, str]]:
    """(removed names, absorbers, evidence) of each."""
    return [
        ([f.row.name for f in fusion.removed], " ".join(f.row.name for f in fusion.absorbers), fusion.evidence)
        for fusion in comparison.fusions
    ]


def sentences(comparison: Comparison) -> list[str]:
    """Each fusion, said."""
    table = diff_table.build(comparison)
    return list(diff.fusion_lines(comparison, table))


def test_three_launches_replaced_by_one_new_one(bench: Bench) -> None:
    comparison = bench.diff(step("a b c g"), step("f g", seed=1))
    assert fusions(comparison) == [(["a", "b", "c"], "f", "new")]
    assert names(comparison, "added") == ["f"]


def test_eight_launches_absorbed_by_the_one_behind_them_that_grew(bench: Bench) -> None:
    comparison = bench.diff(step(f"gemm:3000 {EIGHT} pack:1300"), step("gemm:3000 pack:1700", seed=1))
    assert fusions(comparison) == [(EIGHT.split(), "pack", "grew")]


def test_a_launch_became_nothing_that_runs_in_other_layers(bench: Bench) -> None:
    # GIVEN a layer that selects and four that mask, whose launches lie side by side in the table
    before = ["scores topk/sort topk/store", *["flags mask"] * 4]
    after = ["scores topk/select:1500", *["mask:1600"] * 4]
    comparison = bench.diff(*(step_recording(side, replays=12, jitter_ns=4).rows for side in (before, after)))
    assert fusions(comparison) == [(["sort", "store"], "select", "new"), (["flags"], "mask", "grew")]


@pytest.mark.parametrize("once", ["flags/flag", "flags/flag_once"])
def test_a_launch_that_another_layer_has_instead_became_part_of_nothing(bench: Bench, once: str) -> None:
    # GIVEN flags that each of four layers made, and now the layer in front of them makes once
    before = ["scores topk/sort topk/store", *["flags/flag mask"] * 4]
    after = [f"scores topk/select:1500 {once}", *["mask:1600"] * 4]
    sides = [step_recording(side, replays=12, jitter_ns=4).rows for side in (before, after)]
    comparison = bench.diff(*sides)
    assert fusions(comparison) == [(["sort", "store"], "select", "new")]
    assert "flag" in names(comparison, "removed")


def test_layers_that_are_not_selected_and_change_alike_hide_no_fusion(bench: Bench) -> None:
    before, after = step("gemm mask/a mask/b mask/c pack"), step("gemm mask/f pack", seed=1)
    comparison = bench.diff(before, after, layers=r"^layers\.0\.")
    assert fusions(comparison) == [(["a", "b", "c"], "f", "new")]


def test_launches_absorbed_by_the_one_before_them(bench: Bench) -> None:
    comparison = bench.diff(step("gemm:3000 bias relu pack"), step("gemm:3500 pack", seed=1))
    assert fusions(comparison) == [(["bias", "relu"], "gemm", "grew")]


def test_launches_absorbed_by_a_renamed_one(bench: Bench) -> None:
    comparison = bench.diff(step("gemm mask combine/pack"), step("gemm combine/pack_masked:1500", seed=1))
    assert fusions(comparison) == [(["mask"], "pack_masked", "renamed")]


def test_a_neighbour_that_did_not_grow_absorbs_only_where_outputs_prove_it(bench: Bench) -> None:
    before, after = step("gemm a b pack"), step("gemm pack", seed=1)
    assert fusions(bench.diff(before, after)) == []
    assert fusions(bench.diff(before, after, records=(DIGESTS, DIGESTS))) == [(["a", "b"], "pack", "adjacent")]


def test_a_neighbour_that_became_faster_absorbs_nothing(bench: Bench) -> None:
    comparison = bench.diff(step("gemm a b pack:2000"), step("gemm pack:1500", seed=1))
    assert names(comparison, "changed") == ["pack"]
    assert fusions(comparison) == []
    assert comparison.work == "unknown"


@pytest.mark.parametrize(
    ("pack_ns", "said"),
    [
        (1500, "behind them is pack, which got faster, not slower; −2.00 µs removed, −0.50 µs in that launch, net"),
        (
            2000,
            "behind them is pack, whose time changed by less than what counts; −2.00 µs removed, 0.00 µs in that",
        ),
        (2500, "pack, which grew beyond noise; −2.00 µs removed, +0.50 µs absorbed, net −1.50 µs a layer."),
    ],
)
def test_a_fusion_is_said_as_its_launch_changed(bench: Bench, pack_ns: int, said: str) -> None:
    before, after = step("gemm a b pack:2000", jitter_ns=0), step(f"gemm pack:{pack_ns}", jitter_ns=0)
    comparison = bench.diff(before, after, records=(DIGESTS, DIGESTS))
    (sentence,) = sentences(comparison)
    assert said in sentence


def test_a_neighbour_that_grew_much_but_within_noise_is_not_said_to_have_changed_little(bench: Bench) -> None:
    # GIVEN one pack of 48 longer by 40 µs: +0.83 µs on average, which would count, but in noise
    after = step_recording(["gemm pack:2000"] * 4, replays=12)
    slow = max(range(len(after.rows.kernels)), key=lambda i: after.rows.kernels[i].end)
    kernels = list(after.rows.kernels)
    kernels[slow] = dataclasses.replace(kernels[slow], end=kernels[slow].end + 40_000)
    rows = dataclasses.replace(after.rows, kernels=kernels)
    comparison = bench.diff(step("gemm a b pack:2000", jitter_ns=0), rows, records=(DIGESTS, DIGESTS))
    (sentence,) = sentences(comparison)
    assert "behind them is pack, whose time did not change beyond noise (95 % CI −1.00 to +2.67)" in sentence


#: Four launches of 900 ns each, between two that stay.
FOUR = "gemm:3000 a:900 b:900 c:900 d:900 pack:2000"


def test_several_launches_that_take_the_place_of_more_are_all_named_and_summed(bench: Bench) -> None:
    sides = step(FOUR, jitter_ns=0), step("gemm:3000 f1:1500 f2:1200 pack:2000", jitter_ns=0)
    comparison = bench.diff(*sides, records=(DIGESTS, DIGESTS))
    assert fusions(comparison) == [(["a", "b", "c", "d"], "f1 f2", "new")]
    (said,) = sentences(comparison)
    assert said == (
        "Fusion: 4 launches a layer (a, b, c, d) became f1 and f2, new launches at the same place; −3.60 µs removed, "
        "+2.70 µs absorbed, net −0.90 µs a layer."
    )
    # THEN its net is the layer's, nothing else moved, and every format agrees
    assert comparison.net is not None
    assert comparison.net.ns_per_layer == -900
    assert "nothing-else-moved" in codes(comparison)
    assert f"- {markdown.escape(said)}" in markdown.render(diff.report(comparison))
    (fusion,) = diff_document.report(comparison).fusions
    assert msgspec.to_builtins(fusion) == {
        "removed": ["a", "b", "c", "d"],
        "absorbed_by": "f1",
        "absorbers": ["f1", "f2"],
        "evidence": "new",
        "us_removed": 3.6,
        "us_absorbed": 2.7,
    }


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("b", "x y z", "1 launch a layer (b) by 3 new launches at the same place (x, y and z)"),
        ("b", "x", "1 launch a layer (b) by 1 new launch at the same place (x)"),
        ("a b", "v w x y z", "2 launches a layer (a, b) by 5 new launches at the same place (v, w, x and 2 more)"),
    ],
)
def test_as_many_or_more_new_launches_are_no_fusion(bench: Bench, before: str, after: str, said: str) -> None:
    comparison = bench.diff(step(f"gemm {before} pack"), step(f"gemm {after} pack", seed=1))
    (sentence,) = sentences(comparison)
    assert sentence.startswith(f"Replaced, not fused: {said};")
    fused = bench.diff(step(f"gemm {before} pack"), step(f"gemm {after} pack", seed=1), gates=Gates(expect_fused=True))
    assert "no-fusion" in codes(fused)


@pytest.mark.parametrize(
    ("after", "net"),
    [
        ("gemm:3000 f1:1500 f2:1200 pack:2000", 2),
        ("gemm:3000 f1 f2 f3 f4 pack:2000", 0),
        ("gemm:3000 f1 f2 f3 f4 f5 pack:2000", -1),
        ("gemm:3000 f1 pack:2000 x", 2),
        ("gemm:3000 pack:2000", 4),
    ],
)
@pytest.mark.parametrize("expected", [2, 4])
def test_the_gate_on_removed_launches_counts_what_is_gone_net(
    bench: Bench, after: str, net: int, expected: int
) -> None:
    comparison = bench.diff(step(FOUR), step(after, seed=1), gates=Gates(expect_removed=expected))
    assert {layer.removed for layer in comparison.layers} == {net}
    assert comparison.verdict == ("confirmed" if net == expected else "refuted")


def test_two_stretches_are_two_fusions(bench: Bench) -> None:
    comparison = bench.diff(step("a b gemm:3000 c d pack:2000"), step("gemm:3900 pack:2900", seed=1))
    assert fusions(comparison) == [(["a", "b"], "gemm", "grew"), (["c", "d"], "pack", "grew")]


def test_a_launch_that_absorbed_what_stood_on_both_sides_is_one_fusion(bench: Bench) -> None:
    comparison = bench.diff(step("gemm a b pack:2000 c tail"), step("gemm pack:2900 tail", seed=1))
    assert fusions(comparison) == [(["a", "b", "c"], "pack", "grew")]
    assert comparison.fusions[0].ns_absorbed == pytest.approx(900, abs=20)


def test_a_launch_that_grew_by_a_thousandth_of_what_is_gone_absorbed_nothing(bench: Bench) -> None:
    comparison = bench.diff(step("norm attention:80000 add:1500"), step("norm add:1650", seed=1))
    assert comparison.fusions == ()


def test_launches_of_another_stream_absorb_nothing(bench: Bench) -> None:
    # On the side stream two became one; experts, on the main one, only lasts longer.
    before = step("norm gate:900 silu:3000@8 mul:4000@8 experts:9000 sum:900")
    after = step("norm gate:900 silu_mul:2600@8 experts:9800 sum:900", seed=1)
    assert fusions(bench.diff(before, after)) == [(["silu", "mul"], "silu_mul", "new")]


def test_the_numbers_of_a_fusion_are_per_layer_per_step(bench: Bench) -> None:
    comparison = bench.diff(step("a:500 b:700 pack:1000", jitter_ns=0), step("pack:1300", jitter_ns=0))
    fusion = comparison.fusions[0]
    assert (fusion.ns_removed, fusion.ns_absorbed) == (1200, 300)


@pytest.mark.parametrize("ns", [1, 30])
def test_a_new_launch_that_takes_no_time_absorbs_nothing(bench: Bench, ns: int) -> None:
    comparison = bench.diff(step("gemm a b c pack"), step(f"gemm noop:{ns} pack", jitter_ns=0))
    assert comparison.work == "unknown"
    assert comparison.exit_code == 3


def hoisted(layer: str, once: str, seed: int = 1) -> Rows:
    """`once` runs in the graph before the layers."""
    return step(layer, seed=seed, outside=once)


def test_launches_hoisted_out_of_the_layers_are_moved(bench: Bench) -> None:
    sides = step("gemm arange ge fill pack"), hoisted("gemm fill pack", "arange ge")
    comparison = bench.diff(*sides, records=(DIGESTS, DIGESTS))
    assert names(comparison, "moved") == ["arange", "ge"]
    assert names(comparison, "unchanged") == ["gemm", "fill", "pack"]
    assert (comparison.verdict, comparison.moved) == ("confirmed", 0)


def test_a_removed_launch_that_already_ran_outside_the_layers_is_not_moved(bench: Bench) -> None:
    comparison = bench.diff(hoisted("gemm fill pack", "fill", seed=0), hoisted("gemm pack", "fill"))
    assert (names(comparison, "removed"), names(comparison, "moved")) == (["fill"], [])


def test_no_more_launches_move_than_appear_outside(bench: Bench) -> None:
    comparison = bench.diff(step("fill gemm fill pack"), hoisted("gemm pack", "fill"))
    assert sorted(f.status for f in comparison.findings if f.row.name == "fill") == ["moved", "removed"]


def test_a_move_is_said_with_its_numbers(bench: Bench) -> None:
    comparison = bench.diff(step("gemm a b c pack"), hoisted("gemm pack", "a b c"))
    reason = next(r.message for r in comparison.reasons if r.code == "launches-removed")
    assert reason == "3 launches a layer are gone from 4 layers (−9 a step)."
    assert diff.moved_line(comparison) == (
        "Moved: 3 launches of each layer (a, b, c) now run once a step, outside the layers, in capture."
    )
    assert comparison.net is not None
    assert (comparison.net.launches_per_layer, comparison.net.launches_per_step) == (-3, 3 - 12)


def test_fused_and_hoisted_neighbours_are_one_stretch(bench: Bench) -> None:
    # GIVEN a and c fused into pack, b between them hoisted
    comparison = bench.diff(step("gemm a b c pack:1000"), hoisted("gemm pack:1800", "b"))
    assert fusions(comparison) == [(["a", "c"], "pack", "grew")]


def test_a_launch_hoisted_into_eager_work_of_the_step_is_moved(bench: Bench) -> None:
    # GIVEN steps as ranges: fill runs eagerly before the replay, in no layer
    def steps(layer: str, eager: str) -> Rows:
        recording = Recording()
        with recording.range("capture"), recording.capture() as graph:
            for i in range(3):
                with recording.range(f"layers.{i}"):
                    recording.launch_all(layer)
        graph = recording.clone(graph)
        for number in range(6):
            with recording.range(f"step {number}"):
                recording.launch_all(f"prepare {eager}")
                recording.replay(graph, range_text=None)
        return recording.rows

    comparison = bench.diff(steps("gemm fill pack", ""), steps("gemm pack", "fill"))

    assert names(comparison, "moved") == ["fill"]
    assert "launches-removed" in codes(comparison)


def test_the_same_fusion_at_several_places_is_one_sentence(bench: Bench) -> None:
    before = step("norm/a norm/b gemm:3000 norm/a norm/b pack:2000")
    after = step("norm/ab:900 gemm:3000 norm/ab:900 pack:2000", seed=1)
    comparison = bench.diff(before, after)
    (sentence,) = sentences(comparison)
    assert sentence.startswith("Fusion: at 2 places of a layer 2 launches (norm) became part of ab, a new launch")
    assert sentence.endswith("−4.00 µs removed, +1.80 µs absorbed, net −2.20 µs a layer.")


def test_the_same_fusion_in_layers_that_hold_unlike_launches_is_one_sentence_of_the_step(bench: Bench) -> None:
    def model(norm: str, seed: int) -> Rows:
        layers = [f"{norm} gemm:3000", f"{norm} gemm:3000 experts:5000", f"{norm} gemm:3000 experts:5000"]
        return step_recording(layers, replays=6, jitter_ns=0, seed=seed).rows

    (sentence,) = sentences(bench.diff(model("a b", 0), model("ab:900", 1)))
    assert sentence.startswith("Fusion: in 3 layers 2 launches a layer (a, b) became part of ab")
    assert sentence.endswith("−6.00 µs removed, +2.70 µs absorbed, net −3.30 µs a step.")


def test_a_compilers_name_says_what_its_kernel_holds(bench: Bench) -> None:
    comparison = bench.diff(step("gemm silu mul pack"), step("gemm triton_poi_fused_mul_silu_3:1500 pack", seed=1))
    (sentence,) = sentences(comparison)
    assert "became part of triton_poi_fused_mul_silu (which its name says holds mul, silu), a new launch" in sentence
