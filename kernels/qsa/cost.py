"""What the kernels must move and compute at least: bytes of device memory and arithmetic operations."""

from __future__ import annotations

import torch

from profkit.kernels.qsa.operands import Operands, Partials
from profkit.kernels.qsa.reference import listed_tokens

_ROWS = 1024


def distinct_tokens(operands: Operands) -> int:
    """How many tokens of the cache some row selects; rows of one request share most of theirs."""
    blocks, page = operands.keys.shape[:2]
    wanted = torch.zeros(blocks * page, dtype=torch.bool, device=operands.query.device)
    for start in range(0, operands.query.shape[0], _ROWS):
        place, listed = listed_tokens(operands, slice(start, start + _ROWS))
        wanted[place[listed]] = True
    return int(wanted.sum())


def attention_bytes(operands: Operands) -> int:
    """Bytes that one layer's attention must read and write: every selected token of the cache once, query, gate,
    selection and output once. What the splits leave for the merge need not leave the chip, so it does not count."""
    _, _, kv_heads, head_dim = operands.keys.shape
    cache = distinct_tokens(operands) * kv_heads * head_dim * operands.keys.itemsize * 2
    rows = [operands.query, operands.query, operands.gate, operands.indices, operands.token_to_req]
    return cache + sum(t.numel() * t.itemsize for t in (*rows, operands.block_table))


def gathered_bytes(operands: Operands) -> int:
    """Bytes of keys and values that the split kernel's programs load, from device memory or L2: those of every row."""
    _, _, kv_heads, head_dim = operands.keys.shape
    return selected_tokens(operands) * kv_heads * head_dim * operands.keys.itemsize * 2


def selected_tokens(operands: Operands) -> int:
    """Tokens over all rows, those that several rows select counted as often."""
    rows = range(0, operands.query.shape[0], _ROWS)
    return sum(int(listed_tokens(operands, slice(start, start + _ROWS))[1].sum()) for start in rows)


def attention_operations(operands: Operands) -> int:
    """Multiplications and additions of the two products over the selected tokens, without padding."""
    return 4 * selected_tokens(operands) * operands.query.shape[1] * operands.query.shape[2]


def merge_bytes(partials: Partials, gate: torch.Tensor, out: torch.Tensor) -> int:
    """Bytes that a merge must read and write."""
    return sum(t.numel() * t.itemsize for t in (partials.outputs, partials.lse, gate, out))
