"""Choosing the candidate blocks of every row, in three forms that differ in what they read and launch."""

from __future__ import annotations

from typing import Literal

import torch

from profkit.kernels.dsa.bounds import check_rows, num_blocks
from profkit.kernels.dsa.scores import PR_SCORES, TUNED_SCORES, ScoreLaunch, block_scores
from profkit.kernels.dsa.store import store_candidates
from profkit.kernels.dsa.topk import TUNED_TOPK, TopkLaunch, topk_live
from profkit.model.workload import Scope, no_ranges

#: ``"full-width"`` scores every block; ``"live"`` fills the scores with -inf and scores the live blocks, as vLLM #57459
#: does; ``"bounded"`` scores the live blocks and looks at no others. The first two use torch.topk.
SelectForm = Literal["full-width", "live", "bounded"]


def select_candidate_blocks(
    logits: torch.Tensor,
    starts: torch.Tensor | None,
    ends: torch.Tensor,
    candidates: torch.Tensor,
    block_size: int,
    row_repeat: int = 1,
    form: SelectForm = "bounded",
    scores_launch: ScoreLaunch = TUNED_SCORES,
    topk_launch: TopkLaunch = TUNED_TOPK,
    scope: Scope = no_ranges,
) -> None:
    """Write each row's candidates: the K blocks whose highest logit is highest, the newest token's counting as +inf.

    A block that holds a NaN ranks above all others. So the newest token's block is among the candidates for certain
    where fewer than K other blocks hold a NaN or +inf. With K or more the bounded form leaves it out, as the last of
    those that tie, and in the other forms it may be left out. Blocks without a live column, or with nothing but -inf in
    their live columns, are never chosen. The set is the same in every form but for blocks that tie for the last slots;
    the order of the list is not: torch.topk's is by score, the bounded form's is by block.

    Args:
        logits: ``[R, W]`` fp32, any strides. What columns outside ``[start, min(end, W))`` hold does not matter.
        starts: ``[R / row_repeat]`` int32 or int64, the first column of a row, or None for 0.
        ends: ``[R / row_repeat]`` int32 or int64, the column behind the last token; may lie past W, or before start.
        candidates: ``[R, K]`` int32, any strides: block numbers counted from the row's start; -1 where there are fewer.
        block_size: BS, columns a block.
        row_repeat: rows that share one start and end.
        form: what is launched.
        scores_launch, topk_launch: of the bounded form.
        scope: opens the ranges ``fill`` (of the live form), ``scores`` and ``topk``.

    Raises:
        ValueError: shapes or dtypes that do not fit, or an unknown form.
    """
    check_rows(logits, starts, ends, candidates, block_size, row_repeat)
    rows, width = logits.shape
    slots = candidates.shape[1]
    if rows == 0 or slots == 0:
        return
    if width == 0:
        candidates.fill_(-1)
        return
    if form not in ("full-width", "live", "bounded"):
        raise ValueError(f"select_candidate_blocks has no form {form!r}")
    blocks = num_blocks(width, block_size)
    scores = torch.empty(rows, blocks, dtype=torch.float32, device=logits.device)
    if form == "live":
        with scope("fill"):
            scores.fill_(float("-inf"))
    launch = {"full-width": None, "live": PR_SCORES, "bounded": scores_launch}[form]
    with scope("scores"):
        block_scores(logits, starts, ends, scores, block_size, row_repeat, launch)
    with scope("topk"):
        if form == "bounded":
            topk_live(scores, starts, ends, candidates, width, block_size, row_repeat, topk_launch)
        else:
            values, indices = torch.topk(scores, min(slots, blocks), dim=1)
            store_candidates(values, indices, candidates)
