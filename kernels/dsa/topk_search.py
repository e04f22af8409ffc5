"""Finding the k-th highest score of a list inside a kernel: bit by bit, counting what reaches each trial value."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def ordered_keys(score: tl.tensor) -> tl.tensor:
    """uint32 keys in the order of the scores: -inf lowest, every NaN highest, as torch.topk has it. None is 0."""
    bits = score.to(tl.uint32, bitcast=True)
    negative = score.to(tl.int32, bitcast=True) < 0
    key = tl.where(negative, bits ^ 0xFFFFFFFF, bits ^ 0x80000000)
    return tl.where(score != score, 0xFFFFFFFF, key)


@triton.jit  # type: ignore[untyped-decorator]
def held_keys(scores_ptr: tl.tensor, count: tl.tensor, HOLD: tl.constexpr) -> tl.tensor:
    """The keys of the first `count` scores, at most HOLD of them, for the registers; 0 behind them."""
    position = tl.arange(0, HOLD)
    score = tl.load(scores_ptr + position, mask=position < count, other=0.0)
    return tl.where(position < count, ordered_keys(score), 0)


@triton.jit  # type: ignore[untyped-decorator]
def count_reaching(
    keys: tl.tensor,
    scores_ptr: tl.tensor,
    count: tl.tensor,
    trial: tl.tensor,
    HELD: tl.constexpr,
    TILE: tl.constexpr,
) -> tl.tensor:
    """How many of the first `count` keys are at least `trial`, which is above 0.

    HELD: they are `keys`, 0 behind them. Otherwise they are those of the scores at `scores_ptr`, read again each time.
    """
    if HELD:
        found = tl.sum((keys >= trial).to(tl.int32), axis=0)
    else:
        reaching = tl.zeros([TILE], tl.int32)
        for first in range(0, count, TILE):
            position = first + tl.arange(0, TILE)
            key = ordered_keys(tl.load(scores_ptr + position, mask=position < count, other=0.0))
            reaching += ((key >= trial) & (position < count)).to(tl.int32)
        found = tl.sum(reaching, axis=0)
    return found


@triton.jit  # type: ignore[untyped-decorator]
def kth_highest(
    keys: tl.tensor,
    scores_ptr: tl.tensor,
    count: tl.tensor,
    rank: tl.tensor,
    HELD: tl.constexpr,
    TILE: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """The highest key that at least `rank` of the first `count` keys reach, and how many do; rank is at most count.

    Bits that need not be decided stay 0: it stops once exactly `rank` keys reach it.
    `keys`, `scores_ptr`, HELD: as `count_reaching` has them.
    """
    key = tl.zeros([], tl.uint32)
    one = key + 1
    reaching = count
    bit = 31
    while (bit >= 0) & (reaching != rank):
        trial = key | (one << bit)
        hits = count_reaching(keys, scores_ptr, count, trial, HELD, TILE)
        key = tl.where(hits >= rank, trial, key)
        reaching = tl.where(hits >= rank, hits, reaching)
        bit -= 1
    return key, reaching


@triton.jit  # type: ignore[untyped-decorator]
def threshold_and_ties(
    keys: tl.tensor,
    scores_ptr: tl.tensor,
    count: tl.tensor,
    slots: tl.tensor,
    HELD: tl.constexpr,
    TILE: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """A key such that those above it and `ties` of those at it fill the slots, and `ties`; count is at least slots."""
    threshold, reaching = kth_highest(keys, scores_ptr, count, slots, HELD, TILE)
    ties = reaching * 0 + slots
    if reaching > slots:
        # Every bit is decided: of the scores at the threshold, only some fit. Nothing is above the highest key.
        above = count_reaching(keys, scores_ptr, count, threshold + 1, HELD, TILE)
        ties = slots - tl.where(threshold == 0xFFFFFFFF, 0, above)
    return threshold, ties
