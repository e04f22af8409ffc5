"""Slot by slot: one launch more, fewer, elsewhere or renamed does not shift the rest (F2, F18)."""

from __future__ import annotations

import pytest
from bench import Bench, names, statuses
from nsys_builder import Rows
from recording import Recording, step_recording

from profkit.comparison.model import Gates

LAYERS = 4


def step(layer: str, **options: int) -> Rows:
    """A step of equal layers."""
    return step_recording([layer] * LAYERS, replays=8, **options).rows  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("before", "after", "removed", "added", "changed"),
    [
        pytest.param("a b c d", "a b c d", "", "", "", id="same"),
        pytest.param("a b c d", "a b d", "c", "", "", id="removed"),
        pytest.param("a b d", "a b c d", "", "c", "", id="inserted"),
        pytest.param("a b", "x a b", "", "x", "", id="inserted first"),
        pytest.param("a b", "a b x", "", "x", "", id="inserted last"),
        pytest.param("a b c d", "a c b d", "", "", "", id="reordered"),
        pytest.param("a b", "x y", "a b", "x y", "", id="nothing in common"),
        pytest.param("a b:2000 c", "a b:4000 c", "", "", "b", id="slower"),
    ],
)
def test_one_difference_does_not_shift_the_rest(
    bench: Bench, before: str, after: str, removed: str, added: str, changed: str
) -> None:
    comparison = bench.diff(step(before), step(after))
    assert names(comparison, "removed") == removed.split()
    assert names(comparison, "added") == added.split()
    assert names(comparison, "changed") == changed.split()


def test_rows_stand_in_the_order_of_either_side(bench: Bench) -> None:
    comparison = bench.diff(step("a b c d"), step("a x c y d"))
    assert [f.row.name for f in comparison.findings if f.status != "added"] == ["a", "b", "c", "d"]
    assert [f.row.name for f in comparison.findings if f.status != "removed"] == ["a", "x", "c", "y", "d"]


def test_a_launch_alone_in_its_scope_under_a_new_name_is_the_same_launch(bench: Bench) -> None:
    comparison = bench.diff(step("gemm combine/pack_v1"), step("gemm combine/pack_v2"))
    row = comparison.findings[1].row
    assert (row.name_before, row.name, comparison.findings[1].status) == ("pack_v1", "pack_v2", "changed")
    assert (row.recorded_before, row.recorded) == ("pack_v1", "pack_v2")


def test_a_copy_never_pairs_with_a_kernel(bench: Bench) -> None:
    comparison = bench.diff(step("gemm combine/+DtoD"), step("gemm combine/copy_kernel"))
    assert (names(comparison, "removed"), names(comparison, "added")) == (["memcpy DtoD"], ["copy_kernel"])


def test_one_name_twice_in_a_layer_is_two_slots(bench: Bench) -> None:
    comparison = bench.diff(step("fill gemm fill pack"), step("fill gemm pack"))
    assert [(f.row.name, f.status) for f in comparison.findings] == [
        ("fill", "unchanged"),
        ("gemm", "unchanged"),
        ("fill", "removed"),
        ("pack", "unchanged"),
    ]


def test_equal_names_in_different_scopes_do_not_pair_first(bench: Bench) -> None:
    comparison = bench.diff(step("attn/fill gemm combine/fill"), step("attn/fill gemm"))
    assert [(f.row.where, f.status) for f in comparison.findings if f.row.name == "fill"] == [
        ("attn", "unchanged"),
        ("combine", "removed"),
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("triton_poi_fused_add_16", "triton_poi_fused_add_22"),
        ("cutlass_gemm_0x7f3a10", "cutlass_gemm_0x7f9b20"),
    ],
)
def test_names_that_differ_by_a_counter_are_one_kernel(bench: Bench, before: str, after: str) -> None:
    comparison = bench.diff(step(f"gemm {before} pack"), step(f"gemm {after} pack"))
    assert comparison.verdict == "neutral"
    assert (comparison.findings[1].row.recorded, comparison.findings[1].row.recorded_before) == (before, None)


