"""The workload `mla-step`: whole steps against double precision, and the variants against each other."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext

import pytest

torch = pytest.importorskip("torch", reason="the kernels need torch")
pytest.importorskip("triton", reason="the kernels need triton")

from mla_cases import WORKLOAD, context  # noqa: E402
from step_runs import opened_ranges, replays, run, same  # noqa: E402

from profkit.errors import ProfkitError  # noqa: E402
from profkit.kernels.mla_step.inputs import draw_inputs  # noqa: E402
from profkit.kernels.mla_step.norm import rms_norm  # noqa: E402
from profkit.kernels.mla_step.reference import reference_step  # noqa: E402
from profkit.kernels.mla_step.sizes import Sizes  # noqa: E402
from profkit.kernels.mla_step.step import build_step, repeat_heads  # noqa: E402
from profkit.model.workload import BuildContext, InputSet, ShapeValue  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:(divide by zero|invalid value):RuntimeWarning")

#: Of outputs of order 1 after two layers in fp16 and eight in bf16, against double precision.
TOLERANCE = {"fp16": 5e-3, "bf16": 4e-2}

#: Real widths, few rows and layers: what a GPU checks beside its own double precision.
REAL: dict[str, ShapeValue] = {
    **{"rows": 16, "requests": 14, "heads": 96, "ranks": 8, "layers": 2, "hidden": 7168, "context": 8192},
    **{"q_lora": 1536, "kv_lora": 512, "qk_nope": 128, "qk_rope": 64, "v_head": 128, "dtype": "bf16"},
}


def other_ranks_heads(source: torch.Tensor, target: torch.Tensor) -> None:
    """An all-gather in which every rank has heads of its own."""
    for rank in range(len(target)):
        target[rank] = source.roll(rank, -1) * (1 - 0.25 * rank / len(target))


def check_against_reference(built: BuildContext, inputs: InputSet, tolerance: float) -> None:
    step = build_step(built, all_gather=other_ranks_heads)
    step.refresh(inputs)
    step.run(lambda name: nullcontext())
    compare_with_reference(built, inputs, step.outputs(), tolerance)


def compare_with_reference(
    built: BuildContext, inputs: InputSet, outputs: Mapping[str, torch.Tensor], tolerance: float
) -> None:
    sizes = Sizes.of(built)
    drawn = draw_inputs(built, sizes)
    combined, hidden = reference_step(drawn, sizes, drawn.batches[inputs], other_ranks_heads)
    for number, expected in enumerate(combined):
        actual = outputs[f"layers.{number}.mla/combined"].double()
        torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)
    actual = outputs[f"layers.{sizes.layers - 1}.mla/hidden"].double()
    torch.testing.assert_close(actual, hidden, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("inputs", ["timing", "digest"])
@pytest.mark.parametrize(("variant", "tokens"), [("eager", 16), ("fused", 400)])
def test_a_step_agrees_with_double_precision(variant: str, tokens: int, inputs: InputSet, device: str) -> None:
    """With attention in one split and in several."""
    built = context(variant, device, rows=7, requests=6, context=tokens)
    assert (build_step(built).notes["attention_splits"] > 1) == (tokens == 400)
    check_against_reference(built, inputs, TOLERANCE["fp16"])


def test_all_variants_agree_except_the_one_without_a_mask(device: str) -> None:
    results = {variant: run(WORKLOAD.build(context(variant, device))) for variant in WORKLOAD.variants}
    for variant in set(WORKLOAD.variants) - {"dropped"}:
        assert same(results["eager"], results[variant])
    for name, expected in results["eager"].items():
        assert not torch.equal(expected, results["dropped"][name]), f"a dropped mask must show in {name}"


def test_a_dropped_mask_shows_in_rows_of_empty_shards_too(device: str) -> None:
    """Their payload is finite and their LSE plausible: no NaN gives them away, as it does padding rows."""
    shapes: dict[str, ShapeValue] = {"rows": 8, "requests": 8}
    outputs = []
    for variant in ("fused", "dropped"):
        step = WORKLOAD.build(context(variant, device, **shapes))
        run(step, "digest")
        outputs.append(step.outputs()["layers.0.mla/combined"].float().cpu())
    assert torch.isfinite(outputs[1]).all()
    empty = (outputs[0] == 0).flatten(1).all(dim=1)
    assert 0.3 < empty.float().mean() < 0.7
    assert (outputs[1][empty] != 0).flatten(1).any(dim=1).all()
    assert torch.equal(outputs[0][~empty], outputs[1][~empty])


def test_outputs_name_every_layer_and_the_layers_differ(device: str) -> None:
    results = run(WORKLOAD.build(context("eager", device)))
    assert set(results) == {"layers.0.mla/combined", "layers.1.mla/combined", "layers.1.mla/hidden"}
    assert not torch.equal(results["layers.0.mla/combined"], results["layers.1.mla/combined"])


@pytest.mark.parametrize("variant", ["eager", "dropped"])
def test_refresh_restores_all_that_a_step_overwrites(variant: str, device: str) -> None:
    """Also what the other input set left behind in the rows that one of them masks."""
    step = WORKLOAD.build(context(variant, device))
    addresses = {name: tensor.data_ptr() for name, tensor in step.outputs().items()}
    digest = run(step, "digest")
    timing = run(step, "timing")
    assert not same(timing, digest)
    assert same(run(step, "digest"), digest)
    assert same(run(step, "timing"), timing)
    assert {name: tensor.data_ptr() for name, tensor in step.outputs().items()} == addresses


def test_the_seed_decides_the_inputs(device: str) -> None:
    assert same(run(WORKLOAD.build(context("fused", device, 3))), run(WORKLOAD.build(context("fused", device, 3))))
    assert not same(run(WORKLOAD.build(context("fused", device, 3))), run(WORKLOAD.build(context("fused", device, 4))))


@pytest.mark.parametrize(
    ("variant", "in_combine", "once"),
    [
        ("eager", ["mask", "pack", "exchange", "unpack"], []),
        ("hoisted-pack", ["pack", "exchange", "unpack"], ["row_mask"]),
    ],
)
def test_ranges_of_a_layer(variant: str, in_combine: list[str], once: list[str], device: str) -> None:
    opened = opened_ranges(WORKLOAD.build(context(variant, device, layers=1)))
    before = ["qkv", "absorb", "gather", "attention", "combine"]
    parts = [*before, *(f"combine/{name}" for name in in_combine), "v_up", "o_proj"]
    assert opened == [*once, "layers.0.mla", *(f"layers.0.mla/{name}" for name in parts)]


@pytest.mark.parametrize(("variant", "width"), [("fused", 18), ("fused-padded", 24)])
def test_the_exchange_and_the_gather_are_what_they_are_given(variant: str, width: int, device: str) -> None:
    exchanged, gathered = [], []

    def collective(send: torch.Tensor, recv: torch.Tensor) -> None:
        exchanged.append(send.shape)
        recv.zero_()

    def all_gather(source: torch.Tensor, target: torch.Tensor) -> None:
        gathered.append((source.shape, target.shape))
        repeat_heads(source, target)

    step = build_step(context(variant, device), collective, all_gather)
    results = run(step)
    assert exchanged == [(2, 4, 2, width)] * 2
    assert gathered == [((4, 2, 32), (2, 4, 2, 32))] * 2
    # A zeroed LSE weighs every rank alike, and the payload is zero.
    assert not results["layers.0.mla/combined"].any()


def test_notes_say_what_was_run() -> None:
    notes = WORKLOAD.build(context("fused", rows=14, requests=0, context=800, layers=3)).notes
    assert (notes["real_rows"], notes["padding_rows"]) == (13, 1)
    assert notes["parameters"] == 3 * (64 * 64 + 2 * 32 * 32 + 2 * 2 * 16 * 16 + 32 * 64)
    # 13 requests of 400 to 450 local tokens of 32 fp16 numbers.
    assert 13 * 400 * 64 <= notes["kv_bytes_a_layer_timing"] < 13 * 450 * 64
    # 14 rows of one block of heads each leave most of 132 multiprocessors free.
    assert 2 <= notes["attention_splits"] <= 132 // 14


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"layers": 0}, "layers=0"),
        ({"requests": 5}, "between 1 and rows=4"),
        ({"ranks": 3}, "divided evenly"),
        ({"kv_lora": 24}, "kv_lora=24 must be a power of two from 16"),
        ({"qk_rope": 8}, "qk_rope=8 must be a power of two from 16"),
        ({"context": 1}, "context=1 leaves a rank of 2 without a token"),
        ({"dtype": "fp32"}, "dtype=fp32"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(shapes: dict[str, ShapeValue], message: str) -> None:
    with pytest.raises(ProfkitError, match=message):
        WORKLOAD.build(context("fused", **shapes))


def test_an_unknown_variant_is_refused() -> None:
    with pytest.raises(ProfkitError, match=r"mla-step has no variant 'fast'.*eager"):
        WORKLOAD.build(context("fast"))


@pytest.mark.parametrize("width", [64, 33])
def test_rows_are_normalised_to_a_root_mean_square_of_one(width: int, device: str) -> None:
    source = torch.randn(3, 70, generator=torch.Generator().manual_seed(0)).half().to(device)[:, :width]
    target = torch.full((3, width), 7.0, dtype=torch.float16, device=device)
    rms_norm(source, target)
    expected = torch.nn.functional.rms_norm(source.double(), (width,), eps=1e-6)
    torch.testing.assert_close(target.double(), expected, rtol=1e-3, atol=1e-3)
    with pytest.raises(ValueError, match="cannot be normalised"):
        rms_norm(source, target[:, :-1])


@pytest.mark.gpu
@pytest.mark.parametrize("inputs", ["timing", "digest"])
def test_real_widths_agree_with_double_precision(inputs: InputSet) -> None:
    check_against_reference(context("fused", "cuda", **REAL), inputs, TOLERANCE["bf16"])


@pytest.mark.gpu
@pytest.mark.parametrize("variant", WORKLOAD.variants)
def test_a_captured_graph_follows_changed_lengths(variant: str) -> None:
    """Captured with one set of lengths, replayed with others: the mask and the attention must both follow."""
    built = context(variant, "cuda", **REAL)
    step = build_step(built, all_gather=other_ranks_heads)
    for inputs, equal in replays(step):
        assert equal
        if variant != "dropped":
            compare_with_reference(built, inputs, step.outputs(), TOLERANCE["bf16"])
