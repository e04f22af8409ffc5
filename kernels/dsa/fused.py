"""Flags and mask in one kernel: each program flags the candidates of its own run of blocks, then masks that run.

A run's flags are private to its program, so a barrier within the program is all that separates setting from reading
them; they never leave the caches. What it costs is that every program of a row reads all of its candidates.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from profkit.kernels.dsa.bounds import live_blocks, live_range, num_blocks
from profkit.kernels.dsa.flags import (
    clear_flags,
    clear_step,
    edge_slot,
    empty_flags,
    load_candidates,
    run_of_blocks,
    set_flags,
)
from profkit.kernels.dsa.mask import can_vectorise, mask_tile, tile_flags, whole_vectors
from profkit.kernels.dsa.programs import ProgramPolicy


@dataclass(frozen=True)
class FusedLaunch:
    """How the one kernel is launched.

    Args:
        programs: programs a row, each with a run of blocks of its own.
        least_run: the fewest blocks a program, a multiple of 16: every program reads all candidates of its row.
        tile: columns that a program masks at once, a power of two.
        warps: warps a program.
        candidate_step: candidates read at once, a power of two.
    """

    programs: ProgramPolicy
    least_run: int
    tile: int
    warps: int
    candidate_step: int


def tuned_fused(rows: int) -> FusedLaunch:
    """The launch that is used where none is given: runs are the longer, the more of the device rows alone fill.

    On an H200 256 full rows of 8192 columns so take 3.5 us instead of 5.4.
    """
    least_run = 256 if rows < 32 else 512 if rows < 128 else 1024
    policy = ProgramPolicy(floor=1, total=1024)
    return FusedLaunch(policy, least_run=least_run, tile=4096, warps=4, candidate_step=2048)


# Not told that slots are adjacent, each thread loads one candidate at a time. A wider load would be no faster, and its
# candidates would have to be exchanged between threads before their flags are stored. The other numbers align nothing.
@triton.jit(do_not_specialize=["candidates_stride_slot", "slots", "width", "edge"])  # type: ignore[untyped-decorator]
def flag_and_mask_kernel(
    logits_ptr: tl.tensor,
    flags_ptr: tl.tensor,
    candidates_ptr: tl.tensor,
    starts_ptr: tl.tensor,
    ends_ptr: tl.tensor,
    stride_row: tl.tensor,
    stride_col: tl.tensor,
    flags_stride_row: tl.tensor,
    candidates_stride_row: tl.tensor,
    candidates_stride_slot: tl.tensor,
    slots: tl.tensor,
    width: tl.tensor,
    edge: tl.tensor,
    row_repeat: tl.tensor,
    HAS_STARTS: tl.constexpr,
    BS: tl.constexpr,
    TILE: tl.constexpr,
    VECTOR: tl.constexpr,
    LEAST_RUN: tl.constexpr,
    CLEAR_STEP: tl.constexpr,
    STEP: tl.constexpr,
) -> None:
    """One run of a row's live blocks, and every num_programs(1)-th tile of the columns before its start."""
    row = tl.program_id(0).to(tl.int64)
    start, limit = live_range(starts_ptr, ends_ptr, row_repeat, width, HAS_STARTS)
    blocks = live_blocks(start, limit, BS)
    first, stop = run_of_blocks(blocks, LEAST_RUN)
    row_ptr = logits_ptr + row * stride_row
    row_flags_ptr = flags_ptr + row * flags_stride_row
    if HAS_STARTS:
        before = tl.minimum(start, limit)
        for tile in range(tl.program_id(1), tl.cdiv(before, TILE), tl.num_programs(1)):
            mask_tile(
                row_ptr,
                stride_col,
                row_flags_ptr,
                tl.zeros([TILE], tl.uint8),
                edge,
                tile * TILE,
                before,
                start,
                limit,
                width - 1,
                limit,
                BS,
                TILE,
                1,
            )
    if first < stop:
        clear_flags(row_flags_ptr, first, stop, edge, stop == blocks, CLEAR_STEP)
        candidates_ptr += row * candidates_stride_row
        set_flags(
            row_flags_ptr,
            load_candidates(candidates_ptr, candidates_stride_slot, 0, slots, STEP),
            *(candidates_ptr, candidates_stride_slot, slots),
            *(first, stop, tl.cdiv(width - start, BS), edge, stop == blocks),
            STEP,
        )
        tl.debug_barrier()
        stop_vector = tl.cdiv(tl.minimum(start + stop * BS, limit), VECTOR)
        first_vector = start + first * BS if HAS_STARTS else first * (BS // VECTOR)
        live = tl.minimum(whole_vectors(limit, width, VECTOR), stop_vector)
        for vector in range(first_vector, stop_vector, TILE // VECTOR):
            mask_tile(
                row_ptr,
                stride_col,
                row_flags_ptr,
                tile_flags(row_flags_ptr, vector, live, start, BS, TILE, VECTOR),
                edge,
                vector,
                stop_vector,
                start,
                limit,
                width - 1,
                limit,
                BS,
                TILE,
                VECTOR,
            )


def flag_and_mask(
    logits: torch.Tensor,
    candidates: torch.Tensor,
    starts: torch.Tensor | None,
    ends: torch.Tensor,
    block_size: int,
    row_repeat: int = 1,
    launch: FusedLaunch | None = None,
) -> None:
    """Set the live columns that are in no candidate's block to -inf, and those before the start: one kernel.

    Args:
        logits, candidates, starts, ends, block_size, row_repeat: see `bounds.check_rows`.
        launch: `tuned_fused` where none is given.
    """
    rows, width = logits.shape
    launch = launch or tuned_fused(rows)
    blocks = num_blocks(width, block_size)
    flags = empty_flags(rows, width, block_size, logits.device)
    grid = (rows, launch.programs.row_programs(rows, -(-blocks // launch.least_run)), 1)
    flag_and_mask_kernel[grid](
        *(logits, flags, candidates, starts, ends, *logits.stride(), flags.stride(0), *candidates.stride()),
        *(candidates.shape[1], width, edge_slot(blocks), row_repeat),
        HAS_STARTS=starts is not None,
        BS=block_size,
        TILE=launch.tile,
        VECTOR=4 if can_vectorise(logits, starts, block_size) else 1,
        LEAST_RUN=launch.least_run,
        CLEAR_STEP=clear_step(launch.warps),
        STEP=launch.candidate_step,
        num_warps=launch.warps,
    )
