"""Selections: from the groups of tokens that an indexer chose for a row to the token positions that the kernel reads.

The indexer scores groups of `RATIO` adjacent tokens. A row at position t sees the complete groups up to t, of which it
is given the best, and always the tokens of the group that is still open.
"""

from __future__ import annotations

import torch

#: Tokens in a group: the compression ratio of the indexer.
RATIO = 4


def selection_width(budget: int) -> int:
    """The most tokens that one row selects: the budget, and an open group of ``RATIO - 1``.

    Args:
        budget: tokens that chosen groups may hold together, a multiple of `RATIO`.
    """
    return budget + RATIO - 1


def visible_groups(positions: torch.Tensor) -> torch.Tensor:
    """How many complete groups a row at each position sees."""
    return (positions + 1) // RATIO


def expand(groups: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """The token positions that each row attends to.

    Args:
        groups: ``[R, K]``, chosen groups in rank order; of row r the first ``min(visible_groups, K)`` count.
        positions: ``[R]``, the rows' own positions, from 0.

    Returns:
        ``[R, K * RATIO + RATIO]`` int32: the tokens of the chosen groups in rank order, then the open group's, then -1;
        and in the last column how many there are.
    """
    rows, chosen = groups.shape
    width = selection_width(chosen * RATIO)
    slot = torch.arange(width, device=groups.device)
    in_groups = (visible_groups(positions).clamp(max=chosen) * RATIO).unsqueeze(1)
    count = in_groups + ((positions + 1) % RATIO).unsqueeze(1)
    group = groups.long()[:, (slot // RATIO).clamp(max=chosen - 1)]
    tail = RATIO * visible_groups(positions).unsqueeze(1) + slot - in_groups
    tokens = torch.where(slot < in_groups, group * RATIO + slot % RATIO, tail)
    tokens = torch.where(slot < count, tokens, -1)
    return torch.cat([tokens, count.expand(rows, 1)], dim=1).to(torch.int32)
