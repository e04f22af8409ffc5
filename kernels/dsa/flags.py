"""The flags: one byte a block that says whether the block is a candidate, in two forms.

A row of flags has a byte for each block and, 16-byte aligned behind them, the edge slot: it is set by candidates that
begin at or past the width, and keeps the last column. Packed rows make such candidates.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from profkit.kernels.dsa.bounds import live_blocks, live_range, num_blocks
from profkit.kernels.dsa.programs import ProgramPolicy

#: Bytes that the full-width form clears in one step, and candidates that it reads in one.
_PR_CLEAR_STEP = 1024
_PR_CANDIDATE_STEP = 1024


@dataclass(frozen=True)
class FlagLaunch:
    """How the live-range flags are launched.

    Args:
        programs: programs a row, each with a run of blocks of its own.
        least_run: the fewest blocks a program, a multiple of 16: every program reads all candidates of its row.
        warps: warps a program.
        candidate_step: candidates read at once, a power of two.
    """

    programs: ProgramPolicy
    least_run: int
    warps: int
    candidate_step: int


TUNED_FLAGS = FlagLaunch(ProgramPolicy(floor=1, total=512), least_run=4096, warps=4, candidate_step=2048)


def edge_slot(blocks: int) -> int:
    """Where the edge slot of a row of `blocks` flags is."""
    return -(-blocks // 16) * 16


def empty_flags(rows: int, width: int, block_size: int, device: torch.device | str) -> torch.Tensor:
    """Uninitialised flags ``[R, edge slot + 16]`` uint8."""
    return torch.empty(rows, edge_slot(num_blocks(width, block_size)) + 16, dtype=torch.uint8, device=device)


@triton.jit  # type: ignore[untyped-decorator]
def load_candidates(
    candidates_ptr: tl.tensor, stride_slot: tl.tensor, base: tl.tensor, stop: tl.tensor, STEP: tl.constexpr
) -> tl.tensor:
    """The candidates in slots ``[base, base + STEP)`` that lie below `stop`, and -1 for the others."""
    slot = base + tl.arange(0, STEP)
    return tl.load(candidates_ptr + slot * stride_slot, mask=slot < stop, other=-1)


@triton.jit  # type: ignore[untyped-decorator]
def set_some(
    flags_ptr: tl.tensor,
    block: tl.tensor,
    first: tl.tensor,
    stop: tl.tensor,
    past_width: tl.tensor,
    edge: tl.tensor,
    sets_edge: tl.tensor,
    STEP: tl.constexpr,
) -> None:
    """Set the flags of those of STEP candidates that are in ``[first, stop)``; see `set_flags`."""
    one = tl.full([STEP], 1, tl.uint8)
    tl.store(flags_ptr + block, one, mask=(block >= first) & (block < stop))
    if sets_edge:
        tl.store(flags_ptr + edge + tl.zeros([STEP], tl.int32), one, mask=(block >= 0) & (block >= past_width))


@triton.jit  # type: ignore[untyped-decorator]
def set_flags(
    flags_ptr: tl.tensor,
    block: tl.tensor,
    candidates_ptr: tl.tensor,
    stride_slot: tl.tensor,
    slots: tl.tensor,
    first: tl.tensor,
    stop: tl.tensor,
    past_width: tl.tensor,
    edge: tl.tensor,
    sets_edge: tl.tensor,
    STEP: tl.constexpr,
) -> None:
    """Set the flags of candidates in ``[first, stop)``; those from `past_width` on set the edge slot.

    `block` holds the first STEP candidates: they can be on their way before it is known which flags to set.
    """
    set_some(flags_ptr, block, first, stop, past_width, edge, sets_edge, STEP)
    for base in range(STEP, slots, STEP):
        block = load_candidates(candidates_ptr, stride_slot, base, slots, STEP)
        set_some(flags_ptr, block, first, stop, past_width, edge, sets_edge, STEP)


@triton.jit  # type: ignore[untyped-decorator]
def clear_flags(
    flags_ptr: tl.tensor,
    first: tl.tensor,
    stop: tl.tensor,
    edge: tl.tensor,
    clears_edge: tl.tensor,
    CLEAR_STEP: tl.constexpr,
) -> None:
    """Clear the flags ``[first, stop)``, and the edge slot if asked to, and wait; `first` is a multiple of 16.

    Whole 16 bytes are cleared: the bytes past `stop` belong to no other program and lie before the edge slot.
    """
    for base in range(first, stop, CLEAR_STEP):
        unit = base // 16 + tl.arange(0, CLEAR_STEP // 16)
        byte = (unit * 16)[:, None] + tl.arange(0, 16)[None, :]
        zero = tl.zeros([CLEAR_STEP // 16, 16], tl.uint8)
        tl.store(flags_ptr + byte, zero, mask=(unit * 16 < stop)[:, None])
    if clears_edge:
        tl.store(flags_ptr + edge, tl.zeros([], tl.uint8))
    tl.debug_barrier()


@triton.jit  # type: ignore[untyped-decorator]
def run_of_blocks(blocks: tl.tensor, LEAST_RUN: tl.constexpr) -> tuple[tl.tensor, tl.tensor]:
    """The run of blocks ``[first, stop)`` of program_id(1): a row's blocks in equal runs of whole sixteens."""
    sixteens = tl.maximum(tl.cdiv(tl.cdiv(blocks, tl.num_programs(1)), 16), LEAST_RUN // 16)
    first = tl.program_id(1) * sixteens * 16
    return first, tl.minimum(first + sixteens * 16, blocks)


# What no access is aligned by is kept out of the specialisation: other shapes need no other kernel.
@triton.jit(do_not_specialize=["width", "edge"])  # type: ignore[untyped-decorator]
def flags_full_width_kernel(
    flags_ptr: tl.tensor,
    candidates_ptr: tl.tensor,
    starts_ptr: tl.tensor,
    ends_ptr: tl.tensor,
    flags_stride_row: tl.tensor,
    candidates_stride_row: tl.tensor,
    candidates_stride_slot: tl.tensor,
    slots: tl.tensor,
    width: tl.tensor,
    edge: tl.tensor,
    row_repeat: tl.tensor,
    HAS_STARTS: tl.constexpr,
    BS: tl.constexpr,
    CLEAR_STEP: tl.constexpr,
    STEP: tl.constexpr,
) -> None:
    """One row: clear all of its flags, then set the candidates'."""
    row = tl.program_id(0).to(tl.int64)
    start, _ = live_range(starts_ptr, ends_ptr, row_repeat, width, HAS_STARTS)
    flags_ptr += row * flags_stride_row
    for base in range(0, edge + 1, CLEAR_STEP):
        byte = base + tl.arange(0, CLEAR_STEP)
        tl.store(flags_ptr + byte, tl.zeros([CLEAR_STEP], tl.uint8), mask=byte <= edge)
    tl.debug_barrier()
    past_width = tl.cdiv(width - start, BS)
    candidates_ptr += row * candidates_stride_row
    block = load_candidates(candidates_ptr, candidates_stride_slot, 0, slots, STEP)
    set_flags(
        flags_ptr, block, candidates_ptr, candidates_stride_slot, slots, 0, past_width, past_width, edge, True, STEP
    )


# Not told that slots are adjacent, each thread loads one candidate at a time. A wider load would be no faster, and its
# candidates would have to be exchanged between threads before their flags are stored. The other numbers align nothing.
@triton.jit(do_not_specialize=["candidates_stride_slot", "slots", "width", "edge"])  # type: ignore[untyped-decorator]
def flags_live_kernel(
    flags_ptr: tl.tensor,
    candidates_ptr: tl.tensor,
    starts_ptr: tl.tensor,
    ends_ptr: tl.tensor,
    flags_stride_row: tl.tensor,
    candidates_stride_row: tl.tensor,
    candidates_stride_slot: tl.tensor,
    slots: tl.tensor,
    width: tl.tensor,
    edge: tl.tensor,
    row_repeat: tl.tensor,
    HAS_STARTS: tl.constexpr,
    BS: tl.constexpr,
    LEAST_RUN: tl.constexpr,
    CLEAR_STEP: tl.constexpr,
    STEP: tl.constexpr,
) -> None:
    """One run of a row's live blocks: clear its flags and set those of the candidates in it. No flag is shared."""
    row = tl.program_id(0).to(tl.int64)
    candidates_ptr += row * candidates_stride_row
    owns_edge = tl.program_id(1) == 0
    # Only a row's first program is sure to need candidates, and need not wait for the ends to load them.
    block = load_candidates(candidates_ptr, candidates_stride_slot, 0, tl.where(owns_edge, slots, 0), STEP)
    start, limit = live_range(starts_ptr, ends_ptr, row_repeat, width, HAS_STARTS)
    first, stop = run_of_blocks(live_blocks(start, limit, BS), LEAST_RUN)
    if (first < stop) | owns_edge:
        if not owns_edge:
            block = load_candidates(candidates_ptr, candidates_stride_slot, 0, slots, STEP)
        flags_ptr += row * flags_stride_row
        past_width = tl.cdiv(width - start, BS)
        clear_flags(flags_ptr, first, stop, edge, owns_edge, CLEAR_STEP)
        set_flags(
            *(flags_ptr, block, candidates_ptr, candidates_stride_slot, slots),
            *(first, stop, past_width, edge, owns_edge),
            STEP,
        )


def flag_candidates(
    flags: torch.Tensor,
    candidates: torch.Tensor,
    starts: torch.Tensor | None,
    ends: torch.Tensor,
    width: int,
    block_size: int,
    row_repeat: int = 1,
    launch: FlagLaunch | None = TUNED_FLAGS,
) -> None:
    """Set the flags of every candidate and clear all others: one kernel.

    Args:
        flags: from `empty_flags`. With a `launch`, only those of live blocks, and the edge slots, hold anything.
        candidates, starts, ends, block_size, row_repeat: see `bounds.check_rows`.
        width: W, the columns of the logits.
        launch: of the live-range kernel; None clears the full width, one program a row.
    """
    rows, slots = candidates.shape
    blocks = num_blocks(width, block_size)
    arguments = (flags, candidates, starts, ends, flags.stride(0), *candidates.stride())
    arguments = (*arguments, slots, width, edge_slot(blocks), row_repeat)
    constants = {"HAS_STARTS": starts is not None, "BS": block_size}
    if launch is None:
        steps = {"CLEAR_STEP": _PR_CLEAR_STEP, "STEP": _PR_CANDIDATE_STEP}
        flags_full_width_kernel[(rows, 1, 1)](*arguments, **constants, **steps)
        return
    grid = (rows, launch.programs.row_programs(rows, -(-blocks // launch.least_run)), 1)
    flags_live_kernel[grid](
        *arguments,
        **constants,
        LEAST_RUN=launch.least_run,
        CLEAR_STEP=clear_step(launch.warps),
        STEP=launch.candidate_step,
        num_warps=launch.warps,
    )


def clear_step(warps: int) -> int:
    """Bytes cleared in one step: 16 a thread, the widest store there is."""
    return 16 * 32 * warps
