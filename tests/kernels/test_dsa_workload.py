"""The workload `dsa-candidates`: all variants compute the same, with the launches that each is made for."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext

import pytest

torch = pytest.importorskip("torch", reason="the kernels need torch")
pytest.importorskip("triton", reason="the kernels need triton")

from step_runs import captured_graph_follows_refreshed_inputs, opened_ranges, run, same  # noqa: E402

from profkit import kernels  # noqa: E402
from profkit.capture.profilers.dispatch_step import intercepted  # noqa: E402
from profkit.errors import ProfkitError  # noqa: E402
from profkit.kernels.dsa.inputs import LogitSource, digest_contexts, masked_share  # noqa: E402
from profkit.model.workload import BuildContext, InputSet, ShapeValue, Step  # noqa: E402

WORKLOAD = kernels.get("dsa-candidates")
SMALL: dict[str, ShapeValue] = {"rows": 6, "width": 640, "context": 40, "candidates": 16}
CONSUMERS = [f"layers.{number}.consumer" for number in (24, 28, 32, 36)]


def context(variant: str, device: str = "cpu", seed: int = 0, **shapes: ShapeValue) -> BuildContext:
    defaults = {name: shape.default for name, shape in WORKLOAD.shapes.items()}
    return BuildContext(variant, {**defaults, **SMALL, **shapes}, device, seed)


@pytest.mark.parametrize("inputs", ["digest", "timing"])
@pytest.mark.parametrize("width", [640, 643])
def test_all_variants_agree(width: int, inputs: InputSet, device: str) -> None:
    results = {
        variant: run(WORKLOAD.build(context(variant, device, width=width)), inputs) for variant in WORKLOAD.variants
    }
    for variant, result in results.items():
        assert same(results["old"], result), variant


def test_a_mask_left_out_shows_in_every_layer(device: str) -> None:
    step = WORKLOAD.build(context("new", device))
    masked = run(step)
    step.refresh("digest")
    step.layers[0].run(lambda name: nullcontext())
    unmasked = {name: tensor.cpu() for name, tensor in step.outputs().items()}
    assert torch.equal(masked["layers.20.source/candidates"], unmasked["layers.20.source/candidates"])
    for consumer in CONSUMERS:
        differs = masked[f"{consumer}/live_logits"] != unmasked[f"{consumer}/live_logits"]
        # All but the row that its candidates cover and the padding row.
        assert differs.tolist() == [True] * 4 + [False] * 2


def test_outputs_name_every_layer_and_the_layers_differ(device: str) -> None:
    results = run(WORKLOAD.build(context("old", device)))
    assert list(results) == ["layers.20.source/candidates", *(f"{consumer}/live_logits" for consumer in CONSUMERS)]
    sums = [results[f"{consumer}/live_logits"] for consumer in CONSUMERS]
    assert all(not torch.equal(sums[0], other) for other in sums[1:])


def test_candidates_are_compared_as_sets(device: str) -> None:
    candidates = run(WORKLOAD.build(context("old", device)))["layers.20.source/candidates"]
    assert torch.equal(candidates, candidates.sort(dim=1).values)
    assert (candidates[0] >= 0).all()
    assert candidates[-1].tolist() == [-1] * 16


def test_refresh_restores_what_the_masks_overwrote(device: str) -> None:
    step = WORKLOAD.build(context("old", device))
    timing, digest = run(step, "timing"), run(step, "digest")
    assert not same(timing, digest)
    assert same(run(step, "timing"), timing)
    assert same(run(step, "digest"), digest)


def test_the_seed_decides_the_inputs(device: str) -> None:
    assert same(run(WORKLOAD.build(context("new", device, 3))), run(WORKLOAD.build(context("new", device, 3))))
    assert not same(run(WORKLOAD.build(context("new", device, 3))), run(WORKLOAD.build(context("new", device, 4))))


@pytest.mark.parametrize(
    ("variant", "select", "flags", "mask"),
    [
        ("old", ["scores_full_width_kernel", "store_candidates_kernel"], "flags_full_width", "mask_full_width"),
        ("new", ["scores_live_kernel", "store_candidates_kernel"], "flags_full_width", "mask_live"),
        ("bounded", ["scores_live_kernel", "topk_live_kernel"], "flags_live", "mask_live"),
        ("one-kernel", ["scores_live_kernel", "topk_live_kernel"], None, "flag_and_mask"),
    ],
)
def test_kernels_of_a_step(variant: str, select: list[str], flags: str | None, mask: str, device: str) -> None:
    launches = launched(WORKLOAD.build(context(variant, device)))
    expected = {**dict.fromkeys(select, 1), f"{mask}_kernel": 4, **({f"{flags}_kernel": 4} if flags else {})}
    assert launches == expected


def test_hoisted_flags_are_made_once(device: str) -> None:
    launches = launched(WORKLOAD.build(context("hoisted", device)))
    once = ("scores_live_kernel", "topk_live_kernel", "flags_live_kernel")
    assert launches == {**dict.fromkeys(once, 1), "mask_live_kernel": 4}


def test_rows_that_may_be_long_are_cut_down_before_their_top_k(device: str) -> None:
    # 8192 blocks, the capacity, and more.
    launches = {
        width: launched(WORKLOAD.build(context("bounded", device, rows=1, width=width, consumers=1)))
        for width in (1 << 16, (1 << 16) + 1)
    }
    plain = {"scores_live_kernel": 1, "topk_live_kernel": 1, "flags_live_kernel": 1, "mask_live_kernel": 1}
    assert list(launches.values()) == [plain, {**plain, "topk_cut_kernel": 1}]


def launched(step: Step) -> Counter[str]:
    """How often each Triton kernel is launched; the bodies do not run."""
    names: Counter[str] = Counter()
    with intercepted(lambda name, grid: names.update([name]), nullcontext, run_bodies=False):
        step.run(lambda name: nullcontext())
    return names


def test_launch_shapes_do_not_depend_on_the_context(device: str) -> None:
    def grids(tokens: int, variant: str) -> list[tuple[str, tuple[int, int, int]]]:
        found: list[tuple[str, tuple[int, int, int]]] = []
        step = WORKLOAD.build(context(variant, device, context=tokens))
        with intercepted(lambda name, grid: found.append((name, grid)), nullcontext, run_bodies=False):
            step.run(lambda name: nullcontext())
        return found

    for variant in WORKLOAD.variants:
        assert grids(1, variant) == grids(640, variant)


def test_ranges_of_a_step(device: str) -> None:
    def ranges(variant: str) -> list[str]:
        return opened_ranges(WORKLOAD.build(context(variant, device, consumers=1)))

    source, consumer = "layers.20.source", "layers.24.consumer"
    chosen = [source, f"{source}/scores", f"{source}/topk"]
    masked = [consumer, f"{consumer}/flags", f"{consumer}/mask"]
    assert ranges("old") == ranges("bounded") == [*chosen, *masked]
    assert ranges("new") == [source, f"{source}/fill", *chosen[1:], *masked]
    assert ranges("one-kernel") == [*chosen, consumer, f"{consumer}/mask"]
    assert ranges("hoisted") == [*chosen, f"{source}/flags", consumer, f"{consumer}/mask"]


def test_digest_contexts_exceed_what_candidates_cover() -> None:
    contexts = digest_contexts(52, 1 << 20, 16384)
    assert contexts[0] == 1 << 20
    assert min(contexts[:50]) == 16385
    assert contexts[50:] == [8192, 0]
    assert masked_share(contexts, 16384) > 0.9
    assert digest_contexts(1, 100, 50) == [100]
    assert all(0 <= tokens <= 30 for tokens in digest_contexts(5, 30, 16384))


def test_logits_have_no_ties_but_minus_infinity_and_one_nan_a_row() -> None:
    logits = LogitSource(3, 5000, 2, 8, "cpu", torch.Generator().manual_seed(0)).layer(1)
    for row in logits:
        finite = row[row.isfinite()]
        assert finite.unique().numel() == finite.numel()
        assert finite.abs().max() < 8
        assert (row.isnan().sum(), (row == float("-inf")).sum()) == (1, 32)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"rows": 0}, "rows=0"),
        ({"candidates": -1}, "candidates=-1"),
        ({"context": 641}, "context=641 must not be above width=640"),
        ({"width": 1 << 24}, "too wide for 6 rows"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(shapes: dict[str, ShapeValue], message: str) -> None:
    with pytest.raises(ProfkitError, match=message):
        WORKLOAD.build(context("new", **shapes))


def test_an_unknown_variant_is_refused() -> None:
    with pytest.raises(ProfkitError, match=r"no variant 'fast'.*old"):
        WORKLOAD.build(context("fast"))


@pytest.mark.gpu
@pytest.mark.parametrize("variant", WORKLOAD.variants)
def test_a_captured_step_follows_refreshed_inputs(variant: str) -> None:
    shapes: dict[str, ShapeValue] = {"rows": 20, "width": 1 << 16, "context": 512, "candidates": 256}
    assert captured_graph_follows_refreshed_inputs(WORKLOAD.build(context(variant, "cuda", **shapes)))


@pytest.mark.gpu
def test_all_variants_agree_at_full_size() -> None:
    shapes: dict[str, ShapeValue] = {"rows": 52, "width": 1 << 20, "context": 512, "candidates": 2048}
    results = [run(WORKLOAD.build(context(variant, "cuda", **shapes))) for variant in WORKLOAD.variants]
    assert all(same(results[0], result) for result in results[1:])
