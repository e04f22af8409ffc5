"""A top-k that reads the live blocks only: one kernel, one program a row.

torch.topk reads every score of a row several times, however few of them belong to live blocks, and takes a dozen
kernels. Here a program finds its row's k-th highest score bit by bit, counting the scores that reach each trial value.
A long row is first cut down to few: a sample gives a pivot that somewhat more than k scores should reach, and one pass
keeps those that do. Where the sample misled, the search runs over the whole row: slower, and as exact. A row with at
most k blocks needs no search at all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from profkit.kernels.dsa.bounds import scored_blocks


@dataclass(frozen=True)
class TopkLaunch:
    """How the bounded top-k is launched.

    Args:
        tile: scores that a program reads at once, a power of two of at most 16,384.
        warps: warps a program.
        capacity: a row of more blocks than this is cut down to at most so many; at least 4 times k is used.
        sample: scores of a long row that the pivot is taken from, at most the capacity.
    """

    tile: int
    warps: int
    capacity: int
    sample: int


TUNED_TOPK = TopkLaunch(tile=4096, warps=16, capacity=8192, sample=2048)

#: The lowest bit of a score that the pivot decides: sign, exponent and seven bits of the mantissa are enough.
_PIVOT_BIT = 16


@triton.jit  # type: ignore[untyped-decorator]
def ordered_keys(score: tl.tensor) -> tl.tensor:
    """uint32 keys in the order of the scores: -inf lowest, every NaN highest, as torch.topk has it."""
    bits = score.to(tl.uint32, bitcast=True)
    negative = score.to(tl.int32, bitcast=True) < 0
    key = tl.where(negative, bits ^ 0xFFFFFFFF, bits ^ 0x80000000)
    return tl.where(score != score, 0xFFFFFFFF, key)


@triton.jit  # type: ignore[untyped-decorator]
def count_reaching(scores_ptr: tl.tensor, count: tl.tensor, trial: tl.tensor, TILE: tl.constexpr) -> tl.tensor:
    """How many of the first `count` keys are at least `trial`."""
    reaching = tl.zeros([TILE], tl.int32)
    for first in range(0, count, TILE):
        position = first + tl.arange(0, TILE)
        key = ordered_keys(tl.load(scores_ptr + position, mask=position < count, other=0.0))
        reaching += ((key >= trial) & (position < count)).to(tl.int32)
    return tl.sum(reaching, axis=0)


@triton.jit  # type: ignore[untyped-decorator]
def kth_highest(
    scores_ptr: tl.tensor, count: tl.tensor, rank: tl.tensor, LAST_BIT: tl.constexpr, TILE: tl.constexpr
) -> tuple[tl.tensor, tl.tensor]:
    """The highest key that at least `rank` of the first `count` keys reach, and how many do; rank is at most count.

    Bits below LAST_BIT stay 0, and so do all that need not be decided: it stops once exactly `rank` keys reach it.
    """
    key = tl.zeros([], tl.uint32)
    one = key + 1
    reaching = count
    bit = 31
    while (bit >= LAST_BIT) & (reaching != rank):
        trial = key | (one << bit)
        hits = count_reaching(scores_ptr, count, trial, TILE)
        key = tl.where(hits >= rank, trial, key)
        reaching = tl.where(hits >= rank, hits, reaching)
        bit -= 1
    return key, reaching


@triton.jit  # type: ignore[untyped-decorator]
def sample_pivot(
    scores_ptr: tl.tensor,
    blocks: tl.tensor,
    target: tl.tensor,
    sample_ptr: tl.tensor,
    LAST_BIT: tl.constexpr,
    SAMPLE: tl.constexpr,
    TILE: tl.constexpr,
) -> tl.tensor:
    """A key that about `target` of the row's scores reach, judged by SAMPLE of them at equal distances."""
    step = blocks // SAMPLE
    for first in range(0, SAMPLE, TILE):
        position = first + tl.arange(0, TILE)
        score = tl.load(scores_ptr + position * step + step // 2, mask=position < SAMPLE)
        tl.store(sample_ptr + position, score, mask=position < SAMPLE)
    tl.debug_barrier()
    rank = tl.minimum(tl.cdiv(target, step), SAMPLE)
    pivot, _ = kth_highest(sample_ptr, SAMPLE, rank, LAST_BIT, TILE)
    tl.debug_barrier()
    return pivot


@triton.jit  # type: ignore[untyped-decorator]
def keep_reaching(
    scores_ptr: tl.tensor,
    first: tl.tensor,
    blocks: tl.tensor,
    pivot: tl.tensor,
    kept: tl.tensor,
    kept_scores_ptr: tl.tensor,
    kept_blocks_ptr: tl.tensor,
    CAPACITY: tl.constexpr,
    TILE: tl.constexpr,
    WHOLE: tl.constexpr,
) -> tl.tensor:
    """Append to the `kept` scores those of one tile that reach the pivot, in order; the new number, past CAPACITY too.

    WHOLE promises that all of the tile's blocks exist.
    """
    block = first + tl.arange(0, TILE)
    score = tl.load(scores_ptr + block) if WHOLE else tl.load(scores_ptr + block, mask=block < blocks, other=0.0)
    reaches = ordered_keys(score) >= pivot
    if not WHOLE:
        reaches = reaches & (block < blocks)
    ones = reaches.to(tl.int32)
    slot = kept + tl.cumsum(ones, axis=0) - ones
    tl.store(kept_scores_ptr + slot, score, mask=reaches & (slot < CAPACITY))
    tl.store(kept_blocks_ptr + slot, block, mask=reaches & (slot < CAPACITY))
    return kept + tl.sum(ones, axis=0)


@triton.jit  # type: ignore[untyped-decorator]
def write_candidates(
    scores_ptr: tl.tensor,
    blocks_ptr: tl.tensor,
    numbered: tl.tensor,
    count: tl.tensor,
    threshold: tl.tensor,
    ties: tl.tensor,
    out_ptr: tl.tensor,
    stride_slot: tl.tensor,
    slots: tl.tensor,
    TILE: tl.constexpr,
) -> None:
    """List the blocks whose key is above the threshold, and the first `ties` of those at it, in order; then -1.

    The block at a position is read from `blocks_ptr` for the first `numbered` positions, and is the position itself
    elsewhere. Scores of -inf are never listed.
    """
    above, equal = count * 0, count * 0
    for first in range(0, count, TILE):
        position = first + tl.arange(0, TILE)
        score = tl.load(scores_ptr + position, mask=position < count, other=float("-inf"))
        number = tl.load(blocks_ptr + position, mask=position < numbered, other=0)
        block = tl.where(position < numbered, number, position)
        key = ordered_keys(score)
        is_above = ((score != float("-inf")) & (key > threshold)).to(tl.int32)
        is_equal = ((score != float("-inf")) & (key == threshold)).to(tl.int32)
        # One scan counts both: in a tile each count stays below 2^16.
        both = is_above + (is_equal << 16)
        before = tl.cumsum(both, axis=0) - both
        equal_before = equal + (before >> 16)
        listed = (is_above > 0) | ((is_equal > 0) & (equal_before < ties))
        slot = above + (before & 0xFFFF) + tl.minimum(equal_before, ties)
        tl.store(out_ptr + slot * stride_slot, block, mask=listed & (slot < slots))
        total = tl.sum(both, axis=0)
        above += total & 0xFFFF
        equal += total >> 16
    for first in range(above + tl.minimum(equal, ties), slots, TILE):
        slot = first + tl.arange(0, TILE)
        tl.store(out_ptr + slot * stride_slot, tl.full([TILE], -1, tl.int32), mask=slot < slots)


# Only num_blocks aligns an access. The others are kept out of the specialisation, and the block size is no constant:
# this kernel takes seconds to compile.
@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=[
        *("width", "row_repeat", "block_size", "slots", "target"),
        *("out_stride_row", "out_stride_slot"),
    ]
)
def topk_live_kernel(
    scores_ptr: tl.tensor,
    starts_ptr: tl.tensor,
    ends_ptr: tl.tensor,
    out_ptr: tl.tensor,
    kept_scores_ptr: tl.tensor,
    kept_blocks_ptr: tl.tensor,
    width: tl.tensor,
    num_blocks: tl.tensor,
    row_repeat: tl.tensor,
    block_size: tl.tensor,
    slots: tl.tensor,
    target: tl.tensor,
    out_stride_row: tl.tensor,
    out_stride_slot: tl.tensor,
    HAS_STARTS: tl.constexpr,
    CAPACITY: tl.constexpr,
    SAMPLE: tl.constexpr,
    PIVOT_BIT: tl.constexpr,
    TILE: tl.constexpr,
) -> None:
    """One row: the blocks of its highest scores in ascending order, then -1."""
    row = tl.program_id(0).to(tl.int64)
    _, _, blocks, _ = scored_blocks(starts_ptr, ends_ptr, row_repeat, width, num_blocks, HAS_STARTS, block_size)
    source_ptr = scores_ptr + row * num_blocks
    row_scores_ptr = kept_scores_ptr + row * CAPACITY
    row_blocks_ptr = kept_blocks_ptr + row * CAPACITY
    count = blocks
    numbered = blocks * 0
    if blocks > CAPACITY:
        pivot = sample_pivot(source_ptr, blocks, target, row_scores_ptr, PIVOT_BIT, SAMPLE, TILE)
        kept = blocks * 0
        whole = blocks // TILE * TILE
        for first in range(0, whole, TILE):
            kept = keep_reaching(
                source_ptr, first, blocks, pivot, kept, row_scores_ptr, row_blocks_ptr, CAPACITY, TILE, True
            )
        if whole < blocks:
            kept = keep_reaching(
                source_ptr, whole, blocks, pivot, kept, row_scores_ptr, row_blocks_ptr, CAPACITY, TILE, False
            )
        tl.debug_barrier()
        if (kept >= slots) & (kept <= CAPACITY):
            source_ptr = row_scores_ptr
            count = kept
            numbered = kept

    threshold = tl.zeros([], tl.uint32)
    ties = blocks * 0 + slots
    if count > slots:
        threshold, reaching = kth_highest(source_ptr, count, slots, 0, TILE)
        if reaching > slots:
            # Every bit is decided: of the scores at the threshold, only some fit. Nothing is above the highest key.
            above = tl.where(threshold == 0xFFFFFFFF, 0, count_reaching(source_ptr, count, threshold + 1, TILE))
            ties = slots - above
    write_candidates(
        source_ptr,
        row_blocks_ptr,
        numbered,
        count,
        threshold,
        ties,
        out_ptr + row * out_stride_row,
        out_stride_slot,
        slots,
        TILE,
    )


