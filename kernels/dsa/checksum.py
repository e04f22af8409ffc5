"""One integer for the bits of every row's live columns: outputs that differ in what lies behind them compare equal."""

from __future__ import annotations

import torch

#: Odd, so that multiplying by them loses no bit; as signed 64-bit numbers.
_MIX_1 = -7046029254386353131
_MIX_2 = -4658895280553007687


def row_checksums(logits: torch.Tensor, limits: list[int]) -> torch.Tensor:
    """A checksum of the bits of columns ``[0, limit)`` of each row.

    It is exact integer arithmetic modulo 2^64, so the order of additions does not matter and every device gives the
    same. One changed bit always changes it.

    Args:
        logits: ``[R, W]`` fp32, on any device; a row must be contiguous.
        limits: R column counts.

    Returns:
        ``[R]`` int64 on the device of `logits`.
    """
    sums = torch.zeros(logits.shape[0], dtype=torch.int64, device=logits.device)
    position = torch.arange(max(limits, default=0), dtype=torch.int64, device=logits.device) * _MIX_1
    # Row by row: whole matrices of 64-bit numbers would be gigabytes.
    for row, limit in enumerate(limits):
        mixed = (logits[row, :limit].view(torch.int32) + position[:limit]) * _MIX_2
        sums[row] = ((mixed ^ (mixed >> 29)) * _MIX_1).sum()
    return sums
