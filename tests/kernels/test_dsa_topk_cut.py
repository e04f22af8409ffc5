"""The cut of long rows before their top-k: how many scores it keeps, of the kernel and by the sizes alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="the kernels need torch")
pytest.importorskip("triton", reason="the kernels need triton")
stats = pytest.importorskip("scipy.stats", reason="the probabilities need scipy")

from profkit.kernels.dsa.topk import TUNED_TOPK  # noqa: E402
from profkit.kernels.dsa.topk_cut import cut_target, sample_size, spread, topk_cut_kernel  # noqa: E402

ROWS, BLOCKS, SLOTS, CAPACITY, TILE, PARTS = 48, 4000, 64, 512, 1024, 2


def kept_by_the_cut(scores: torch.Tensor) -> torch.Tensor:
    """``[R]``: how many scores of each row the parts of the cut count together."""
    rows, blocks = scores.shape
    device = scores.device
    part_capacity = 2 * TILE
    part_scores = torch.empty(rows, PARTS, part_capacity, device=device)
    part_blocks = torch.empty(rows, PARTS, part_capacity, dtype=torch.int32, device=device)
    counts = torch.empty(rows, PARTS, dtype=torch.int32, device=device)
    ends = torch.full((rows,), blocks, dtype=torch.int32, device=device)
    topk_cut_kernel[(rows, PARTS, 1)](
        *(scores, None, ends, part_scores, part_blocks, counts, blocks, blocks, 1, 1),
        *(cut_target(SLOTS, CAPACITY), CAPACITY, part_capacity),
        HAS_STARTS=False,
        SAMPLE=sample_size(256, blocks, SLOTS, CAPACITY),
        TILE=TILE,
        num_warps=4,
    )
    return counts.sum(dim=1).cpu()


@pytest.mark.parametrize(
    ("offset", "scale"),
    # Among the narrow scores, a pivot of seven bits of mantissa would keep all or none.
    [(0.0, 1.0), (1000.0, 0.01)],
)
def test_the_cut_keeps_between_the_slots_and_the_capacity(offset: float, scale: float, device: str) -> None:
    generator = torch.Generator().manual_seed(0)
    scores = offset + scale * torch.rand(ROWS, BLOCKS, generator=generator)
    kept = kept_by_the_cut(scores.to(device))
    assert kept.min() >= SLOTS
    assert kept.max() <= CAPACITY
    target = cut_target(SLOTS, CAPACITY)
    assert target * 0.8 < kept.float().mean() < target * 1.2


def test_the_sample_reaches_the_end_of_the_row(device: str) -> None:
    # A sample at a distance of 600 // 256 blocks would end at block 512, and take the lower half for the row's highest.
    scores = torch.arange(600.0).sub(350).clamp(min=0).reshape(1, 600)
    kept = kept_by_the_cut(scores.to(device)).item()
    assert cut_target(SLOTS, CAPACITY) * 0.9 < kept < cut_target(SLOTS, CAPACITY) * 1.1


@pytest.mark.parametrize("slots", [16, 512, 2048, 4096])
@pytest.mark.parametrize("width", [1 << 17, 1 << 20, 1 << 21, 1 << 22])
def test_fewer_than_one_random_row_in_a_million_is_searched_whole(width: int, slots: int) -> None:
    blocks, capacity = width // 8, max(TUNED_TOPK.capacity, 4 * slots)
    sample = sample_size(TUNED_TOPK.sample, blocks, slots, capacity)
    assert sample <= capacity
    if blocks <= capacity:
        return
    rank = -(-cut_target(slots, capacity) * sample // blocks)
    # The sample has that many of the highest slots - 1, or fewer of the highest capacity + 1.
    too_few = stats.hypergeom.sf(rank - 1, blocks, slots - 1, sample)
    too_many = stats.hypergeom.cdf(rank - 1, blocks, capacity + 1, sample)
    assert too_few + too_many < 1e-6


@given(slots=st.integers(1, 10**5), more=st.integers(4, 100), blocks=st.integers(1, 1 << 24))
def test_the_target_lies_between_and_the_sample_within_the_capacity(slots: int, more: int, blocks: int) -> None:
    capacity = more * slots
    assert slots <= cut_target(slots, capacity) <= capacity
    least = 1
    sample = sample_size(least, blocks, slots, capacity)
    assert sample & (sample - 1) == 0
    assert sample <= capacity
    if 2 * sample <= capacity:
        assert spread(sample, blocks, slots, capacity) >= 5
