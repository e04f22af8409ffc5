"""The workload `dcp-combine`: its variants compute the same, except the one that drops the mask."""

from __future__ import annotations

from functools import partial

import pytest

torch = pytest.importorskip("torch", reason="the kernels need torch")
pytest.importorskip("triton", reason="the kernels need triton")

from step_runs import (  # noqa: E402
    captured_graph_follows_refreshed_inputs,
    launches,
    opened_ranges,
    run,
    same,
    small_context,
)

from profkit import kernels  # noqa: E402
from profkit.errors import ProfkitError  # noqa: E402
from profkit.kernels.dcp.step import build_step  # noqa: E402
from profkit.model.workload import ShapeValue  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:(divide by zero|invalid value):RuntimeWarning")

WORKLOAD = kernels.get("dcp-combine")
context = partial(small_context, WORKLOAD)


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_all_variants_agree_except_the_one_without_a_mask(dtype: str, device: str) -> None:
    results = {v: run(WORKLOAD.build(context(v, device, dtype=dtype))) for v in WORKLOAD.variants}
    for variant in set(WORKLOAD.variants) - {"dropped"}:
        assert same(results["eager"], results[variant])
    for layer in range(2):
        name = f"layers.{layer}.mla/out"
        assert not torch.equal(results["eager"][name], results["dropped"][name]), "a dropped mask must show everywhere"


def test_timing_inputs_empty_only_the_padding_rows(device: str) -> None:
    step = WORKLOAD.build(context("fused", device))
    run(step, "timing")
    result = step.outputs()["layers.1.mla/out"]
    assert (result[6:] == 0).all()
    assert (result[:6] != 0).any(dim=-1).all()


def test_outputs_name_every_layer_and_the_layers_differ(device: str) -> None:
    results = run(WORKLOAD.build(context("eager", device)))
    assert set(results) == {f"layers.{n}.mla/{what}" for n in range(2) for what in ("gemm", "out")}
    assert not torch.equal(results["layers.0.mla/out"], results["layers.1.mla/out"])
    assert not torch.equal(results["layers.0.mla/gemm"], results["layers.1.mla/gemm"])


def test_refresh_restores_what_the_eager_mask_overwrote(device: str) -> None:
    step = WORKLOAD.build(context("eager", device))
    timing = run(step, "timing")
    digest = run(step, "digest")
    assert not same(timing, digest)
    # Without restored LSEs the rows that the digest inputs masked would stay masked.
    assert same(run(step, "timing"), timing)
    assert same(run(step, "digest"), digest)


def test_refresh_keeps_every_address(device: str) -> None:
    step = WORKLOAD.build(context("eager", device))
    before = {name: tensor.data_ptr() for name, tensor in step.outputs().items()}
    run(step, "timing")
    run(step, "digest")
    assert {name: tensor.data_ptr() for name, tensor in step.outputs().items()} == before


def test_the_seed_decides_the_inputs(device: str) -> None:
    assert same(run(WORKLOAD.build(context("fused", device, 3))), run(WORKLOAD.build(context("fused", device, 3))))
    assert not same(run(WORKLOAD.build(context("fused", device, 3))), run(WORKLOAD.build(context("fused", device, 4))))


@pytest.mark.parametrize(("rows", "requests"), [(56, 0), (56, 52), (104, 0), (32, 30), (8, 6)])
def test_digest_inputs_mask_50_to_65_percent_of_the_rows(rows: int, requests: int) -> None:
    for seed in range(5):
        notes = build_step(context("fused", seed=seed, rows=rows, requests=requests, layers=1)).notes
        assert 0.5 <= notes["masked_share_digest"] <= 0.65


def test_the_default_batch_has_52_real_and_4_padding_rows() -> None:
    notes = build_step(context("fused", rows=56, requests=0)).notes
    assert (notes["real_rows"], notes["padding_rows"]) == (52, 4)
    assert notes["masked_share_timing"] == round(4 / 56, 4)


@pytest.mark.parametrize(
    ("variant", "in_combine", "once"),
    [
        ("eager", ["mask", "pack", "exchange", "unpack"], []),
        ("fused", ["pack", "exchange", "unpack"], []),
        ("fused-planar", ["pack", "exchange", "unpack"], []),
        ("fused-padded", ["pack", "exchange", "unpack"], []),
        ("hoisted", ["mask", "pack", "exchange", "unpack"], ["row_mask"]),
        ("hoisted-pack", ["pack", "exchange", "unpack"], ["row_mask"]),
        ("dropped", ["pack", "exchange", "unpack"], []),
    ],
)
def test_ranges_of_a_layer(variant: str, in_combine: list[str], once: list[str], device: str) -> None:
    opened = opened_ranges(WORKLOAD.build(context(variant, device, layers=1)))
    layer = ["layers.0.mla", "layers.0.mla/gemm", "layers.0.mla/combine"]
    assert opened == [*once, *layer, *(f"layers.0.mla/combine/{name}" for name in in_combine)]


@pytest.mark.parametrize(
    ("variant", "mask", "once"),
    [
        *[("eager", 8, 0), ("fused", 0, 0), ("fused-planar", 0, 0), ("fused-padded", 0, 0)],
        *[("hoisted", 1, 7), ("hoisted-pack", 0, 7)],
    ],
)
def test_launches_of_a_layer(variant: str, mask: int, once: int) -> None:
    counted = launches(WORKLOAD.build(context(variant)))
    one = {"gemm": 1, "combine/mask": mask, "combine/pack": 1, "combine/exchange": 1, "combine/unpack": 1}
    expected = {f"layers.{n}.mla/{part}": count for n in range(2) for part, count in one.items() if count}
    assert counted == {**expected, **({"row_mask": once} if once else {})}


@pytest.mark.parametrize(("variant", "width"), [("fused", 18), ("fused-planar", 18), ("fused-padded", 24)])
def test_the_exchange_is_what_it_is_given(variant: str, width: int, device: str) -> None:
    exchanged = []

    def collective(send: torch.Tensor, recv: torch.Tensor) -> None:
        exchanged.append(send.shape)
        recv.zero_()

    step = build_step(context(variant, device), collective)
    results = run(step)
    assert exchanged == [(4, 8, 1, width)] * 2
    # A zeroed LSE weighs every rank alike, and the payload is zero.
    assert not results["layers.0.mla/out"].any()


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"rows": 0}, "rows=0"),
        ({"requests": 9}, "between 1 and rows=8"),
        ({"requests": -1}, "between 1 and rows=8"),
        ({"ranks": 3}, "divided evenly"),
        ({"head_dim": 24}, "power of two"),
        ({"dtype": "fp8"}, "dtype=fp8"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(shapes: dict[str, ShapeValue], message: str) -> None:
    with pytest.raises(ProfkitError, match=message):
        WORKLOAD.build(context("fused", **shapes))


def test_an_unknown_variant_is_refused() -> None:
    with pytest.raises(ProfkitError, match=r"no variant 'fast'.*eager"):
        WORKLOAD.build(context("fast"))


@pytest.mark.gpu
@pytest.mark.parametrize("variant", WORKLOAD.variants)
def test_a_captured_graph_follows_refreshed_inputs(variant: str) -> None:
    assert captured_graph_follows_refreshed_inputs(WORKLOAD.build(context(variant, "cuda")))
