"""Fusions: what stands in the place of the launches that are gone (F2), and what moved out of the layers."""

from __future__ import annotations

import pytest
from bench import Bench, codes, names
from nsys_builder import Rows
from recording import Recording, step_recording

from profkit.comparison.model import Comparison
from profkit.reporters import diff_sentences as say
from profkit.reporters import diff_table

DIGESTS = {"seed": 0, "digests": {"outputs": {"layer 0": "aa"}}}
EIGHT = "arange search add clamp index eq ge or"


def step(layer: str, *, jitter_ns: float = 4, seed: int = 0, outside: str = "") -> Rows:
    """A step of 4 equal layers, replayed 12 times with jitter."""
    return step_recording([layer] * 4, replays=12, jitter_ns=jitter_ns, seed=seed, outside=outside).rows


def fusions(comparison: Comparison) -> list[tuple[list[str], str | None, str]]:
    """(removed names, absorber, evidence) of each."""
    return [
        ([f.row.name for f in fusion.removed], fusion.absorber.row.name if fusion.absorber else None, fusion.evidence)
        for fusion in comparison.fusions
    ]


def test_three_launches_replaced_by_one_new_one(bench: Bench) -> None:
    comparison = bench.diff(step("a b c g"), step("f g", seed=1))
    assert fusions(comparison) == [(["a", "b", "c"], "f", "new")]
    assert names(comparison, "added") == ["f"]


def test_eight_launches_absorbed_by_the_one_behind_them_that_grew(bench: Bench) -> None:
    comparison = bench.diff(step(f"gemm:3000 {EIGHT} pack:1300"), step("gemm:3000 pack:1700", seed=1))
    assert fusions(comparison) == [(EIGHT.split(), "pack", "grew")]


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
        (1500, "the launch behind them, which got faster, not slower; −2.00 µs removed, −0.50 µs in that launch, net"),
        (
            2000,
            "the launch behind them, whose time changed by less than what counts; −2.00 µs removed, 0.00 µs absorbed",
        ),
        (2500, "pack, which grew beyond noise; −2.00 µs removed, +0.50 µs absorbed, net −1.50 µs a layer."),
    ],
)
def test_a_fusion_is_said_as_its_launch_changed(bench: Bench, pack_ns: int, said: str) -> None:
    before, after = step("gemm a b pack:2000", jitter_ns=0), step(f"gemm pack:{pack_ns}", jitter_ns=0)
    comparison = bench.diff(before, after, records=(DIGESTS, DIGESTS))
    (fusion,) = comparison.fusions
    assert said in say.fusion_line(comparison, diff_table.build(comparison), fusion)


def test_two_stretches_are_two_fusions(bench: Bench) -> None:
    comparison = bench.diff(step("a b gemm:3000 c d pack:2000"), step("gemm:3900 pack:2900", seed=1))
    assert fusions(comparison) == [(["a", "b"], "gemm", "grew"), (["c", "d"], "pack", "grew")]


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
    comparison = bench.diff(step("gemm arange ge fill pack"), hoisted("gemm fill pack", "arange ge"))
    assert names(comparison, "moved") == ["arange", "ge"]
    assert names(comparison, "unchanged") == ["gemm", "fill", "pack"]
    assert (comparison.verdict, comparison.work) == ("confirmed", "consistent")


def test_a_removed_launch_that_already_ran_outside_the_layers_is_not_moved(bench: Bench) -> None:
    comparison = bench.diff(hoisted("gemm fill pack", "fill", seed=0), hoisted("gemm pack", "fill"))
    assert (names(comparison, "removed"), names(comparison, "moved")) == (["fill"], [])


def test_no_more_launches_move_than_appear_outside(bench: Bench) -> None:
    comparison = bench.diff(step("fill gemm fill pack"), hoisted("gemm pack", "fill"))
    assert sorted(f.status for f in comparison.findings if f.row.name == "fill") == ["moved", "removed"]


def test_a_move_is_said_with_its_numbers(bench: Bench) -> None:
    comparison = bench.diff(step("gemm a b c pack"), hoisted("gemm pack", "a b c"))
    reason = next(r.message for r in comparison.reasons if r.code == "launches-removed")
    assert reason == "3 launches per layer are gone from 4 layers; 3 of them now run outside the layers, once a step."
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
