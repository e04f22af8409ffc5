"""A top-k that reads the live blocks only: one kernel where rows are short, two where they may be long.

torch.topk reads every score of a row several times, however few of them belong to live blocks, and takes a dozen
kernels. Here one program a row finds its k-th highest score bit by bit, counting the scores that reach each trial
value, and lists what is above it. A long row is first cut down to few by several programs (`topk_cut`), so that the
search holds its scores in registers. Where the sample behind the cut misled, the search reads the whole row again and
again: slower, and as exact. A row with at most k blocks needs no search at all.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from profkit.kernels.dsa.bounds import scored_blocks
from profkit.kernels.dsa.programs import ProgramPolicy
from profkit.kernels.dsa.topk_cut import cut_target, sample_size, topk_cut_kernel
from profkit.kernels.dsa.topk_search import held_keys, ordered_keys, threshold_and_ties


@dataclass(frozen=True)
class TopkLaunch:
    """How the bounded top-k is launched.

    Args:
        programs: programs a row that cut it down, where it may be long.
        cut_tile, tile: scores that a program reads at once, where it cuts and where it searches: powers of two of at
            most 16,384.
        warps: warps a program.
        capacity: a row of more blocks than this is cut down to at most so many; at least 4 times k is used.
        sample: the fewest scores of a long row that the pivot is taken from, a power of two of at most the capacity;
            see `topk_cut.sample_size`.
    """

    programs: ProgramPolicy
    cut_tile: int
    tile: int
    warps: int
    capacity: int
    sample: int


#: On an H200. Several programs cut a row, since one that walked 131,072 scores took 258 us. The search's tile is
#: smaller than the cut's: a short row wastes less of it (1024 rows with 512 live columns gain 28 to 33 %), while rows
#: of exactly 8192 live scores, the most that are not cut, are 6 % slower up to 52 rows of 131,072 columns.
TUNED_TOPK = TopkLaunch(
    ProgramPolicy(floor=1, total=256), cut_tile=2048, tile=1024, warps=8, capacity=8192, sample=2048
)

#: The most scores that a program holds in registers.
_MOST_HELD = 1 << 14
#: Scores that a thread moves in one step, when what the programs of a row kept is put together.
_GATHERED_PER_THREAD = 8


@triton.jit  # type: ignore[untyped-decorator]
def gather_parts(
    part_scores_ptr: tl.tensor,
    part_blocks_ptr: tl.tensor,
    counts_ptr: tl.tensor,
    parts: tl.tensor,
    part_capacity: tl.tensor,
    kept_scores_ptr: tl.tensor,
    kept_blocks_ptr: tl.tensor,
    CAPACITY: tl.constexpr,
    PARTS_POW2: tl.constexpr,
    STEP: tl.constexpr,
) -> tl.tensor:
    """Join the parts of a row in order, unless they are more than CAPACITY scores; how many they are."""
    part = tl.arange(0, PARTS_POW2)
    count = tl.load(counts_ptr + part, mask=part < parts, other=0)
    before = tl.cumsum(count, axis=0) - count
    total = tl.sum(count, axis=0)
    if total <= CAPACITY:
        for first in range(0, tl.max(count, axis=0), STEP):
            slot = first + tl.arange(0, STEP)
            source = part[:, None] * part_capacity + slot[None, :]
            target = before[:, None] + slot[None, :]
            inside = slot[None, :] < count[:, None]
            tl.store(kept_scores_ptr + target, tl.load(part_scores_ptr + source, mask=inside), mask=inside)
            tl.store(kept_blocks_ptr + target, tl.load(part_blocks_ptr + source, mask=inside), mask=inside)
        tl.debug_barrier()
    return total


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
        *("width", "row_repeat", "block_size", "slots", "parts", "part_capacity"),
        *("out_stride_row", "out_stride_slot"),
    ]
)
def topk_live_kernel(
    scores_ptr: tl.tensor,
    starts_ptr: tl.tensor,
    ends_ptr: tl.tensor,
    out_ptr: tl.tensor,
    part_scores_ptr: tl.tensor,
    part_blocks_ptr: tl.tensor,
    counts_ptr: tl.tensor,
    kept_scores_ptr: tl.tensor,
    kept_blocks_ptr: tl.tensor,
    width: tl.tensor,
    num_blocks: tl.tensor,
    row_repeat: tl.tensor,
    block_size: tl.tensor,
    slots: tl.tensor,
    parts: tl.tensor,
    part_capacity: tl.tensor,
    out_stride_row: tl.tensor,
    out_stride_slot: tl.tensor,
    HAS_STARTS: tl.constexpr,
    CAPACITY: tl.constexpr,
    CUT: tl.constexpr,
    PARTS_POW2: tl.constexpr,
    STEP: tl.constexpr,
    HOLD: tl.constexpr,
    TILE: tl.constexpr,
) -> None:
    """One row: the blocks of its highest scores in ascending order, then -1.

    CUT says that rows of more than CAPACITY blocks were cut down, into `parts` parts each. Up to HOLD scores are held
    in registers.
    """
    row = tl.program_id(0).to(tl.int64)
    _, _, blocks, _ = scored_blocks(starts_ptr, ends_ptr, row_repeat, width, num_blocks, HAS_STARTS, block_size)
    source_ptr = scores_ptr + row * num_blocks
    row_blocks_ptr = kept_blocks_ptr + row * CAPACITY
    count = blocks
    numbered = blocks * 0
    if CUT:  # noqa: SIM102 - a constant: without it nothing of this is compiled
        if blocks > CAPACITY:
            row_scores_ptr = kept_scores_ptr + row * CAPACITY
            part = row * parts
            kept = gather_parts(
                *(part_scores_ptr + part * part_capacity, part_blocks_ptr + part * part_capacity, counts_ptr + part),
                *(parts, part_capacity, row_scores_ptr, row_blocks_ptr),
                CAPACITY,
                PARTS_POW2,
                STEP,
            )
            if (kept >= slots) & (kept <= CAPACITY):
                source_ptr = row_scores_ptr
                count = kept
                numbered = kept

    threshold = tl.zeros([], tl.uint32)
    ties = blocks * 0 + slots
    if count > slots:
        if count <= HOLD:
            keys = held_keys(source_ptr, count, HOLD)
            threshold, ties = threshold_and_ties(keys, source_ptr, count, slots, True, TILE)
        else:
            threshold, ties = threshold_and_ties(threshold, source_ptr, count, slots, False, TILE)
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
    """The blocks with the K highest scores of every row, never one that scores -inf.

    One kernel, or two where rows have more blocks than the capacity. The set is torch.topk's, NaN above +inf; where
    several blocks tie for the last slots, the first of them are taken. The list is in ascending order of blocks, not of
    scores.

    Args:
        scores: ``[R, ceil(W / BS)]`` fp32, contiguous, as `scores.block_scores` writes them.
        starts, ends, row_repeat, block_size: those that the scores were made with.
        out: ``[R, K]`` int32, any strides; -1 behind the last candidate.
        width: W, the columns of the logits.
    """
    rows, slots = out.shape
    blocks, device = scores.shape[1], scores.device
    capacity = max(launch.capacity, 4 * slots)
    cut = blocks > capacity
    parts = launch.programs.row_programs(rows, triton.cdiv(blocks, launch.cut_tile)) if cut else 1
    # A part holds all of its program's run, or as much as a row may keep.
    longest_run = triton.cdiv(triton.cdiv(blocks, parts), launch.cut_tile) * launch.cut_tile
    part_capacity = min(capacity, longest_run) if cut else 0
    part_scores = torch.empty(rows, parts, part_capacity, dtype=torch.float32, device=device)
    part_blocks = torch.empty(rows, parts, part_capacity, dtype=torch.int32, device=device)
    counts = torch.empty(rows, parts, dtype=torch.int32, device=device)
    kept_scores = torch.empty(rows, capacity if cut else 0, dtype=torch.float32, device=device)
    kept_blocks = torch.empty(rows, capacity if cut else 0, dtype=torch.int32, device=device)
    if cut:
        topk_cut_kernel[(rows, parts, 1)](
            *(scores, starts, ends, part_scores, part_blocks, counts),
            *(width, blocks, row_repeat, block_size, cut_target(slots, capacity), capacity, part_capacity),
            HAS_STARTS=starts is not None,
            SAMPLE=sample_size(launch.sample, blocks, slots, capacity),
            TILE=launch.cut_tile,
            num_warps=launch.warps,
        )
    parts_pow2 = triton.next_power_of_2(parts)
    topk_live_kernel[(rows, 1, 1)](
        *(scores, starts, ends, out, part_scores, part_blocks, counts, kept_scores, kept_blocks),
        *(width, blocks, row_repeat, block_size, slots, parts, part_capacity, *out.stride()),
        HAS_STARTS=starts is not None,
        CAPACITY=capacity,
        CUT=cut,
        PARTS_POW2=parts_pow2,
        STEP=max(1, _GATHERED_PER_THREAD * 32 * launch.warps // parts_pow2),
        HOLD=min(triton.next_power_of_2(capacity), _MOST_HELD),
        TILE=launch.tile,
        num_warps=launch.warps,
    )
