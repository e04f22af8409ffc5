"""The eager mask: rows whose local KV shard is empty get an LSE of -inf, in eight small kernels.

This is the baseline that a fused pack removes. It is free of host synchronisation, so it captures into a graph as
eight kernel nodes: arange, searchsorted, clamp, ge, index, eq, or, masked_fill.
"""

from __future__ import annotations

import torch


def check_metadata(seq_lens: torch.Tensor | None, query_start_loc: torch.Tensor | None) -> bool:
    """Whether there is metadata to mask by, after checking that it is well formed; reads no element.

    Args:
        seq_lens: ``[S]`` int32, the local KV length of each request, or None.
        query_start_loc: ``[S + 1]`` int32, the first row of each request and the number of real rows, or None.

    Raises:
        ValueError: only one of the two is given, a shape or dtype is wrong, or one is not contiguous.
    """
    if seq_lens is None and query_start_loc is None:
        return False
    if seq_lens is None or query_start_loc is None:
        raise ValueError("seq_lens and query_start_loc go together: give both to mask, or neither")
    if seq_lens.dim() != 1 or query_start_loc.dim() != 1:
        raise ValueError(
            f"seq_lens is {seq_lens.dim()}-D and query_start_loc {query_start_loc.dim()}-D; both must be 1-D"
        )
    if query_start_loc.numel() != seq_lens.numel() + 1:
        raise ValueError(
            f"query_start_loc has {query_start_loc.numel()} entries for {seq_lens.numel()} requests; "
            "it must have one more than seq_lens"
        )
    if seq_lens.dtype != torch.int32 or query_start_loc.dtype != torch.int32:
        raise ValueError(
            f"seq_lens and query_start_loc must be int32; they are {seq_lens.dtype} and {query_start_loc.dtype}"
        )
    if not (seq_lens.is_contiguous() and query_start_loc.is_contiguous()):
        raise ValueError("seq_lens and query_start_loc must be contiguous")
    return True


def row_mask(rows: int, seq_lens: torch.Tensor, query_start_loc: torch.Tensor) -> torch.Tensor:
    """Which rows have an empty local shard or belong to no request: seven kernels.

    A row belongs to the first request that ends after it, so requests without rows are passed over. Rows at or past
    ``query_start_loc[S]`` are padding.

    Args:
        rows: R.
        seq_lens: ``[S]``, S at least 1.
        query_start_loc: ``[S + 1]``.

    Returns:
        ``[R]`` bool, True where the row is empty.
    """
    row = torch.arange(rows, dtype=query_start_loc.dtype, device=query_start_loc.device)
    owner = torch.searchsorted(query_start_loc[1:], row, right=True)
    owner = owner.clamp_max(seq_lens.numel() - 1)
    padding = row >= query_start_loc[-1]
    length = seq_lens[owner]
    return (length == 0).bitwise_or(padding)


def mask_dcp_empty_shards_(
    lse: torch.Tensor, seq_lens: torch.Tensor | None, query_start_loc: torch.Tensor | None
) -> torch.Tensor:
    """Set the LSE of empty rows to -inf, in place: eight kernels, no synchronisation.

    With no request at all (S = 0) every row is empty. Without metadata nothing is masked.

    Args:
        lse: ``[R, H]``, any float dtype and strides.
        seq_lens: ``[S]`` int32 or None.
        query_start_loc: ``[S + 1]`` int32 or None.

    Returns:
        `lse`.

    Raises:
        ValueError: see `check_metadata`; or lse is not 2-D, or of no float dtype.
    """
    if lse.dim() != 2:
        raise ValueError(f"lse is {lse.dim()}-D; it must be [rows, heads]")
    if not lse.is_floating_point():
        raise ValueError(f"lse must be of a float dtype, which {lse.dtype} is not: empty rows get -inf")
    if not check_metadata(seq_lens, query_start_loc) or lse.shape[0] == 0:
        return lse
    assert seq_lens is not None
    assert query_start_loc is not None
    if seq_lens.numel() == 0:
        return lse.fill_(float("-inf"))
    empty = row_mask(lse.shape[0], seq_lens, query_start_loc)
    return lse.masked_fill_(empty.unsqueeze(1), float("-inf"))
