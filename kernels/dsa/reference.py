"""What the kernels must compute, in plain torch over whole rows: written from the definitions, sharing no code."""

from __future__ import annotations

import torch


def row_bounds(
    logits: torch.Tensor, starts: torch.Tensor | None, ends: torch.Tensor, row_repeat: int
) -> list[tuple[int, int]]:
    """(start, end) of every row, as given: the end may lie past the width."""
    entries = ends.tolist()
    first = [0] * len(entries) if starts is None else starts.tolist()
    return [(int(first[row // row_repeat]), int(entries[row // row_repeat])) for row in range(logits.shape[0])]


def reference_scores(
    logits: torch.Tensor, starts: torch.Tensor | None, ends: torch.Tensor, block_size: int, row_repeat: int = 1
) -> torch.Tensor:
    """``[R, ceil(W / BS)]`` fp64: the highest live logit of each block, NaN with a NaN, +inf for the newest block."""
    rows, width = logits.shape
    blocks = (width + block_size - 1) // block_size
    scores = torch.full((rows, blocks), float("-inf"), dtype=torch.float64, device=logits.device)
    for row, (start, end) in enumerate(row_bounds(logits, starts, ends, row_repeat)):
        live = logits[row, start : max(min(end, width), start)].double()
        padded = torch.full((blocks * block_size,), float("-inf"), dtype=torch.float64, device=logits.device)
        padded[: live.numel()] = live
        scores[row] = padded.view(blocks, block_size).amax(dim=1)
        if end > start and (end - start - 1) // block_size < blocks:
            scores[row, (end - start - 1) // block_size] = float("inf")
    return scores


def reference_candidates(scores: torch.Tensor, slots: int) -> torch.Tensor:
    """``[R, K]`` int32: the highest scores' blocks by a stable sort, -1 for those of -inf and where there are fewer."""
    # A stable ascending sort of the negated scores puts NaN last, so NaN is mapped above +inf first.
    rank = torch.where(scores.isnan(), 2.0, torch.where(scores == float("inf"), 1.0, 0.0))
    order = torch.argsort(torch.nan_to_num(-scores, nan=0.0), dim=1, stable=True)
    order = torch.gather(order, 1, torch.argsort(-torch.gather(rank, 1, order), dim=1, stable=True))
    chosen = order[:, :slots]
    chosen = torch.where(torch.gather(scores, 1, chosen) == float("-inf"), -1, chosen)
    padded = torch.full((scores.shape[0], slots), -1, dtype=torch.int32, device=scores.device)
    padded[:, : chosen.shape[1]] = chosen.to(torch.int32)
    return padded


def reference_mask(
    logits: torch.Tensor,
    starts: torch.Tensor | None,
    ends: torch.Tensor,
    candidates: torch.Tensor,
    block_size: int,
    row_repeat: int = 1,
    full_width: bool = False,
) -> torch.Tensor:
    """A masked copy of `logits`; behind the last live column it is as given unless `full_width`."""
    width = logits.shape[1]
    column = torch.arange(width, device=logits.device)
    masked = logits.clone()
    for row, (start, end) in enumerate(row_bounds(logits, starts, ends, row_repeat)):
        chosen = candidates[row][candidates[row] >= 0].long()
        block = (column - start).div(block_size, rounding_mode="floor")
        kept = torch.isin(block, chosen)
        if bool((start + chosen * block_size >= width).any()):
            kept[width - 1] = True
        kept &= (column >= start) & (column < end)
        written = ~kept if full_width else ~kept & (column < end)
        masked[row, written] = float("-inf")
    return masked
