"""QSA attention, token by token in plain Python: from the formulas, sharing no code with kernels or reference."""

from __future__ import annotations

import math

import torch

from profkit.kernels.qsa.operands import Operands


def reachable(operands: Operands, row: int, block_n: int | None = None) -> list[tuple[int, int]]:
    """(Block, place in it) of each token that a row attends to, in order."""
    *tokens, count = operands.indices[row].tolist()
    request = int(operands.token_to_req[row])
    table = operands.block_table.tolist()
    blocks, page_size = operands.keys.shape[:2]
    if not 0 <= request < len(table):
        return []
    if block_n is not None:
        tokens = tokens[: math.ceil(min(max(count, 0), len(tokens)) / block_n) * block_n]
    found = []
    for token in tokens:
        page = token // page_size
        if token >= 0 and page < len(table[request]) and 0 <= table[request][page] < blocks:
            found.append((table[request][page], token % page_size))
    return found


def attention(operands: Operands, block_n: int | None = None) -> list[list[list[float]]]:
    """``[R][HQ][D]``: what each row's heads must give, gated."""
    rows, heads, head_dim = operands.query.shape
    kv_heads = operands.keys.shape[2]
    query, gate = operands.query.tolist(), operands.gate.tolist()
    keys, values = operands.keys.float().tolist(), operands.values.float().tolist()
    outputs = []
    for row in range(rows):
        tokens = reachable(operands, row, block_n)
        outputs.append([])
        for head in range(heads):
            kv = head * kv_heads // heads
            scores = [
                sum(q * k for q, k in zip(query[row][head], keys[block][place][kv], strict=True))
                * operands.k_scale
                / math.sqrt(head_dim)
                for block, place in tokens
            ]
            weights = [math.exp(score - max(scores)) for score in scores]
            outputs[row].append(
                [
                    (
                        operands.v_scale
                        * sum(w * values[b][p][kv][d] for w, (b, p) in zip(weights, tokens, strict=True))
                        / sum(weights)
                        if tokens
                        else 0.0
                    )
                    / (1 + math.exp(-gate[row][head][d]))
                    for d in range(head_dim)
                ]
            )
    return outputs


def as_tensor(outputs: list[list[list[float]]]) -> torch.Tensor:
    return torch.tensor(outputs, dtype=torch.float64)
