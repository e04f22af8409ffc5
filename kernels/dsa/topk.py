"""A top-k that reads the live blocks only: radix selection within one program a row, then a compaction.

torch.topk reads every score of a row several times, however few of them belong to live blocks, and takes several
kernels. Here one program a row finds the k-th highest score digit by digit: a histogram of the digit over the scores
that share the digits found so far says which value the next one has, and it stops once the remaining scores are exactly
those still needed. A row with at most k blocks needs no search at all.
"""

from __future__ import annotations

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
        digit_bits: bits of a score that one pass over the row decides, 1 to 8. A histogram's cost grows with its bins.
    """

    tile: int
    warps: int
    digit_bits: int


TUNED_TOPK = TopkLaunch(tile=4096, warps=16, digit_bits=5)


@triton.jit  # type: ignore[untyped-decorator]
def ordered_keys(score: tl.tensor) -> tl.tensor:
    """uint32 keys in the order of the scores: -inf lowest, every NaN highest, as torch.topk has it."""
    bits = score.to(tl.uint32, bitcast=True)
    negative = score.to(tl.int32, bitcast=True) < 0
    key = tl.where(negative, bits ^ 0xFFFFFFFF, bits ^ 0x80000000)
    return tl.where(score != score, 0xFFFFFFFF, key)


@triton.jit  # type: ignore[untyped-decorator]
def digit_counts(
    scores_ptr: tl.tensor,
    blocks: tl.tensor,
    prefix: tl.tensor,
    decided: tl.tensor,
    shift: tl.tensor,
    TILE: tl.constexpr,
    BINS: tl.constexpr,
) -> tl.tensor:
    """How often each value of the digit at `shift` occurs among the keys that equal `prefix` in the decided bits."""
    counts = tl.zeros([BINS], tl.int32)
    for first in range(0, blocks, TILE):
        block = first + tl.arange(0, TILE)
        key = ordered_keys(tl.load(scores_ptr + block, mask=block < blocks, other=0.0))
        digit = ((key >> shift) & (BINS - 1)).to(tl.int32)
        counts += tl.histogram(digit, BINS, mask=(block < blocks) & ((key & decided) == prefix))
    return counts


@triton.jit  # type: ignore[untyped-decorator]
def topk_live_kernel(
    scores_ptr: tl.tensor,
    starts_ptr: tl.tensor,
    ends_ptr: tl.tensor,
    out_ptr: tl.tensor,
    width: tl.tensor,
    num_blocks: tl.tensor,
    row_repeat: tl.tensor,
    slots: tl.tensor,
    out_stride_row: tl.tensor,
    out_stride_slot: tl.tensor,
    HAS_STARTS: tl.constexpr,
    BS: tl.constexpr,
    TILE: tl.constexpr,
    DIGIT_BITS: tl.constexpr,
) -> None:
    """One row: the blocks of its highest scores, in two ascending runs (above the k-th score, equal to it), then -1."""
    row = tl.program_id(0).to(tl.int64)
    _, _, blocks, _ = scored_blocks(starts_ptr, ends_ptr, row_repeat, width, num_blocks, HAS_STARTS, BS)
    scores_ptr += row * num_blocks
    out_ptr += row * out_stride_row
    BINS: tl.constexpr = 1 << DIGIT_BITS
    LAST_SHIFT: tl.constexpr = ((32 + DIGIT_BITS - 1) // DIGIT_BITS - 1) * DIGIT_BITS

    # Keys above `prefix` in the decided bits are in; of those equal to it, `needed` are.
    prefix = tl.zeros([], tl.uint32)
    decided = tl.zeros([], tl.uint32)
    needed = slots
    shift = LAST_SHIFT
    searching = blocks > slots
    while searching:
        counts = digit_counts(scores_ptr, blocks, prefix, decided, shift, TILE, BINS)
        at_least = tl.cumsum(counts, axis=0, reverse=True)
        digit = tl.sum((at_least >= needed).to(tl.int32), axis=0) - 1
        value = tl.arange(0, BINS)
        equal = tl.sum(tl.where(value == digit, counts, 0), axis=0)
        needed -= tl.sum(tl.where(value > digit, counts, 0), axis=0)
        prefix = prefix | (digit.to(tl.uint32) << shift)
        decided = decided | ((decided * 0 + (BINS - 1)) << shift)
        searching = (equal != needed) & (shift > 0)
        shift -= DIGIT_BITS

    # Without a search every key equals the prefix in no decided bit, and all fit.
    above = slots - needed
    equal = above * 0
    written_above = above * 0
    for first in range(0, blocks, TILE):
        block = first + tl.arange(0, TILE)
        score = tl.load(scores_ptr + block, mask=block < blocks, other=float("-inf"))
        key = ordered_keys(score) & decided
        is_above = ((score != float("-inf")) & (key > prefix)).to(tl.int32)
        is_equal = ((score != float("-inf")) & (key == prefix)).to(tl.int32)
        # One scan counts both: each count stays below 2^16.
        both = is_above + (is_equal << 16)
        before = tl.cumsum(both, axis=0) - both
        slot_above = written_above + (before & 0xFFFF)
        slot_equal = above + equal + (before >> 16)
        slot = tl.where(is_above > 0, slot_above, slot_equal)
        kept = (is_above > 0) | ((is_equal > 0) & (slot_equal < slots))
        tl.store(out_ptr + slot * out_stride_slot, block, mask=kept)
        total = tl.sum(both, axis=0)
        written_above += total & 0xFFFF
        equal += total >> 16

    filled = tl.minimum(above + equal, slots)
    for first in range(filled, slots, TILE):
        slot = first + tl.arange(0, TILE)
        tl.store(out_ptr + slot * out_stride_slot, tl.full([TILE], -1, tl.int32), mask=slot < slots)


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
    The list is not in order of score.

    Args:
        scores: ``[R, ceil(W / BS)]`` fp32, contiguous, as `scores.block_scores` writes them.
        starts, ends, row_repeat, block_size: those that the scores were made with.
        out: ``[R, K]`` int32, any strides; -1 behind the last candidate.
        width: W, the columns of the logits.
    """
    rows, slots = out.shape
    topk_live_kernel[(rows, 1, 1)](
        *(scores, starts, ends, out, width, scores.shape[1], row_repeat, slots, *out.stride()),
        HAS_STARTS=starts is not None,
        BS=block_size,
        TILE=launch.tile,
        DIGIT_BITS=launch.digit_bits,
        num_warps=launch.warps,
    )
