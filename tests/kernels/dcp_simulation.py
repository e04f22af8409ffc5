"""Partial attention of eight simulated ranks over one KV cache, and the unsharded attention they must combine to."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from dcp_oracle import Batch

from profkit.kernels.dcp.reference import attend
from profkit.kernels.dcp.sharding import local_length, owner

RANKS, HEADS, HEAD_DIM = 8, 1, 16
SCALE = 0.25
#: Lengths 3 and 9 leave shards empty.
LENGTHS, SPANS, PADDING = [40, 3, 9], [1, 2, 1], 1
ROWS = sum(SPANS) + PADDING


@dataclass(frozen=True)
class RankPart:
    """What one rank's attention leaves: rows of empty shards and of padding hold NaN payload and a finite LSE.

    Args:
        out: ``[R, H, D]`` fp32.
        lse: ``[R, H]`` fp32.
        batch: with this rank's lengths.
    """

    out: torch.Tensor
    lse: torch.Tensor
    batch: Batch


def simulate(interleave: int) -> tuple[list[RankPart], torch.Tensor]:
    """Every rank's part, and the attention over the whole cache ``[R, H, D]`` in float64, 0 in the padding row.

    Args:
        interleave: tokens that lie together on one rank.
    """
    generator = torch.Generator().manual_seed(3)
    query = torch.randn(ROWS, RANKS * HEADS, 24, generator=generator)
    caches = [torch.randn(length, 24, generator=generator) for length in LENGTHS]
    starts = Batch(LENGTHS, SPANS, PADDING).starts
    spans = [slice(starts[request], starts[request + 1]) for request in range(len(LENGTHS))]

    parts = []
    for rank in range(RANKS):
        out = torch.full((ROWS, RANKS * HEADS, HEAD_DIM), math.nan)
        lse = torch.full((ROWS, RANKS * HEADS), 5.0)
        for span, tokens in zip(spans, caches, strict=True):
            local = tokens[[owner(position, RANKS, interleave) == rank for position in range(len(tokens))]]
            if len(local):
                part, part_lse = attend(query[span], local, local[:, :HEAD_DIM], SCALE)
                out[span], lse[span] = part.float(), part_lse.float()
        lengths = [local_length(length, rank, RANKS, interleave) for length in LENGTHS]
        parts.append(RankPart(out, lse, Batch(lengths, SPANS, PADDING)))

    whole = torch.zeros(ROWS, RANKS * HEADS, HEAD_DIM, dtype=torch.float64)
    for span, tokens in zip(spans, caches, strict=True):
        whole[span], _ = attend(query[span], tokens, tokens[:, :HEAD_DIM], SCALE)
    return parts, whole
