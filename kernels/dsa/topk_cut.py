"""Cutting a long row of scores down to few before its top-k: one kernel, several programs a row.

Each program takes a run of the row's blocks. All programs of a row sample the same scores and so find the same pivot,
which somewhat more than k scores should reach; each lists those of its run that do, in order, in a part of its own.
"""

from __future__ import annotations

import math

import triton
import triton.language as tl

from profkit.kernels.dsa.bounds import scored_blocks
from profkit.kernels.dsa.topk_search import kth_highest, ordered_keys

#: Standard deviations between the target and either bound. Beyond five lie fewer than one row in a million.
_LEAST_SPREAD = 5.0


def cut_target(slots: int, capacity: int) -> int:
    """How many scores of a row the pivot aims for: too few are then about as improbable as too many.

    Assumed is that scores do not depend on their position, so that the sampled ones are a random choice. Of the x
    highest scores the sample then has about Poisson many, ``m(x) = x * sample / blocks`` on average; the square root of
    that number has a standard deviation of 1/2. A pivot of rank r in the sample keeps too few where the sample has r of
    the highest ``slots - 1``, and too many where it has fewer than r of the highest ``capacity + 1``. In the middle,
    ``sqrt(r) = (sqrt(m(slots)) + sqrt(m(capacity))) / 2``.
    """
    return round(((math.sqrt(slots) + math.sqrt(capacity)) / 2) ** 2)


def spread(sample: int, blocks: int, slots: int, capacity: int) -> float:
    """Standard deviations from the target to either bound, under the assumption of `cut_target`."""
    return math.sqrt(sample / blocks) * (math.sqrt(capacity) - math.sqrt(slots))


def sample_size(least: int, blocks: int, slots: int, capacity: int) -> int:
    """Scores to sample of rows of up to `blocks`: `least`, doubled up to `capacity` until the spread is enough."""
    sample = least
    while 2 * sample <= capacity and spread(sample, blocks, slots, capacity) < _LEAST_SPREAD:
        sample *= 2
    return sample


@triton.jit  # type: ignore[untyped-decorator]
def sample_pivot(scores_ptr: tl.tensor, blocks: tl.tensor, target: tl.tensor, SAMPLE: tl.constexpr) -> tl.tensor:
    """A key that about `target` of the row's scores reach, judged by SAMPLE of them spread evenly over the row.

    Exact to the last bit that the sample decides: a rounded key could be reached by thousands more.
    """
    position = (2 * tl.arange(0, SAMPLE).to(tl.int64) + 1) * blocks // (2 * SAMPLE)
    keys = ordered_keys(tl.load(scores_ptr + position))
    rank = tl.cdiv(target.to(tl.int64) * SAMPLE, blocks).to(tl.int32)
    pivot, _ = kth_highest(keys, scores_ptr, rank * 0 + SAMPLE, rank, True, SAMPLE)
    return pivot


@triton.jit  # type: ignore[untyped-decorator]
def keep_reaching(
    scores_ptr: tl.tensor,
    first: tl.tensor,
    stop: tl.tensor,
    pivot: tl.tensor,
    kept: tl.tensor,
    part_scores_ptr: tl.tensor,
    part_blocks_ptr: tl.tensor,
    part_capacity: tl.tensor,
    TILE: tl.constexpr,
    WHOLE: tl.constexpr,
) -> tl.tensor:
    """Append those scores of one tile that reach the pivot to the `kept` ones, in order; the new number of them.

    The number counts on past the capacity; what does not fit is not stored. WHOLE promises that all of the tile's
    blocks lie before `stop`.
    """
    block = first + tl.arange(0, TILE)
    score = tl.load(scores_ptr + block) if WHOLE else tl.load(scores_ptr + block, mask=block < stop, other=0.0)
    reaches = ordered_keys(score) >= pivot
    if not WHOLE:
        reaches = reaches & (block < stop)
    ones = reaches.to(tl.int32)
    slot = kept + tl.cumsum(ones, axis=0) - ones
    tl.store(part_scores_ptr + slot, score, mask=reaches & (slot < part_capacity))
    tl.store(part_blocks_ptr + slot, block, mask=reaches & (slot < part_capacity))
    return kept + tl.sum(ones, axis=0)


# Only num_blocks aligns an access. The others are kept out of the specialisation, and the block size is no constant:
# other shapes need no other kernel.
@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["width", "row_repeat", "block_size", "target", "capacity", "part_capacity"]
)
def topk_cut_kernel(
    scores_ptr: tl.tensor,
    starts_ptr: tl.tensor,
    ends_ptr: tl.tensor,
    part_scores_ptr: tl.tensor,
    part_blocks_ptr: tl.tensor,
    counts_ptr: tl.tensor,
    width: tl.tensor,
    num_blocks: tl.tensor,
    row_repeat: tl.tensor,
    block_size: tl.tensor,
    target: tl.tensor,
    capacity: tl.tensor,
    part_capacity: tl.tensor,
    HAS_STARTS: tl.constexpr,
    SAMPLE: tl.constexpr,
    TILE: tl.constexpr,
) -> None:
    """One run of a row of more than `capacity` blocks: its scores that reach the pivot, and how many they are."""
    row = tl.program_id(0).to(tl.int64)
    _, _, blocks, _ = scored_blocks(starts_ptr, ends_ptr, row_repeat, width, num_blocks, HAS_STARTS, block_size)
    if blocks > capacity:
        part = row * tl.num_programs(1) + tl.program_id(1)
        run = tl.cdiv(tl.cdiv(blocks, tl.num_programs(1)), TILE) * TILE
        first = tl.minimum(tl.program_id(1) * run, blocks)
        stop = tl.minimum(first + run, blocks)
        kept = blocks * 0
        if first < stop:
            row_ptr = scores_ptr + row * num_blocks
            pivot = sample_pivot(row_ptr, blocks, target, SAMPLE)
            scores_out, blocks_out = part_scores_ptr + part * part_capacity, part_blocks_ptr + part * part_capacity
            whole = first + (stop - first) // TILE * TILE
            for tile in range(first, whole, TILE):
                kept = keep_reaching(
                    row_ptr, tile, stop, pivot, kept, scores_out, blocks_out, part_capacity, TILE, True
                )
            if whole < stop:
                kept = keep_reaching(
                    row_ptr, whole, stop, pivot, kept, scores_out, blocks_out, part_capacity, TILE, False
                )
        tl.store(counts_ptr + part, kept)
