"""The live range of a row: which columns of the logits hold tokens, on the host and inside kernels.

Row r of ``logits [R, W]`` holds tokens in columns ``[start, min(end, W))``, where start and end are entry
``r div row_repeat`` of `starts` and `ends`. Its block b is columns ``start + b * BS`` up to the next block's, and a row
has ``ceil(W / BS)`` blocks. Columns past the live range are uninitialised, and an end may lie past the width.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

#: Columns are counted in 32 bits inside the kernels, with room for as many again: a tile that is loaded ahead may lie
#: behind the row by as many tiles as it has.
_MOST_COLUMNS = 1 << 30


def num_blocks(width: int, block_size: int) -> int:
    """How many blocks a row of `width` columns has: ``ceil(W / BS)``."""
    return -(-width // block_size)


def check_rows(
    logits: torch.Tensor,
    starts: torch.Tensor | None,
    ends: torch.Tensor,
    candidates: torch.Tensor,
    block_size: int,
    row_repeat: int,
) -> None:
    """Check what every function of this family is given; looks at shapes only, so it is safe in a capture.

    Args:
        logits: ``[R, W]`` fp32, any strides.
        starts: ``[R / row_repeat]`` int32 or int64, at least 0, or None for 0.
        ends: ``[R / row_repeat]`` int32 or int64.
        candidates: ``[R, K]`` int32, any strides.
        block_size: BS, at least 1.
        row_repeat: rows that share one start and end, at least 1.

    Raises:
        ValueError: one of these does not hold.
    """
    if block_size < 1 or row_repeat < 1:
        raise ValueError(f"block_size is {block_size} and row_repeat {row_repeat}; both must be at least 1")
    if logits.dim() != 2 or logits.dtype != torch.float32:
        raise ValueError(f"logits must be [rows, width] in fp32; they are {logits.dim()}-D in {logits.dtype}")
    rows, width = logits.shape
    if width * abs(logits.stride(1)) > _MOST_COLUMNS:
        raise ValueError(f"a row of logits spans {width * abs(logits.stride(1))} elements; at most {_MOST_COLUMNS}")
    if candidates.dim() != 2 or candidates.shape[0] != rows or candidates.dtype != torch.int32:
        raise ValueError(
            f"candidates must be [{rows}, K] in int32; they are {list(candidates.shape)} in {candidates.dtype}"
        )
    for name, bounds in (("ends", ends), ("starts", starts)):
        if bounds is None:
            continue
        if bounds.dim() != 1 or bounds.dtype not in (torch.int32, torch.int64) or not bounds.is_contiguous():
            raise ValueError(f"{name} must be 1-D, contiguous and int32 or int64")
        if bounds.numel() * row_repeat != rows:
            raise ValueError(
                f"{name} has {bounds.numel()} entries, each for {row_repeat} rows; the logits have {rows} rows"
            )


@triton.jit  # type: ignore[untyped-decorator]
def live_range(
    starts_ptr: tl.tensor,
    ends_ptr: tl.tensor,
    row_repeat: tl.tensor,
    width: tl.tensor,
    HAS_STARTS: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """start, at most W, and limit, the column behind the last live one (0 where there is none); of row program_id(0).

    A start past the width leaves nothing live and every candidate past the width, as a start at the width does.
    """
    entry = tl.program_id(0) // row_repeat
    end = tl.load(ends_ptr + entry).to(tl.int64)
    limit = tl.maximum(tl.minimum(end, width), 0).to(tl.int32)
    start = tl.minimum(tl.load(starts_ptr + entry).to(tl.int64), width).to(tl.int32) if HAS_STARTS else 0
    return start, limit


@triton.jit  # type: ignore[untyped-decorator]
def live_blocks(start: tl.tensor, limit: tl.tensor, block_size: tl.tensor) -> tl.tensor:
    """How many blocks hold a live column."""
    return (tl.maximum(limit - start, 0) + block_size - 1) // block_size


@triton.jit  # type: ignore[untyped-decorator]
def scored_blocks(
    starts_ptr: tl.tensor,
    ends_ptr: tl.tensor,
    row_repeat: tl.tensor,
    width: tl.tensor,
    num_blocks: tl.tensor,
    HAS_STARTS: tl.constexpr,
    block_size: tl.tensor,
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """start, limit, the number of blocks that can be chosen, and the pinned one (-1: none); of row program_id(0).

    The pinned block is the one that the newest token, at ``end - 1``, falls into. Where start is above 0 and the end
    past the width it may lie behind the last block with a live column; blocks up to it are then counted too.
    """
    start, limit = live_range(starts_ptr, ends_ptr, row_repeat, width, HAS_STARTS)
    entry = tl.program_id(0) // row_repeat
    span = tl.load(ends_ptr + entry).to(tl.int64)
    if HAS_STARTS:
        span -= tl.load(starts_ptr + entry).to(tl.int64)
    pinned = tl.where(span > 0, (span - 1) // block_size, -1)
    pinned = tl.where(pinned < num_blocks, pinned, -1).to(tl.int32)
    blocks = tl.maximum(live_blocks(start, limit, block_size), pinned + 1)
    return start, limit, blocks, pinned