def test_a_launch_gone_from_some_layers_only_is_told_of_these_layers(bench: Bench) -> None:
    # GIVEN fill in 4 layers before, in 2 after
    after = step_recording(["gemm fill pack"] * 2 + ["gemm pack"] * 2, replays=8).rows
    comparison = bench.diff(step("gemm fill pack"), after)
    assert [f.status for f in comparison.findings if f.row.name == "fill"] == ["unchanged", "removed"]
    assert [list(group.names) for group in comparison.groups] == [["0", "1"], ["2", "3"]]
    assert comparison.verdict == "inconclusive"


def test_a_kernel_that_only_some_layers_had_is_removed_when_gone_from_all(bench: Bench) -> None:
    before = step_recording(["gemm dense pack", "gemm pack", "gemm pack"], replays=8).rows
    comparison = bench.diff(before, step_recording(["gemm pack"] * 3, replays=8).rows)
    assert names(comparison, "removed") == ["dense"]


def hybrid(mla: str, swa: str, pattern: str = "mss" * 3) -> Rows:
    """Layers of two kinds."""
    recording = Recording()
    with recording.capture() as graph:
        for i, kind in enumerate(pattern):
            with recording.range(f"layers.{i}.{'mla' if kind == 'm' else 'swa'}"):
                recording.launch_all(mla if kind == "m" else swa)
    recording.replay(recording.clone(graph), 8)
    return recording.rows


def test_a_launch_removed_from_the_selected_layers_is_removed_though_others_keep_it(bench: Bench) -> None:
    # GIVEN fill in all layers before; after, still in the 6 swa layers and in none of the 3 mla layers
    comparison = bench.diff(
        hybrid("gemm fill pack", "gemm fill pack"), hybrid("gemm pack", "gemm fill pack"), layers="mla"
    )
    assert names(comparison, "removed") == ["fill"]
    assert statuses(comparison.elsewhere) == {"gemm": "unchanged", "fill": "unchanged", "pack": "unchanged"}


def test_a_scope_selects_rows_and_the_rest_is_elsewhere(bench: Bench) -> None:
    comparison = bench.diff(step("gemm combine/fill combine/pack"), step("gemm combine/pack"), scope="^combine")
    assert statuses(comparison.findings) == {"fill": "removed", "pack": "unchanged"}
    assert statuses(comparison.elsewhere) == {"gemm": "unchanged"}


def test_unselected_layers_that_went_missing_are_never_nothing_else_moved(bench: Bench) -> None:
    # GIVEN the fusion in the mla layers, and 3 of the 6 swa layers lost
    sides = hybrid("gemm fill pack", "gemm pack"), hybrid("gemm pack:1900", "gemm pack", "ms" * 3)
    # THEN the layers' numbers differ, which forbids the comparison
    assert [r.code for r in bench.diff(*sides, layers="mla").reasons] == ["other-layers"]
    # AND by force it is made, and says what it could not pair
    codes = [r.code for r in bench.diff(*sides, layers="mla", gates=Gates(force=True)).reasons]
    assert "nothing-else-moved" not in codes
    assert {"forced", "other-layers-unpaired"} <= set(codes)


def test_the_net_effect_holds_everything_in_the_step(bench: Bench) -> None:
    before, after = hybrid("gemm fill pack", "gemm pack"), hybrid("gemm pack:1900", "gemm pack", "ms" * 3)
    net = bench.diff(before, after, layers="mla", gates=Gates(force=True)).net
    assert net is not None
    assert net.launches_per_step == -3 - 3 * 2
    assert net.ns_per_step == -(3 * 100 + 3 * 2000)


def test_layers_of_other_numbers_pair_by_order_only_when_forced(bench: Bench) -> None:
    after = step_recording(["gemm pack"] * LAYERS, replays=8, layer_range="layers.1{i}.mla").rows
    assert bench.diff(step("gemm pack"), after).verdict == "inconclusive"
    assert bench.diff(step("gemm pack"), after, gates=Gates(force=True)).verdict == "neutral"


def test_no_value_of_a_removed_or_added_row_is_nan(bench: Bench) -> None:
    comparison = bench.diff(step("a b c g"), step("f g"))
    table = comparison.to_pandas()
    assert table["status"].tolist().count("removed") == 3
    assert not table.isna().any().any()
