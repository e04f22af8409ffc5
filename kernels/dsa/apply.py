"""Masking the logits outside the candidate blocks, in four forms that differ in what they write and launch."""

from __future__ import annotations

from typing import Literal

import torch

from profkit.kernels.dsa.bounds import check_rows
from profkit.kernels.dsa.flags import TUNED_FLAGS, FlagLaunch, empty_flags, flag_candidates
from profkit.kernels.dsa.fused import FusedLaunch, flag_and_mask
from profkit.kernels.dsa.mask import PR_MASK, MaskLaunch, mask_columns
from profkit.model.workload import Scope, no_ranges

#: ``"full-width"`` clears all flags and writes every column; ``"live"`` clears all flags and writes live columns, as
#: vLLM #57459 does; ``"bounded"`` clears the flags of live blocks only; ``"one-kernel"`` does that and the mask at
#: once.
MaskForm = Literal["full-width", "live", "bounded", "one-kernel"]


def apply_candidate_mask(
    logits: torch.Tensor,
    starts: torch.Tensor | None,
    ends: torch.Tensor,
    candidates: torch.Tensor,
    block_size: int,
    row_repeat: int = 1,
    form: MaskForm = "bounded",
    flag_launch: FlagLaunch = TUNED_FLAGS,
    mask_launch: MaskLaunch | None = None,
    fused_launch: FusedLaunch | None = None,
    scope: Scope = no_ranges,
) -> None:
    """Set every column of a row that lies in none of its candidate blocks to -inf, in place.

    Column c is kept where ``start <= c < min(end, W)`` and its block is a candidate; the last column is also kept
    where a candidate begins at or past the width. All forms agree on columns before ``min(end, W)``, of which those
    before the start become -inf. Behind it the full-width form writes -inf and the others write nothing: whoever reads
    the logits must stop at the same ends.

    Args:
        logits: ``[R, W]`` fp32, any strides.
        starts, ends, candidates, block_size, row_repeat: as `select.select_candidate_blocks` has them; candidates may
            be in any order, repeated, and past the width.
        form: what is launched.
        flag_launch, mask_launch: of the bounded form; a mask_launch of None is chosen by the shapes.
        fused_launch: of the one kernel; None is chosen by the shapes.
        scope: opens the ranges ``flags``, where these have a kernel of their own, and ``mask``.

    Raises:
        ValueError: shapes or dtypes that do not fit, or an unknown form.
    """
    check_rows(logits, starts, ends, candidates, block_size, row_repeat)
    rows, width = logits.shape
    if rows == 0 or width == 0:
        return
    if form not in ("full-width", "live", "bounded", "one-kernel"):
        raise ValueError(f"apply_candidate_mask has no form {form!r}")
    if form == "one-kernel":
        with scope("mask"):
            flag_and_mask(logits, candidates, starts, ends, block_size, row_repeat, fused_launch)
        return
    bounded, full_width = form == "bounded", form == "full-width"
    flags = empty_flags(rows, width, block_size, logits.device)
    with scope("flags"):
        launch = flag_launch if bounded else None
        flag_candidates(flags, candidates, starts, ends, width, block_size, row_repeat, launch)
    with scope("mask"):
        chosen = mask_launch if bounded else PR_MASK
        mask_columns(logits, flags, starts, ends, block_size, row_repeat, chosen, full_width=full_width)
