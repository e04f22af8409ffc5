"""What QSA attention must compute, in plain torch and double precision: dense over each row's tokens, no splits."""

from __future__ import annotations

import torch

from profkit.kernels.qsa.operands import Operands

#: Rows whose keys and values are gathered at a time: at 2,051 tokens of 256 columns, 4 MB a row, head and tensor.
ROWS = 32


def gated_attention(operands: Operands, *, block_n: int | None = None) -> torch.Tensor:
    """``[R, HQ, D]`` float64: attention to the selected tokens times sigmoid(gate), nothing rounded on the way.

    Args:
        operands: as the kernels get them.
        block_n: where a row lists more tokens than its count, those past the last tile of `block_n` that the count
            reaches are left out, as a kernel with such tiles does; None takes all that are listed.
    """
    rows = operands.query.shape[0]
    parts = [_rows(operands, slice(start, start + ROWS), block_n) for start in range(0, rows, ROWS)]
    return torch.cat(parts) if parts else operands.query.double()


def listed_tokens(operands: Operands, rows: slice, block_n: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Where the selected tokens of some rows lie.

    Returns:
        ``[r, W]`` int64: the token's place in the cache, block times page size plus place in the block, 0 where there
        is none; and ``[r, W]`` bool, whether there is one.
    """
    blocks, page_size = operands.keys.shape[:2]
    requests, pages = operands.block_table.shape
    width = operands.width
    tokens = operands.indices[rows, :width].long()
    listed = tokens >= 0
    if block_n is not None:
        counts = operands.indices[rows, width].long().clamp(0, width)
        reached = (counts + block_n - 1) // block_n * block_n
        listed &= torch.arange(width, device=tokens.device) < reached.unsqueeze(1)
    request = operands.token_to_req[rows].long().unsqueeze(1)
    page = tokens.clamp(min=0) // page_size
    listed &= (request >= 0) & (request < requests) & (page < pages)
    if requests == 0 or pages == 0 or blocks == 0:
        return torch.zeros_like(tokens), torch.zeros_like(listed)
    block = operands.block_table[request.clamp(0, requests - 1), page.clamp(max=pages - 1)].long()
    listed &= (block >= 0) & (block < blocks)
    place = block * page_size + tokens.clamp(min=0) % page_size
    return torch.where(listed, place, 0), listed


def _rows(operands: Operands, rows: slice, block_n: int | None) -> torch.Tensor:
    heads, head_dim = operands.query.shape[1:]
    kv_heads = operands.keys.shape[2]
    query = operands.query[rows].double().reshape(-1, kv_heads, heads // kv_heads, head_dim)
    place, listed = listed_tokens(operands, rows, block_n)
    keys, values = (_gather(cache, place) for cache in (operands.keys, operands.values))
    scores = torch.einsum("rhgd,rwhd->rhgw", query, keys) * (head_dim**-0.5 * operands.k_scale)
    scores = scores.masked_fill(~listed[:, None, None, :], float("-inf"))
    # Of a row without tokens every weight is NaN.
    weights = torch.softmax(scores, dim=-1).nan_to_num(nan=0.0)
    output = torch.einsum("rhgw,rwhd->rhgd", weights, values) * operands.v_scale
    return output.flatten(1, 2) * torch.sigmoid(operands.gate[rows].double())


def _gather(cache: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    """``[r, W, HK, D]`` float64: the cache's rows at `place`. By bytes, which every version of torch can index."""
    blocks, page_size = cache.shape[:2]
    if blocks == 0:
        return torch.zeros(*place.shape, *cache.shape[2:], dtype=torch.float64, device=cache.device)
    taken = cache.view(torch.uint8)[place // page_size, place % page_size]
    return taken.view(cache.dtype).float().double()
