"""The mask kernels: -inf in every column outside the candidate blocks, over the full width or the live range.

Neither reads the logits: a mask reads one flag a block and writes -inf. A block of eight fp32 columns is one 32-byte
sector, so what is written are whole sectors.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from profkit.kernels.dsa.bounds import live_range, num_blocks
from profkit.kernels.dsa.flags import edge_slot
from profkit.kernels.dsa.programs import PR_POLICY, ProgramPolicy


@dataclass(frozen=True)
class MaskLaunch:
    """How the live-range mask is launched.

    Args:
        programs: programs a row.
        tile: columns that a program masks at once, a power of two.
        warps: warps a program.
        vector: adjacent columns that share one flag load and one store, 1 or 4. 4 is used only where `can_vectorise`.
        early: load the flags of a program's first tile before the ends are known, whether it will have one or not, and
            those of every other tile before the one in front is written. Not done with starts, which say where flags
            lie.
    """

    programs: ProgramPolicy
    tile: int
    warps: int
    vector: int
    early: bool


PR_MASK = MaskLaunch(PR_POLICY, tile=1024, warps=4, vector=1, early=False)

#: Two programs for each of the 132 multiprocessors of an H200: with fewer, smaller tiles spread the work wider.
_ENOUGH_PROGRAMS = 264
#: In more columns, of all rows together, flags that are loaded early come from memory, and at a short context most
#: programs have no use for them. With more rows there is other work to wait with.
_MOST_EARLY_COLUMNS = 1 << 23
_MOST_EARLY_ROWS = 132


def tuned_mask(rows: int, width: int) -> MaskLaunch:
    """The launch that is used where none is given: larger tiles where there are enough of them to fill the device.

    Where rows alone are twice enough, each is one program, and a tile of 4096 is mostly idle in short ones: on an H200
    1024 rows with 512 live columns take 2.61 us with it and 2.14 with 2048. Of 52 rows of a million columns the total
    of 1024 takes 1.8 us with 512 live and 66.3 with all, 8192 as in #57459 takes 5.9 and 62.6 to 64.5.
    """
    large = rows < 2 * _ENOUGH_PROGRAMS <= 2 * rows * -(-width // 4096)
    policy = ProgramPolicy(floor=1, total=1024)
    early = rows * width <= _MOST_EARLY_COLUMNS and rows <= _MOST_EARLY_ROWS
    return MaskLaunch(policy, tile=4096 if large else 2048, warps=4, vector=4, early=early)


def can_vectorise(logits: torch.Tensor, starts: torch.Tensor | None, block_size: int) -> bool:
    """Whether four adjacent columns always lie in one block and, where rows are aligned, in one 16-byte store."""
    return starts is None and block_size % 4 == 0 and logits.stride(1) == 1 and logits.shape[1] % 4 == 0


@triton.jit  # type: ignore[untyped-decorator]
def mask_vector(
    row_ptr: tl.tensor,
    stride_col: tl.tensor,
    flags_ptr: tl.tensor,
    edge: tl.tensor,
    first_column: tl.tensor,
    start: tl.tensor,
    limit: tl.tensor,
    last_column: tl.tensor,
    write_limit: tl.tensor,
    BS: tl.constexpr,
    VECTOR: tl.constexpr,
) -> None:
    """Mask VECTOR columns from `first_column`, asking each whether it is live and whether it is the last of the row."""
    column = first_column + tl.arange(0, VECTOR)
    inside = (column >= start) & (column < limit)
    flag = tl.load(flags_ptr + (column - start) // BS, mask=inside, other=0)
    edge_flag = tl.load(flags_ptr + edge + column * 0, mask=inside & (column == last_column), other=0)
    drop = (flag == 0) & (edge_flag == 0) & (column < write_limit)
    tl.store(row_ptr + column * stride_col, float("-inf"), mask=drop)


@triton.jit  # type: ignore[untyped-decorator]
def whole_vectors(limit: tl.tensor, width: tl.tensor, VECTOR: tl.constexpr) -> tl.tensor:
    """How many vectors from column 0 on end before `limit` and do not hold the last column of the row."""
    return tl.minimum(limit, width - 1) // VECTOR


@triton.jit  # type: ignore[untyped-decorator]
def tile_flags(
    flags_ptr: tl.tensor,
    first: tl.tensor,
    stop: tl.tensor,
    start: tl.tensor,
    BS: tl.constexpr,
    TILE: tl.constexpr,
    VECTOR: tl.constexpr,
) -> tl.tensor:
    """The flags of vectors ``[first, first + TILE / VECTOR)`` that lie below `stop`, and 0 for the others.

    Only those of live vectors mean anything.
    """
    vector = first + tl.arange(0, TILE // VECTOR)
    column = vector * VECTOR
    return tl.load(flags_ptr + (column - start) // BS, mask=(vector < stop) & (column >= start), other=0)


@triton.jit  # type: ignore[untyped-decorator]
def mask_tile(
    row_ptr: tl.tensor,
    stride_col: tl.tensor,
    flags_ptr: tl.tensor,
    flag: tl.tensor,
    edge: tl.tensor,
    first: tl.tensor,
    stop: tl.tensor,
    start: tl.tensor,
    limit: tl.tensor,
    last_column: tl.tensor,
    write_limit: tl.tensor,
    BS: tl.constexpr,
    TILE: tl.constexpr,
    VECTOR: tl.constexpr,
) -> None:
    """Mask vectors ``[first, first + TILE / VECTOR)`` below `stop`, each VECTOR adjacent columns of one block.

    `flag` holds their flags, and 0 for those below `stop` that are not live.
    The vector that is partly live, or holds the last column, is `bulk`; its columns are asked one by one. Those before
    it are live, and those behind it (which only the full width has) are not.
    """
    bulk = tl.minimum(limit, last_column) // VECTOR
    vector = first + tl.arange(0, TILE // VECTOR)
    column = vector * VECTOR
    target = row_ptr + column[:, None] * stride_col + tl.arange(0, VECTOR)[None, :] * stride_col
    drop = (flag == 0) & (vector < stop) & (vector != bulk)
    tl.store(target, float("-inf"), mask=drop[:, None])
    if (bulk >= first) & (bulk < tl.minimum(first + TILE // VECTOR, stop)):
        mask_vector(
            *(row_ptr, stride_col, flags_ptr, edge),
            *(bulk * VECTOR, start, limit, last_column, write_limit),
            BS,
            VECTOR,
        )


# What no access is aligned by is kept out of the specialisation: other shapes need no other kernel.
@triton.jit(do_not_specialize=["width", "edge"])  # type: ignore[untyped-decorator]
def mask_full_width_kernel(
    logits_ptr: tl.tensor,
    flags_ptr: tl.tensor,
    starts_ptr: tl.tensor,
    ends_ptr: tl.tensor,
    stride_row: tl.tensor,
    stride_col: tl.tensor,
    flags_stride_row: tl.tensor,
    width: tl.tensor,
    edge: tl.tensor,
    row_repeat: tl.tensor,
    HAS_STARTS: tl.constexpr,
    BS: tl.constexpr,
    TILE: tl.constexpr,
    VECTOR: tl.constexpr,
) -> None:
    """One (row, tile) of the whole width."""
    row = tl.program_id(0).to(tl.int64)
    start, limit = live_range(starts_ptr, ends_ptr, row_repeat, width, HAS_STARTS)
    row_flags_ptr = flags_ptr + row * flags_stride_row
    first = tl.program_id(1) * (TILE // VECTOR)
    mask_tile(
        logits_ptr + row * stride_row,
        stride_col,
        row_flags_ptr,
        tile_flags(row_flags_ptr, first, whole_vectors(limit, width, VECTOR), start, BS, TILE, VECTOR),
        edge,
        first,
        width // VECTOR,
        start,
        limit,
        width - 1,
        width,
        BS,
        TILE,
        VECTOR,
    )


# What no access is aligned by is kept out of the specialisation: other shapes need no other kernel.
@triton.jit(do_not_specialize=["width", "edge"])  # type: ignore[untyped-decorator]
def mask_live_kernel(
    logits_ptr: tl.tensor,
    flags_ptr: tl.tensor,
    starts_ptr: tl.tensor,
    ends_ptr: tl.tensor,
    stride_row: tl.tensor,
    stride_col: tl.tensor,
    flags_stride_row: tl.tensor,
    width: tl.tensor,
    edge: tl.tensor,
    row_repeat: tl.tensor,
    HAS_STARTS: tl.constexpr,
    BS: tl.constexpr,
    TILE: tl.constexpr,
    VECTOR: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    """Every num_programs(1)-th tile of one row, up to the last live column; columns behind it are left alone."""
    row = tl.program_id(0).to(tl.int64)
    row_ptr = logits_ptr + row * stride_row
    row_flags_ptr = flags_ptr + row * flags_stride_row
    first_tile, tiles_apart = tl.program_id(1), tl.num_programs(1)
    per_tile = TILE // VECTOR
    if EARLY:
        flag = tile_flags(row_flags_ptr, first_tile * per_tile, width // VECTOR, 0, BS, TILE, VECTOR)
    start, limit = live_range(starts_ptr, ends_ptr, row_repeat, width, HAS_STARTS)
    stop = tl.cdiv(limit, VECTOR)
    live = whole_vectors(limit, width, VECTOR)
    for tile in range(first_tile, tl.cdiv(limit, TILE), tiles_apart):
        if EARLY:
            ahead = tile_flags(row_flags_ptr, (tile + tiles_apart) * per_tile, live, start, BS, TILE, VECTOR)
        else:
            flag = tile_flags(row_flags_ptr, tile * per_tile, live, start, BS, TILE, VECTOR)
        mask_tile(
            row_ptr,
            stride_col,
            row_flags_ptr,
            flag,
            edge,
            tile * per_tile,
            stop,
            start,
            limit,
            width - 1,
            limit,
            BS,
            TILE,
            VECTOR,
        )
        if EARLY:
            flag = ahead


def mask_columns(
    logits: torch.Tensor,
    flags: torch.Tensor,
    starts: torch.Tensor | None,
    ends: torch.Tensor,
    block_size: int,
    row_repeat: int = 1,
    launch: MaskLaunch | None = None,
    full_width: bool = False,
) -> None:
    """Set the columns that are in no flagged block to -inf: one kernel.

    Args:
        logits, starts, ends, block_size, row_repeat: see `bounds.check_rows`.
        flags: as `flags.flag_candidates` leaves them.
        launch: `tuned_mask` where none is given; its programs are not used with `full_width`.
        full_width: write to every column that is not kept, not only to those before the last live one.
    """
    rows, width = logits.shape
    launch = launch or tuned_mask(rows, width)
    vector = launch.vector if can_vectorise(logits, starts, block_size) else 1
    tiles = -(-width // launch.tile)
    edge = edge_slot(num_blocks(width, block_size))
    arguments = (logits, flags, starts, ends, *logits.stride(), flags.stride(0), width, edge, row_repeat)
    constants = {"HAS_STARTS": starts is not None, "BS": block_size, "TILE": launch.tile, "VECTOR": vector}
    if full_width:
        mask_full_width_kernel[(rows, tiles, 1)](*arguments, **constants, num_warps=launch.warps)
        return
    grid = (rows, launch.programs.row_programs(rows, tiles), 1)
    early = launch.early and starts is None
    mask_live_kernel[grid](*arguments, **constants, EARLY=early, num_warps=launch.warps)
