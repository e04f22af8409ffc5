"""The score kernels: the highest logit of every block of a row, with the newest token's block pinned at +inf."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from profkit.kernels.dsa.bounds import num_blocks, scored_blocks
from profkit.kernels.dsa.programs import PR_POLICY, ProgramPolicy


@dataclass(frozen=True)
class ScoreLaunch:
    """How the live-range score kernel is launched.

    Args:
        programs: programs a row.
        tile: blocks that a program scores at once, a power of two.
        warps: warps a program.
        wide: load tiles that are wholly live without asking each column, so that loads can be 16 bytes wide.
        early_columns: the most columns, of all rows together, of which each program's tile is loaded before the ends
            are known. It is done only without starts and where every tile has a program, and reads dead columns too.
    """

    programs: ProgramPolicy
    tile: int
    warps: int
    wide: bool
    early_columns: int


PR_SCORES = ScoreLaunch(PR_POLICY, tile=128, warps=4, wide=False, early_columns=0)
#: On an H200, 52 rows of a million columns, all and 512 of them live: 59.2 and 2.3 us. With a total of 1024 63.8 and
#: 1.77; with tiles of 256, too large for few and short rows, 60.1 and 1.84; with tiles of 512 65.6 and 2.09.
TUNED_SCORES = ScoreLaunch(ProgramPolicy(floor=1, total=2048), tile=128, warps=4, wide=True, early_columns=1 << 18)


def can_load_early(launch: ScoreLaunch, rows: int, width: int, tiles: int) -> bool:
    """Whether all tiles have a program, and the columns are few enough to be loaded before the ends are known.

    Args:
        tiles: tiles of blocks in a row of full width.
    """
    return rows * width <= launch.early_columns and launch.programs.row_programs(rows, tiles) == tiles


@triton.jit  # type: ignore[untyped-decorator]
def tile_columns(
    row_ptr: tl.tensor,
    stride_col: tl.tensor,
    first: tl.tensor,
    start: tl.tensor,
    limit: tl.tensor,
    BS: tl.constexpr,
    BS_POW2: tl.constexpr,
    TILE: tl.constexpr,
    WHOLE: tl.constexpr,
) -> tl.tensor:
    """The columns of blocks ``[first, first + TILE)`` below `limit`, a row a block; -inf for the others.

    WHOLE promises that all of them are below it.
    """
    block = first + tl.arange(0, TILE)
    offset = tl.arange(0, BS_POW2)
    column = start + block[:, None] * BS + offset[None, :]
    source = row_ptr + column * stride_col
    if WHOLE and BS_POW2 == BS:
        value = tl.load(source)
    elif WHOLE:
        value = tl.load(source, mask=(offset < BS)[None, :], other=float("-inf"))
    else:
        value = tl.load(source, mask=(column < limit) & (offset < BS)[None, :], other=float("-inf"))
    return value


@triton.jit  # type: ignore[untyped-decorator]
def store_scores(
    scores_ptr: tl.tensor,
    value: tl.tensor,
    first: tl.tensor,
    blocks: tl.tensor,
    pinned: tl.tensor,
    TILE: tl.constexpr,
) -> None:
    """Store the scores of blocks ``[first, first + TILE)`` below `blocks`: -inf of none but -inf, NaN with a NaN."""
    block = first + tl.arange(0, TILE)
    nan = tl.max((value != value).to(tl.int32), axis=1)
    score = tl.where(nan > 0, float("nan"), tl.max(value, axis=1))
    score = tl.where(block == pinned, float("inf"), score)
    tl.store(scores_ptr + block, score, mask=block < blocks)


@triton.jit  # type: ignore[untyped-decorator]
def score_tile(
    row_ptr: tl.tensor,
    stride_col: tl.tensor,
    scores_ptr: tl.tensor,
    first: tl.tensor,
    blocks: tl.tensor,
    pinned: tl.tensor,
    start: tl.tensor,
    limit: tl.tensor,
    BS: tl.constexpr,
    BS_POW2: tl.constexpr,
    TILE: tl.constexpr,
    WHOLE: tl.constexpr,
) -> None:
    """Load and score blocks ``[first, first + TILE)``; WHOLE as in `tile_columns`."""
    value = tile_columns(row_ptr, stride_col, first, start, limit, BS, BS_POW2, TILE, WHOLE)
    store_scores(scores_ptr, value, first, blocks, pinned, TILE)


# What no access is aligned by is kept out of the specialisation: other shapes need no other kernel.
@triton.jit(do_not_specialize=["width"])  # type: ignore[untyped-decorator]
def scores_full_width_kernel(
    logits_ptr: tl.tensor,
    starts_ptr: tl.tensor,
    ends_ptr: tl.tensor,
    scores_ptr: tl.tensor,
    stride_row: tl.tensor,
    stride_col: tl.tensor,
    width: tl.tensor,
    num_blocks: tl.tensor,
    row_repeat: tl.tensor,
    HAS_STARTS: tl.constexpr,
    BS: tl.constexpr,
    BS_POW2: tl.constexpr,
    TILE: tl.constexpr,
) -> None:
    """One (row, tile) of the whole width."""
    row = tl.program_id(0).to(tl.int64)
    start, limit, _, pinned = scored_blocks(starts_ptr, ends_ptr, row_repeat, width, num_blocks, HAS_STARTS, BS)
    row_ptr = logits_ptr + row * stride_row
    row_scores_ptr = scores_ptr + row * num_blocks
    first = tl.program_id(1) * TILE
    score_tile(row_ptr, stride_col, row_scores_ptr, first, num_blocks, pinned, start, limit, BS, BS_POW2, TILE, False)


# What no access is aligned by is kept out of the specialisation: other shapes need no other kernel.
@triton.jit(do_not_specialize=["width"])  # type: ignore[untyped-decorator]
def scores_live_kernel(
    logits_ptr: tl.tensor,
    starts_ptr: tl.tensor,
    ends_ptr: tl.tensor,
    scores_ptr: tl.tensor,
    stride_row: tl.tensor,
    stride_col: tl.tensor,
    width: tl.tensor,
    num_blocks: tl.tensor,
    row_repeat: tl.tensor,
    HAS_STARTS: tl.constexpr,
    BS: tl.constexpr,
    BS_POW2: tl.constexpr,
    TILE: tl.constexpr,
    WIDE: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    """Every num_programs(1)-th tile of the blocks of one row that can be chosen; scores behind them are left alone.

    EARLY, which needs a program for every tile and no starts: its columns are loaded before the ends are known.
    """
    row = tl.program_id(0).to(tl.int64)
    row_ptr = logits_ptr + row * stride_row
    row_scores_ptr = scores_ptr + row * num_blocks
    if EARLY:
        first = tl.program_id(1) * TILE
        value = tile_columns(row_ptr, stride_col, first, 0, width, BS, BS_POW2, TILE, False)
        _, limit, blocks, pinned = scored_blocks(starts_ptr, ends_ptr, row_repeat, width, num_blocks, HAS_STARTS, BS)
        column = (first + tl.arange(0, TILE))[:, None] * BS + tl.arange(0, BS_POW2)[None, :]
        store_scores(row_scores_ptr, tl.where(column < limit, value, float("-inf")), first, blocks, pinned, TILE)
        return
    start, limit, blocks, pinned = scored_blocks(starts_ptr, ends_ptr, row_repeat, width, num_blocks, HAS_STARTS, BS)
    for tile in range(tl.program_id(1), tl.cdiv(blocks, TILE), tl.num_programs(1)):
        first = tile * TILE
        if WIDE:
            if start + (first + TILE) * BS <= limit:
                score_tile(
                    row_ptr, stride_col, row_scores_ptr, first, blocks, pinned, start, limit, BS, BS_POW2, TILE, True
                )
            else:
                score_tile(
                    row_ptr, stride_col, row_scores_ptr, first, blocks, pinned, start, limit, BS, BS_POW2, TILE, False
                )
        else:
            score_tile(
                row_ptr, stride_col, row_scores_ptr, first, blocks, pinned, start, limit, BS, BS_POW2, TILE, False
            )


def block_scores(
    logits: torch.Tensor,
    starts: torch.Tensor | None,
    ends: torch.Tensor,
    scores: torch.Tensor,
    block_size: int,
    row_repeat: int = 1,
    launch: ScoreLaunch | None = TUNED_SCORES,
) -> None:
    """Score the blocks of every row: one kernel.

    Args:
        logits, starts, ends, block_size, row_repeat: see `bounds.check_rows`.
        scores: ``[R, ceil(W / BS)]`` fp32, contiguous. With a `launch`, only blocks that can be chosen are written:
            those up to the last live column and up to the pinned one.
        launch: of the live-range kernel; None scores the full width.
    """
    rows, width = logits.shape
    blocks = num_blocks(width, block_size)
    arguments = (logits, starts, ends, scores, *logits.stride(), width, blocks, row_repeat)
    constants = {
        "HAS_STARTS": starts is not None,
        "BS": block_size,
        "BS_POW2": triton.next_power_of_2(block_size),
    }
    if launch is None:
        grid = (rows, -(-blocks // PR_SCORES.tile), 1)
        scores_full_width_kernel[grid](*arguments, **constants, TILE=PR_SCORES.tile, num_warps=PR_SCORES.warps)
        return
    tiles = -(-blocks // launch.tile)
    grid = (rows, launch.programs.row_programs(rows, tiles), 1)
    early = starts is None and can_load_early(launch, rows, width, tiles)
    scores_live_kernel[grid](
        *arguments, **constants, TILE=launch.tile, WIDE=launch.wide, EARLY=early, num_warps=launch.warps
    )
