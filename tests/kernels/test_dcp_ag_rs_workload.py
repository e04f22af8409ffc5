"""The workload `dcp-ag-rs`: its variants compute the same, except the one that drops the mask."""

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
from profkit.kernels.dcp.ag_rs_combine import Collectives  # noqa: E402
from profkit.kernels.dcp.ag_rs_step import build_step  # noqa: E402
from profkit.model.workload import ShapeValue  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:(divide by zero|invalid value):RuntimeWarning")

WORKLOAD = kernels.get("dcp-ag-rs")
LSE_ORDERS = ["rows-first", "heads-first"]
context = partial(small_context, WORKLOAD)


@pytest.mark.parametrize("lse", LSE_ORDERS)
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_eager_and_fused_agree_and_a_dropped_mask_shows(dtype: str, lse: str, device: str) -> None:
    results = {v: run(WORKLOAD.build(context(v, device, dtype=dtype, lse=lse))) for v in WORKLOAD.variants}
    assert same(results["eager"], results["fused"])
    for layer in range(2):
        name = f"layers.{layer}.mla/out"
        assert not torch.equal(results["eager"][name], results["dropped"][name])


def test_the_order_of_the_lse_changes_no_result(device: str) -> None:
    results = [run(WORKLOAD.build(context("fused", device, lse=lse))) for lse in LSE_ORDERS]
    assert same(*results)


def test_timing_inputs_empty_only_the_padding_rows(device: str) -> None:
    step = WORKLOAD.build(context("fused", device))
    run(step, "timing")
    result = step.outputs()["layers.1.mla/out"]
    assert (result[6:] == 0).all()
    assert (result[:6] != 0).any(dim=-1).all()


@pytest.mark.parametrize("lse", LSE_ORDERS)
def test_refresh_restores_what_the_eager_mask_overwrote(lse: str, device: str) -> None:
    step = WORKLOAD.build(context("eager", device, lse=lse))
    timing = run(step, "timing")
    digest = run(step, "digest")
    assert not same(timing, digest)
    assert same(run(step, "timing"), timing)


@pytest.mark.parametrize("variant", WORKLOAD.variants)
def test_ranges_of_a_layer_are_the_same_in_every_variant(variant: str, device: str) -> None:
    parts = ("mask", "gather", "correct", "scatter")
    expected = ["layers.0.mla", "layers.0.mla/gemm", "layers.0.mla/combine"]
    opened = opened_ranges(WORKLOAD.build(context(variant, device, layers=1)))
    assert opened == [*expected, *(f"layers.0.mla/combine/{part}" for part in parts)]


@pytest.mark.parametrize(
    ("variant", "lse", "mask"),
    [
        ("eager", "rows-first", 8),
        ("eager", "heads-first", 9),
        ("fused", "rows-first", 1),
        ("fused", "heads-first", 1),
        ("dropped", "rows-first", 0),
        ("dropped", "heads-first", 1),
    ],
)
def test_launches_of_a_layer(variant: str, lse: str, mask: int) -> None:
    counted = launches(WORKLOAD.build(context(variant, lse=lse)))
    one = {"gemm": 1, "combine/mask": mask, "combine/gather": 1, "combine/correct": 1, "combine/scatter": 1}
    expected = {f"layers.{n}.mla/{part}": count for n in range(2) for part, count in one.items() if count}
    assert counted == expected


def test_the_exchanges_are_what_they_are_given(device: str) -> None:
    calls = []

    def all_gather(source: torch.Tensor, target: torch.Tensor) -> None:
        calls.append((tuple(source.shape), tuple(target.shape), source.is_contiguous()))
        # Every other rank's shard is empty, so this rank's output counts whole where it has a shard.
        target.fill_(float("-inf"))
        target[0] = source

    def reduce_scatter(source: torch.Tensor, target: torch.Tensor) -> None:
        calls.append((tuple(source.shape), tuple(target.shape), source.is_contiguous()))
        target.copy_(source[0])

    step = build_step(context("fused", device, lse="heads-first"), Collectives(all_gather, reduce_scatter))
    run(step, "timing")
    assert calls == [((8, 4), (4, 8, 4), True), ((4, 8, 1, 16), (8, 1, 16), True)] * 2
    alone = step.outputs()["layers.0.mla/out"]
    whole = WORKLOAD.build(context("fused", device))
    run(whole, "timing")
    assert not torch.equal(alone[:6], whole.outputs()["layers.0.mla/out"][:6])


@pytest.mark.parametrize(
    ("shapes", "message"),
    [({"rows": 0}, "dcp-ag-rs.*rows=0"), ({"ranks": 3}, "divided evenly"), ({"head_dim": 24}, "power of two")],
)
def test_shapes_that_do_not_fit_are_refused(shapes: dict[str, ShapeValue], message: str) -> None:
    with pytest.raises(ProfkitError, match=message):
        WORKLOAD.build(context("fused", **shapes))


def test_an_unknown_variant_is_refused() -> None:
    with pytest.raises(ProfkitError, match=r"dcp-ag-rs has no variant 'hoisted'.*eager"):
        WORKLOAD.build(context("hoisted"))


@pytest.mark.gpu
@pytest.mark.parametrize("lse", LSE_ORDERS)
@pytest.mark.parametrize("variant", WORKLOAD.variants)
def test_a_captured_graph_follows_refreshed_inputs(variant: str, lse: str) -> None:
    assert captured_graph_follows_refreshed_inputs(WORKLOAD.build(context(variant, "cuda", lse=lse)))
