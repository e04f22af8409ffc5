"""The store kernel: what `torch.topk` chose becomes a list of candidates."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

#: Slots a program.
_TILE = 256


@triton.jit  # type: ignore[untyped-decorator]
def store_candidates_kernel(
    values_ptr: tl.tensor,
    indices_ptr: tl.tensor,
    out_ptr: tl.tensor,
    chosen: tl.tensor,
    slots: tl.tensor,
    out_stride_row: tl.tensor,
    out_stride_slot: tl.tensor,
    TILE: tl.constexpr,
) -> None:
    """One (row, tile of slots): an index whose value is -inf, and a slot without an index, become -1."""
    row = tl.program_id(0).to(tl.int64)
    slot = tl.program_id(1) * TILE + tl.arange(0, TILE)
    value = tl.load(values_ptr + row * chosen + slot, mask=slot < chosen, other=float("-inf"))
    index = tl.load(indices_ptr + row * chosen + slot, mask=slot < chosen, other=-1).to(tl.int32)
    candidate = tl.where(value == float("-inf"), -1, index)
    tl.store(out_ptr + row * out_stride_row + slot * out_stride_slot, candidate, mask=slot < slots)


def store_candidates(values: torch.Tensor, indices: torch.Tensor, out: torch.Tensor) -> None:
    """Store the indices of scores above -inf, in the order given: one kernel.

    Args:
        values, indices: ``[R, k]`` fp32 and int64, contiguous, as `torch.topk` gives them.
        out: ``[R, K]`` int32, any strides, K at least k.
    """
    rows, slots = out.shape
    grid = (rows, -(-slots // _TILE), 1)
    store_candidates_kernel[grid](values, indices, out, values.shape[1], slots, *out.stride(), TILE=_TILE)
