"""Recordings of real programs (transformers, vLLM) with known layers, as ../shared/real/README.md tells them."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

import profkit

ARCHIVE = Path(__file__).parents[3] / "shared/real/recordings.tar.xz"

#: Launches of each layer in one replay, by the program's own structure.
EAGER, FUSED = [70] * 8, [43] * 8
CUSTOM, NATIVE, COMPILED = [20] * 2 + [28] * 6, [38] * 2 + [46] * 6, [21] * 2 + [28] * 6
BY_RANGE = {"hf_eager": EAGER, "hf_fused": FUSED, "vllm_mla_custom": CUSTOM, "vllm_mla_native": NATIVE}
BY_CUT = {
    "hf_late_eager": EAGER,
    "hf_late_eager.pt.trace.json.gz": EAGER,
    "hf_late_fused": FUSED,
    "vllm_mla_custom_late": CUSTOM,
    "vllm_mla_custom_late.pt.trace.json.gz": CUSTOM,
    "vllm_mla_native_late": NATIVE,
    "vllm_mla_compiled": COMPILED,
    "vllm_mla_compiled_late": COMPILED,
    "vllm_mla_compiled_late.pt.trace.json.gz": COMPILED,
}


#: What its ranges name of a compiled MoE layer.
SHARED = "mlp.experts._shared_experts/mlp.shared_experts"
PARTS = [*(f"{SHARED}/{part}" for part in ("act_fn", "down_proj", "gate_up_proj")), "mlp.gate"]


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not ARCHIVE.exists():
        pytest.skip("no recordings of real programs beside the repository")
    folder = tmp_path_factory.mktemp("real")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.mark.parametrize("name", BY_RANGE)
def test_each_layer_has_its_own_launches(recordings: Path, name: str) -> None:
    census = profkit.census(recordings / name)
    layers, steps = census.chosen.layers, census.chosen.kind.steps
    assert "cut" not in census.methods
    assert layers["number"].tolist() == list(range(8))
    assert (layers["launches"] / steps).tolist() == BY_RANGE[name]


@pytest.mark.parametrize(
    ("name", "lender"),
    [
        ("hf_late_eager", "hf_eager"),
        ("hf_late_eager.pt.trace.json.gz", "hf_eager"),
        ("hf_late_fused", "hf_fused"),
        ("vllm_mla_custom_late", "vllm_mla_custom"),
        # The same program in another process: its library chose other GEMMs.
        ("vllm_mla_custom_late.pt.trace.json.gz", "vllm_mla_custom"),
        ("vllm_mla_native_late", "vllm_mla_native"),
    ],
)
def test_a_late_window_borrows_exactly_the_layers_that_the_start_knows(
    recordings: Path, name: str, lender: str
) -> None:
    census = profkit.census(recordings / name, layers_from=str(recordings / lender))
    replayed = [kind for kind in census.kinds if kind.kind.steps > 1]
    assert len(replayed) == 2
    for kind in replayed:
        assert (kind.layers["launches"] / kind.kind.steps).tolist() == BY_RANGE[lender]
    assert {kind.kind.batch for kind in replayed} in ({"decode 8", "decode 4"}, {""})


@pytest.mark.parametrize("name", BY_CUT)
def test_each_layer_has_its_own_launches_by_cut_in_every_kind_of_step(recordings: Path, name: str) -> None:
    # A launch at the border of two layers may stand at the neighbour's.
    census = profkit.census(recordings / name)
    # Both batches; a prefill runs once, eagerly and with other kernels.
    replayed = [kind for kind in census.kinds if kind.kind.steps > 1]
    assert "cut" in census.methods
    assert not {"cut-does-not-fit", "cut-doubtful"} & {d.code for d in census.diagnostics}
    assert len(replayed) == 2
    for kind in replayed:
        launches = (kind.layers["launches"] / kind.kind.steps).tolist()
        assert kind.layers["number"].tolist() == list(range(8))
        assert launches == pytest.approx(BY_CUT[name], abs=2)
        assert sum(launches) == pytest.approx(sum(BY_CUT[name]), rel=0.02)


def test_ranges_around_parts_of_layers_name_the_parts_and_the_stack_of_what_is_cut(recordings: Path) -> None:
    census = profkit.census(recordings / "vllm_mla_compiled")
    assert census.chosen.layers["stack"].unique().tolist() == ["model.layers."]
    parts = census.chosen.slots.groupby("layer")["inside"].agg(lambda inside: sorted({part for part in inside if part}))
    assert parts.tolist()[:2] == [[], []]
    assert parts.tolist()[2:] == [PARTS] * 6
    said = [d.message for d in census.diagnostics if d.code == "layers-by-cut"]
    assert all("Ranges name layers for" in message and "ops only, parts of them" in message for message in said)


def test_a_norm_as_the_anchor_gives_no_layers_of_a_quarter_without_a_word(recordings: Path) -> None:
    census = profkit.census(recordings / "hf_late_fused", anchor="rmsnorm")
    assert census.chosen.selected_layers == 32
    assert "--anchor-every 4" in next(d.message for d in census.diagnostics if d.code == "cut-doubtful")
    counted = profkit.census(recordings / "hf_late_fused", anchor="rmsnorm", anchor_every=4)
    assert (counted.chosen.layers["launches"] / counted.chosen.kind.steps).tolist() == FUSED


def test_a_diff_repeats_the_doubts_and_is_cut_alike(recordings: Path) -> None:
    sides = (recordings / "hf_late_eager", recordings / "hf_late_fused")
    plain = profkit.diff(*sides)
    assert plain.net is not None
    assert plain.net.launches_per_layer == -27
    assert not {"cut-doubtful", "cut-differs"} & {reason.code for reason in plain.reasons}
    doubtful = profkit.diff(sides[1], sides[1], anchor="rmsnorm")
    assert "cut-doubtful" in {reason.code for reason in doubtful.reasons}


@pytest.mark.parametrize(
    ("before", "after", "net"),
    [
        ("vllm_mla_native", "vllm_mla_custom", 18),
        ("vllm_mla_native_late", "vllm_mla_custom_late", 18),
        ("hf_eager", "hf_fused", 27),
        ("hf_late_eager", "hf_late_fused", 27),
    ],
)
def test_a_real_pair_lost_what_its_programs_differ_by(recordings: Path, before: str, after: str, net: int) -> None:
    comparison = profkit.diff(recordings / before, recordings / after, expect_removed=net)
    assert {layer.removed for layer in comparison.layers} == {net}
    assert comparison.verdict == "confirmed"
