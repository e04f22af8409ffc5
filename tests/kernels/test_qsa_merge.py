"""The merges, element by element: weights from base-2 LSEs, empty splits, rounding and gate.

Triton's interpreter truncates where it should round to bf16, so bf16 is left to a GPU.
"""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="the kernels need torch")
pytest.importorskip("triton", reason="the kernels need triton")

from profkit.kernels.qsa.merge import LOOP, NARROW, PLAIN, Merge, merge_for, merge_splits  # noqa: E402
from profkit.kernels.qsa.operands import Partials  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:(divide by zero|invalid value):RuntimeWarning")

ROWS, HEADS, HEAD_DIM = 3, 2, 16
MERGES = [None, PLAIN, LOOP, Merge("loop", chunk=2), NARROW]


def expected(partials: Partials, gate: torch.Tensor) -> torch.Tensor:
    """The merged output before its roundings, in double precision and element by element."""
    splits = partials.splits
    out = torch.zeros(gate.shape, dtype=torch.float64)
    for index in range(gate.shape[0] * gate.shape[1]):
        row, head = divmod(index, gate.shape[1])
        lse = [float(partials.lse[split, row, head]) for split in range(splits)]
        if max(lse) == -math.inf:
            continue
        weights = [2.0 ** (value - max(lse)) for value in lse]
        merged = sum(w * partials.outputs[s, row, head].double().cpu() for s, w in enumerate(weights)) / sum(weights)
        out[row, head] = merged * torch.sigmoid(gate[row, head].double().cpu())
    return out


def drawn(splits: int, device: str, dtype: torch.dtype = torch.float16) -> tuple[Partials, torch.Tensor]:
    generator = torch.Generator().manual_seed(splits)
    outputs = torch.randn(splits, ROWS, HEADS, HEAD_DIM, generator=generator)
    lse = torch.randn(splits, ROWS, HEADS, generator=generator) * 4
    gate = torch.randn(ROWS, HEADS, HEAD_DIM, generator=generator).to(dtype)
    return Partials(outputs.to(device), lse.to(device)), gate.to(device)


@pytest.mark.parametrize("merge", MERGES, ids=str)
# 7 leaves one of 4 splits masked, 33 one that needs no mask, 23 both chunks and a mask.
@pytest.mark.parametrize("splits", [2, 7, 23, 33, 64])
@pytest.mark.parametrize("dtype", [torch.float16, pytest.param(torch.bfloat16, marks=pytest.mark.gpu)])
def test_weighted_sums(dtype: torch.dtype, splits: int, merge: Merge | None, device: str) -> None:
    partials, gate = drawn(splits, device, dtype)
    out = torch.full_like(gate, float("nan"))
    merge_splits(partials, gate, out, merge)
    unit = 2.0**-8 if dtype == torch.bfloat16 else 2.0**-10
    torch.testing.assert_close(out.double().cpu(), expected(partials, gate), rtol=2 * unit, atol=1e-5)


@pytest.mark.parametrize("merge", MERGES, ids=str)
def test_empty_splits_have_no_weight_and_all_empty_is_zero(merge: Merge | None, device: str) -> None:
    partials, gate = drawn(5, device)
    partials.lse[1:4, 0] = float("-inf")
    partials.outputs[1:4, 0] = 0.0
    partials.lse[:, 1, 1] = float("-inf")
    partials.outputs[:, 1, 1] = 0.0
    out = torch.full_like(gate, float("nan"))
    merge_splits(partials, gate, out, merge)
    assert not out[1, 1].any()
    torch.testing.assert_close(out.double().cpu(), expected(partials, gate), rtol=2.0**-9, atol=1e-5)


@pytest.mark.parametrize("merge", MERGES, ids=str)
def test_lses_far_from_zero_do_not_overflow(merge: Merge | None, device: str) -> None:
    partials, gate = drawn(3, device)
    partials.lse.add_(3000.0)
    partials.lse[0].sub_(6000.0)
    out = torch.full_like(gate, float("nan"))
    merge_splits(partials, gate, out, merge)
    torch.testing.assert_close(out.double().cpu(), expected(partials, gate), rtol=2.0**-9, atol=1e-5)


@pytest.mark.parametrize("merge", [PLAIN, LOOP], ids=str)
def test_the_merged_output_is_rounded_then_gated_then_rounded(merge: Merge | None, device: str) -> None:
    # One split of two has all the weight, so the merged output is its own, to the last bit.
    dtype = torch.bfloat16 if device == "cuda" else torch.float16
    partials, gate = drawn(2, device, dtype)
    partials.lse[0] = float("-inf")
    partials.outputs[0] = 0.0
    out = torch.empty_like(gate)
    merge_splits(partials, gate, out, merge)
    once = partials.outputs[1].to(dtype).float() * torch.sigmoid(gate.float())
    assert (out == once.to(dtype)).float().mean() > 0.97
    unrounded = (partials.outputs[1] * torch.sigmoid(gate.float())).to(dtype)
    assert (out == unrounded).float().mean() < 0.9, "rounding once would not be told from rounding twice"


@pytest.mark.parametrize(
    ("splits", "merge"),
    [(2, PLAIN), (4, PLAIN), (5, NARROW), (16, NARROW), (33, NARROW), (200, NARROW)],
)
def test_the_number_of_splits_decides_the_merge(splits: int, merge: Merge) -> None:
    assert merge_for(splits) == merge


def test_no_rows(device: str) -> None:
    partials = Partials(torch.empty(2, 0, 2, 16, device=device), torch.empty(2, 0, 2, device=device))
    merge_splits(partials, torch.empty(0, 2, 16, device=device), torch.empty(0, 2, 16, device=device))


def test_tensors_that_do_not_fit_are_refused() -> None:
    partials, gate = drawn(2, "cpu")
    with pytest.raises(ValueError, match="gate must be"):
        merge_splits(partials, gate[:1], torch.empty_like(gate))
    with pytest.raises(ValueError, match="out must be"):
        merge_splits(partials, gate, torch.empty_like(gate).transpose(0, 1).contiguous().transpose(0, 1))


@pytest.mark.gpu
@pytest.mark.parametrize("merge", [LOOP, NARROW], ids=str)
def test_the_looping_merge_spills_no_registers(merge: Merge) -> None:
    from profkit.kernels.qsa.merge import merge_launch

    for splits in (2, 8, 33, 64):
        outputs = torch.zeros(splits, 4, 12, 256, device="cuda")
        partials = Partials(outputs, torch.zeros(splits, 4, 12, device="cuda"))
        gate = torch.zeros(4, 12, 256, dtype=torch.bfloat16, device="cuda")
        kernel, grid, arguments, constants = merge_launch(partials, gate, torch.empty_like(gate), merge)
        compiled = kernel[grid](*arguments, **constants)
        assert compiled.n_spills == 0
