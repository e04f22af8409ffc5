"""The live-range flags without their clear, which is what the clear is measured against. Its flags are of no use."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from profkit.kernels.dsa.bounds import live_blocks, live_range, num_blocks
from profkit.kernels.dsa.flags import TUNED_FLAGS, edge_slot, load_candidates, run_of_blocks, set_flags


@triton.jit(do_not_specialize=["candidates_stride_slot", "slots", "width", "edge"])  # type: ignore[untyped-decorator]
def set_flags_kernel(
    flags_ptr: tl.tensor,
    candidates_ptr: tl.tensor,
    ends_ptr: tl.tensor,
    flags_stride_row: tl.tensor,
    candidates_stride_row: tl.tensor,
    candidates_stride_slot: tl.tensor,
    slots: tl.tensor,
    width: tl.tensor,
    edge: tl.tensor,
    BS: tl.constexpr,  # noqa: N803
    LEAST_RUN: tl.constexpr,  # noqa: N803
    STEP: tl.constexpr,  # noqa: N803
) -> None:
    """As `flags_live_kernel` for rows without starts, but that nothing is cleared and nobody waits for it."""
    row = tl.program_id(0).to(tl.int64)
    candidates_ptr += row * candidates_stride_row
    owns_edge = tl.program_id(1) == 0
    block = load_candidates(candidates_ptr, candidates_stride_slot, 0, tl.where(owns_edge, slots, 0), STEP)
    start, limit = live_range(None, ends_ptr, 1, width, False)
    first, stop = run_of_blocks(live_blocks(start, limit, BS), LEAST_RUN)
    if (first < stop) | owns_edge:
        if not owns_edge:
            block = load_candidates(candidates_ptr, candidates_stride_slot, 0, slots, STEP)
        set_flags(
            *(flags_ptr + row * flags_stride_row, block, candidates_ptr, candidates_stride_slot, slots),
            *(first, stop, tl.cdiv(width, BS), edge, owns_edge),
            STEP,
        )


def set_flags_only(
    flags: torch.Tensor, candidates: torch.Tensor, ends: torch.Tensor, width: int, block_size: int
) -> None:
    """One launch of it, as `flags.flag_candidates` would launch."""
    rows, slots = candidates.shape
    blocks, launch = num_blocks(width, block_size), TUNED_FLAGS
    grid = (rows, launch.programs.row_programs(rows, -(-blocks // launch.least_run)), 1)
    set_flags_kernel[grid](
        *(flags, candidates, ends, flags.stride(0), *candidates.stride(), slots, width, edge_slot(blocks)),
        BS=block_size,
        LEAST_RUN=launch.least_run,
        STEP=launch.candidate_step,
        num_warps=launch.warps,
    )