def topk_live(
    scores: torch.Tensor,
    starts: torch.Tensor | None,
    ends: torch.Tensor,
    out: torch.Tensor,
    width: int,
    block_size: int,
    row_repeat: int = 1,
    launch: TopkLaunch = TUNED_TOPK,
) -> None:
    """The blocks with the K highest scores of every row, never one that scores -inf: one kernel.

    The set is torch.topk's, NaN above +inf; where several blocks tie for the last slots, the first of them are taken.
    The list is in ascending order of blocks, not of scores.

    Args:
        scores: ``[R, ceil(W / BS)]`` fp32, contiguous, as `scores.block_scores` writes them.
        starts, ends, row_repeat, block_size: those that the scores were made with.
        out: ``[R, K]`` int32, any strides; -1 behind the last candidate.
        width: W, the columns of the logits.
    """
    rows, slots = out.shape
    capacity = max(launch.capacity, 4 * slots)
    kept_scores = torch.empty(rows, capacity, dtype=torch.float32, device=scores.device)
    kept_blocks = torch.empty(rows, capacity, dtype=torch.int32, device=scores.device)
    # Between too few and too many, by the same factor from either.
    target = math.isqrt(slots * capacity)
    topk_live_kernel[(rows, 1, 1)](
        *(scores, starts, ends, out, kept_scores, kept_blocks),
        *(width, scores.shape[1], row_repeat, block_size, slots, target, *out.stride()),
        HAS_STARTS=starts is not None,
        CAPACITY=capacity,
        SAMPLE=launch.sample,
        PIVOT_BIT=_PIVOT_BIT,
        TILE=launch.tile,
        num_warps=launch.warps,
    )
