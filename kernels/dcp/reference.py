"""What the combine must compute, in plain torch and double precision: slow, short, and independent of the kernels."""

from __future__ import annotations

import math

import torch


def attend(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Multi-query attention of one request over some of its tokens.

    Args:
        query: ``[q, H, E]``.
        keys: ``[T, E]``, shared by all heads; T may be 0.
        values: ``[T, D]``.
        scale: factor of the scores.

    Returns:
        Output ``[q, H, D]`` and natural LSE ``[q, H]``, float64. Without tokens the output is 0 and the LSE -inf.
    """
    scores = torch.einsum("qhe,te->qht", query.double(), keys.double()) * scale
    lse = torch.logsumexp(scores, dim=-1)
    weights = torch.exp(scores - lse.unsqueeze(-1))
    return torch.einsum("qht,td->qhd", weights, values.double()), lse


def combine(partial: torch.Tensor, lse: torch.Tensor, *, base_2: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Combine partial attention outputs by their LSEs.

    Args:
        partial: ``[N, ..., D]``; ignored, even NaN, where its weight is zero.
        lse: ``[N, ...]``; NaN and +inf count as -inf.
        base_2: the LSEs are base-2 logarithms.

    Returns:
        ``[..., D]`` and the LSE ``[...]`` in the same base, float64; 0 and -inf where every part is empty.
    """
    unit = math.log(2) if base_2 else 1.0
    natural = lse.double() * unit
    natural = torch.where(torch.isnan(natural) | (natural == math.inf), -math.inf, natural)
    total = torch.logsumexp(natural, dim=0)
    weight = torch.nan_to_num(torch.exp(natural - total), nan=0.0).unsqueeze(-1)
    counted = torch.where(weight == 0, 0.0, partial.double())
    return (counted * weight).sum(0), total / unit
