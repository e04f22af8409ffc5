"""The workload `qsa-attention`: its variants compute the same within the tolerance, except the negative control."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

torch = pytest.importorskip("torch", reason="the kernels need torch")
pytest.importorskip("triton", reason="the kernels need triton")

from qsa_cases import WORKLOAD, context  # noqa: E402
from step_runs import opened_ranges  # noqa: E402

from profkit.capture.record import against_references  # noqa: E402
from profkit.errors import ProfkitError  # noqa: E402
from profkit.kernels.qsa import step as step_module  # noqa: E402
from profkit.kernels.qsa.merge import Merge, merge_splits  # noqa: E402
from profkit.kernels.qsa.operands import Operands, Workspace  # noqa: E402
from profkit.kernels.qsa.split import split_attention  # noqa: E402
from profkit.kernels.qsa.tables import TABLES, Entry, Launch, Table  # noqa: E402
from profkit.model.workload import InputSet, Scope, ShapeValue, Step  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:(divide by zero|invalid value):RuntimeWarning")

SOUND = [variant for variant in WORKLOAD.variants if variant != "dropped"]


def run(step: Step, inputs: InputSet = "digest") -> dict[str, torch.Tensor]:
    step.refresh(inputs)
    step.run(lambda name: nullcontext())
    return {name: tensor.clone() for name, tensor in step.outputs().items()}


def deviations(step: Step) -> dict[str, float | None]:
    """Each output's, after a run on the digest inputs; None is infinite."""
    found = against_references(run(step), step.references)
    assert found is not None
    return {name: output.deviation for name, output in found.outputs.items()}


@pytest.mark.parametrize("variant", SOUND)
def test_every_layer_of_a_variant_is_well_within_the_tolerance(variant: str, device: str) -> None:
    found = deviations(WORKLOAD.build(context(variant, device, rows=9)))
    assert list(found) == ["layers.0.qsa/out", "layers.1.qsa/out"]
    assert all(value is not None and value < 0.5 for value in found.values())


def test_a_dropped_half_of_the_cache_shows_in_every_layer(device: str) -> None:
    found = deviations(WORKLOAD.build(context("dropped", device, rows=9)))
    assert all(value is None or value > 1 for value in found.values())


def test_a_split_that_the_merge_leaves_out_shows_in_every_layer(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(
        operands: Operands, launched: Launch, out: torch.Tensor, workspace: Workspace, merge: Merge | None, scope: Scope
    ) -> None:
        partials = workspace.partials(launched.splits)
        assert partials is not None
        split_attention(operands, launched, out, partials)
        partials.lse[-1] = float("-inf")
        merge_splits(partials, operands.gate, out, merge)

    monkeypatch.setattr(step_module, "attend", forgetful)
    found = deviations(WORKLOAD.build(context("sm_90", device, rows=9, width=131, context=400)))
    assert all(value is None or value > 1 for value in found.values())


def test_timing_inputs_have_full_selections(device: str) -> None:
    step = WORKLOAD.build(context("default", device, rows=9))
    assert all((tensor != 0).any(dim=-1).all() for tensor in run(step, "timing").values())
    # The digest inputs have rows of no request, whose output is zero.
    assert all(not tensor[5].any() and not tensor[8].any() for tensor in run(step, "digest").values())


def test_refresh_selects_the_inputs_and_keeps_every_address(device: str) -> None:
    step = WORKLOAD.build(context("default", device))
    before = {name: tensor.data_ptr() for name, tensor in step.outputs().items()}
    timing, digest = run(step, "timing"), run(step, "digest")
    again = run(step, "timing")
    for name in before:
        assert torch.equal(timing[name], again[name])
        assert not torch.equal(timing[name], digest[name])
    assert {name: tensor.data_ptr() for name, tensor in step.outputs().items()} == before


def test_layers_differ_and_the_seed_decides_the_inputs(device: str) -> None:
    first, second = (run(WORKLOAD.build(context("default", device, 3))) for _ in range(2))
    other = run(WORKLOAD.build(context("default", device, 4)))
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name])
        assert not torch.equal(tensor, other[name])
    assert not torch.equal(first["layers.0.qsa/out"], first["layers.1.qsa/out"])


@pytest.mark.parametrize(("splits", "inside"), [(1, ["split"]), (2, ["split", "merge"])])
def test_ranges_of_a_layer(splits: int, inside: list[str], device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = (Entry(32, splits, 1),) * 9
    monkeypatch.setitem(TABLES, "default", Table("of one entry", entries, entries))  # type: ignore[arg-type]
    opened = opened_ranges(WORKLOAD.build(context("default", device, layers=1)))
    assert opened == ["layers.0.qsa", *(f"layers.0.qsa/{name}" for name in inside)]


def test_notes_say_what_ran_and_what_the_digest_inputs_hold(device: str) -> None:
    notes = WORKLOAD.build(context("sm_90", device, rows=9, width=131, context=400)).notes
    assert (notes["region"], notes["block_n"], notes["splits"], notes["warps"]) == ("1-24", 64, 3, 2)
    assert notes["digest_inputs"].startswith("3 of 9 rows with a short context and 2 of no request")


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"rows": 0}, "rows=0"),
        ({"q_heads": 5}, "divided evenly"),
        ({"head_dim": 24}, "power of two"),
        ({"width": 36}, "3 more than a multiple of 32"),
        ({"context": 1}, "context=1 must hold the 2 rows"),
        ({"mode": "both"}, "mode=both"),
        ({"dtype": "fp32"}, "dtype=fp32"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(shapes: dict[str, ShapeValue], message: str) -> None:
    with pytest.raises(ProfkitError, match=message):
        WORKLOAD.build(context("default", **shapes))


def test_an_unknown_variant_is_refused() -> None:
    with pytest.raises(ProfkitError, match=r"no variant 'fast'.*sm_90"):
        WORKLOAD.build(context("fast"))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
@pytest.mark.parametrize("variant", WORKLOAD.variants)
def test_a_captured_graph_follows_refreshed_inputs(variant: str, dtype: str) -> None:
    shapes: dict[str, ShapeValue] = {"rows": 16, "head_dim": 256, "width": 2051, "page": 784, "context": 4096}
    step = WORKLOAD.build(context(variant, "cuda", dtype=dtype, **shapes))
    expected = {inputs: run(step, inputs) for inputs in ("timing", "digest")}
    graph = torch.cuda.CUDAGraph()
    step.refresh("timing")
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        step.run(lambda name: nullcontext())
    for inputs in ("digest", "timing", "digest"):
        step.refresh(inputs)
        graph.replay()
        torch.cuda.synchronize()
        assert all(torch.equal(tensor, expected[inputs][name]) for name, tensor in step.outputs().items())
    assert all((value is None or value > 1) == (variant == "dropped") for value in deviations(step).values())
