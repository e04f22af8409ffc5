"""The kernels of the all-gather and reduce-scatter combine, alone and over simulated ranks."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the kernels need torch")
pytest.importorskip("triton", reason="the kernels need triton")

import dcp_cases  # noqa: E402
from dcp_cases import EDGES, Case  # noqa: E402
from dcp_oracle import Batch, bits, is_empty  # noqa: E402
from dcp_simulation import HEAD_DIM, HEADS, PADDING, RANKS, ROWS, simulate  # noqa: E402
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from profkit.kernels.dcp.ag_rs import correct, mask_copy  # noqa: E402
from profkit.kernels.dcp.ag_rs_combine import local_all_gather, local_reduce_scatter  # noqa: E402
from profkit.kernels.dcp.mask import mask_dcp_empty_shards_  # noqa: E402
from profkit.kernels.dcp.reference import combine  # noqa: E402

# The interpreter runs numpy, which warns where the GPU quietly gives the NaN or -inf that the kernel then handles.
pytestmark = pytest.mark.filterwarnings("ignore:(divide by zero|invalid value):RuntimeWarning")

NAN, INF = math.nan, math.inf
TOLERANCE = {torch.float16: 3e-2, torch.bfloat16: 3e-2, torch.float32: 1e-5}
LSE_TOLERANCE = 1e-4
D = 16


def heads_first(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.transpose(0, 1).contiguous().transpose(0, 1)


def every_other(tensor: torch.Tensor) -> torch.Tensor:
    return torch.stack([tensor, tensor], dim=-1).flatten(-2)[..., ::2]


def draw_lse(rows: int, num_heads: int, dtype: torch.dtype, device: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rows)
    return torch.randn(rows, num_heads, generator=generator).to(dtype).to(device)


@pytest.mark.parametrize("order", [lambda lse: lse, heads_first, every_other], ids=["rows", "heads", "gaps"])
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("batch", EDGES.values(), ids=EDGES.keys())
def test_mask_and_copy_is_the_eager_mask_on_a_copy(batch: Batch, dtype: torch.dtype, order: Any, device: str) -> None:
    lse = order(draw_lse(batch.rows, 6, dtype, device))
    pristine = lse.clone()
    seq_lens, starts = batch.tensors(device)
    expected = mask_dcp_empty_shards_(lse.clone(memory_format=torch.contiguous_format), seq_lens, starts)
    masked = torch.full((batch.rows, 6), 7.0, dtype=dtype, device=device)

    assert mask_copy(lse, masked, seq_lens, starts) is masked

    assert torch.equal(bits(masked), bits(expected))
    assert torch.equal(lse, pristine), "the kernel must leave its input alone"
    empty = [is_empty(row, batch.seq_lens, batch.starts) for row in range(batch.rows)]
    assert torch.isneginf(masked).all(dim=1).tolist() == empty


@pytest.mark.parametrize("case", [pytest.param(c, id=c.name, marks=pytest.mark.gpu) for c in dcp_cases.UNIFORM[::7]])
def test_mask_and_copy_over_larger_batches(case: Case, device: str) -> None:
    lse = heads_first(case.tensors(device)[1])
    expected = mask_dcp_empty_shards_(lse.contiguous(), *case.batch.tensors(device))
    masked = torch.empty_like(expected)
    mask_copy(lse, masked, *case.batch.tensors(device))
    assert torch.equal(bits(masked), bits(expected))


@given(
    spans=st.lists(st.integers(0, 4), max_size=9),
    padding=st.integers(0, 3),
    data=st.data(),
    num_heads=st.integers(1, 5),
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_batch_is_masked_by_the_formula(
    spans: list[int], padding: int, data: st.DataObject, num_heads: int, device: str
) -> None:
    lens = data.draw(st.lists(st.sampled_from([0, 0, 1, 16]), min_size=len(spans), max_size=len(spans)))
    batch = Batch(lens, spans, padding)
    lse = draw_lse(batch.rows, num_heads, torch.float32, device)
    masked = torch.full_like(lse, 7.0)
    mask_copy(heads_first(lse), masked, *batch.tensors(device))
    empty = torch.tensor([is_empty(row, lens, batch.starts) for row in range(batch.rows)], dtype=torch.bool)
    expected = torch.where(empty.unsqueeze(1), -INF, lse.cpu())
    assert torch.equal(bits(masked), bits(expected))


def test_bits_that_are_not_masked_stay_whatever_they_mean(device: str) -> None:
    patterns = torch.tensor([[0x7F800001, 0x7FFFFFFF, -1, 0x00000001, -0x80000000, 0x7F800000]] * 2, dtype=torch.int32)
    lse = patterns.view(torch.float32).to(device)
    masked = torch.zeros_like(lse)
    one_empty = torch.tensor([3, 0], dtype=torch.int32, device=device)
    mask_copy(lse, masked, one_empty, torch.tensor([0, 1, 2], dtype=torch.int32, device=device))
    assert torch.equal(bits(masked)[0], patterns[0])
    assert torch.isneginf(masked[1]).all()


def test_without_requests_the_metadata_is_not_read(device: str) -> None:
    masked = torch.zeros(3, 4, device=device)
    # Were the one boundary read, it would say that all three rows are real.
    starts = torch.tensor([1_000_000], dtype=torch.int32, device=device)
    mask_copy(torch.ones(3, 4, device=device), masked, torch.zeros(0, dtype=torch.int32, device=device), starts)
    assert torch.isneginf(masked).all()


def by_rank(tensor: torch.Tensor, ranks: int) -> torch.Tensor:
    """``[R, H, ...]`` as ``[N, R, h, ...]``."""
    return tensor.unflatten(1, (ranks, -1)).transpose(0, 1)


@pytest.mark.parametrize("base_2", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("ranks", [4, 3])
def test_corrected_outputs_sum_to_the_reference(ranks: int, dtype: torch.dtype, base_2: bool, device: str) -> None:
    rows, num_heads = 3, 2 * ranks
    generator = torch.Generator().manual_seed(0)
    out = torch.randn(ranks, rows, num_heads, D, generator=generator).to(dtype).to(device)
    lse = (3 * torch.randn(ranks, rows, num_heads, generator=generator)).to(device)
    lse[0, 1], out[0, 1] = -INF, NAN
    lse[1, 2, 0], out[1, 2, 0] = INF, INF
    lse[1:, 2, 1], out[1:, 2, 1] = NAN, NAN
    lse[:, 0, 0], out[:, 0, 0] = -INF, NAN
    expected, expected_lse = combine(out, lse, base_2=base_2)

    summed = torch.zeros(ranks, rows, num_heads // ranks, D, dtype=torch.float64, device=device)
    for rank in range(ranks):
        corrected = torch.full((ranks, rows, num_heads // ranks, D), 7.0, dtype=dtype, device=device)
        total = torch.full((rows, num_heads), 7.0, device=device)
        correct(out[rank], lse[rank], lse, corrected, total, base_2=base_2)
        torch.testing.assert_close(total.double(), expected_lse, rtol=LSE_TOLERANCE, atol=LSE_TOLERANCE)
        summed += corrected

    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(summed, by_rank(expected, ranks), rtol=tolerance, atol=tolerance)
    assert (summed[0, 0, 0] == 0).all(), "a row that is empty everywhere gives 0"


@pytest.mark.parametrize(
    "layout",
    [heads_first, every_other, lambda out: out.permute(2, 0, 1).contiguous().permute(1, 2, 0)],
    ids=["heads", "gaps", "dims"],
)
def test_an_output_may_have_any_strides(layout: Any, device: str) -> None:
    out = torch.randn(3, 6, D, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16).to(device)
    lse = torch.zeros(3, 6, device=device)
    results = [torch.zeros(2, 3, 3, D, dtype=out.dtype, device=device) for _ in range(2)]
    for source, corrected in zip((out, layout(out)), results, strict=True):
        correct(source, lse, torch.stack([lse, lse]), corrected)
    assert torch.equal(*results)
    # Two ranks of equal weight: half of each output, exactly.
    assert torch.equal(results[0], by_rank(out / 2, 2))


def test_no_rows_launch_nothing(device: str) -> None:
    lse = torch.zeros(0, 4, device=device)
    mask_copy(lse, torch.zeros(0, 4, device=device), *EDGES["single"].tensors(device))
    correct(
        torch.zeros(0, 4, D, device=device),
        lse,
        torch.zeros(2, 0, 4, device=device),
        torch.zeros(2, 0, 2, D, device=device),
    )


def test_the_stand_ins_move_what_they_say() -> None:
    source = torch.arange(6.0).view(2, 3)
    gathered = torch.zeros(4, 2, 3)
    local_all_gather(source, gathered)
    assert all(torch.equal(part, source) for part in gathered)
    scattered = torch.zeros(2, 3)
    local_reduce_scatter(gathered, scattered)
    assert torch.equal(scattered, 4 * source)


@pytest.mark.parametrize("interleave", [1, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_eight_ranks_together_compute_unsharded_attention(dtype: torch.dtype, interleave: int, device: str) -> None:
    parts, whole = simulate(interleave)
    gathered = torch.zeros(RANKS, ROWS, RANKS * HEADS, device=device)
    for part, masked in zip(parts, gathered, strict=True):
        mask_copy(heads_first(part.lse.to(device)), masked, *part.batch.tensors(device))

    summed = torch.zeros(RANKS, ROWS, HEADS, HEAD_DIM, dtype=torch.float64)
    for part, masked in zip(parts, gathered, strict=True):
        corrected = torch.full(summed.shape, 7.0, dtype=dtype, device=device)
        correct(part.out.to(dtype).to(device), masked, gathered, corrected)
        summed += corrected.cpu()

    torch.testing.assert_close(summed, by_rank(whole, RANKS), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    assert (summed[:, ROWS - PADDING :] == 0).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lse": torch.zeros(3, 5)}, "lse must be"),
        ({"lse": torch.zeros(3, 8)[:, ::2]}, "lse must be"),
        ({"gathered": torch.zeros(2, 3, 4, dtype=torch.float16)}, "gathered must be"),
        ({"corrected": torch.zeros(2, 3, 2, D)}, "corrected must be"),
        ({"corrected": torch.zeros(3, 3, 1, D, dtype=torch.bfloat16)}, "gathered must be|divided evenly"),
        ({"out": torch.zeros(3, 4, 12, dtype=torch.bfloat16)}, "power of two"),
        ({"out": torch.zeros(3, 4, dtype=torch.bfloat16)}, "2-D"),
        ({"total": torch.zeros(3, 4, dtype=torch.float64)}, "total must be"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, Any], message: str) -> None:
    arguments = {
        "out": torch.zeros(3, 4, D, dtype=torch.bfloat16),
        "lse": torch.zeros(3, 4),
        "gathered": torch.zeros(2, 3, 4),
        "corrected": torch.zeros(2, 3, 2, D, dtype=torch.bfloat16),
    }
    with pytest.raises(ValueError, match=message):
        correct(**{**arguments, **change})


def test_a_masked_lse_that_does_not_fit_is_refused() -> None:
    seq_lens, starts = EDGES["single"].tensors("cpu")
    for masked in (torch.zeros(3, 5), torch.zeros(3, 4, dtype=torch.float16), torch.zeros(3, 8)[:, ::2]):
        with pytest.raises(ValueError, match="masked like it"):
            mask_copy(torch.zeros(3, 4), masked, seq_lens, starts)
    with pytest.raises(ValueError, match="one more"):
        mask_copy(torch.zeros(3, 4), torch.zeros(3, 4), seq_lens, starts[:-1])
