"""The arms of `dsa_kernels.py`: what each launches, and the bytes and operations that its task takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from dsa_control import set_flags_only

from profkit.kernels.dsa.apply import apply_candidate_mask
from profkit.kernels.dsa.bounds import num_blocks
from profkit.kernels.dsa.flags import empty_flags, flag_candidates
from profkit.kernels.dsa.inputs import LogitSource
from profkit.kernels.dsa.mask import PR_MASK, mask_columns, tuned_mask
from profkit.kernels.dsa.scores import PR_SCORES, block_scores
from profkit.kernels.dsa.select import select_candidate_blocks
from profkit.kernels.dsa.store import store_candidates
from profkit.kernels.dsa.topk import topk_live

BLOCK_SIZE = 8
CANDIDATES = 2048


@dataclass(frozen=True)
class Point:
    """One size: every row has `context` live columns of `width`."""

    rows: int
    width: int
    context: int

    @property
    def logit_bytes(self) -> int:
        return 4 * self.rows * self.width

    def __str__(self) -> str:
        return f"{self.rows} rows x {self.width} columns, context {self.context}"


class PointTensors:
    """The inputs of one point; masks write to `logits`, which are the same whether masked once or often.

    Attributes:
        source: ``[R, W]`` fp32, never written.
        logits, flags: one for each buffer in turn; the flags are set for `candidates`.
        scratch_flags: as many, that no mask reads.
        candidates, scores: what the bounded form makes of the source; scores are -inf behind the live blocks.
    """

    def __init__(self, point: Point, copies: int, device: str) -> None:
        self.block_size = BLOCK_SIZE
        generator = torch.Generator().manual_seed(0)
        rows, width = point.rows, point.width
        pristine = LogitSource(rows, width, 1, BLOCK_SIZE, device, generator).layer(0)
        self.source = pristine.clone(memory_format=torch.contiguous_format)
        self.logits = [self.source.clone() for _ in range(copies)]
        self.flags = [empty_flags(rows, width, BLOCK_SIZE, device) for _ in range(copies)]
        self.scratch_flags = [torch.empty_like(flags) for flags in self.flags]
        self.ends = torch.full((rows,), point.context, dtype=torch.int32, device=device)
        self.candidates = torch.empty(rows, CANDIDATES, dtype=torch.int32, device=device)
        self.scratch_candidates = torch.empty_like(self.candidates)
        blocks = num_blocks(width, BLOCK_SIZE)
        self.scores = torch.full((rows, blocks), float("-inf"), device=device)
        self.scratch_scores = torch.empty_like(self.scores)
        block_scores(self.source, None, self.ends, self.scores, BLOCK_SIZE)
        select_candidate_blocks(self.source, None, self.ends, self.candidates, BLOCK_SIZE)
        for flags in self.flags:
            flag_candidates(flags, self.candidates, None, self.ends, width, BLOCK_SIZE)


@dataclass(frozen=True)
class Arm:
    """One arm: a call of it, and what its own form of the task must read, write and decide at least.

    Args:
        call: given the tensors and the number of a buffer.
        operations: comparisons: one a column or a score that is looked at.
    """

    name: str
    call: Callable[[PointTensors, int], None]
    read_bytes: int
    written_bytes: int
    operations: int


def arms(point: Point) -> list[Arm]:
    """All arms of a point."""
    return [*mask_arms(point), *flag_arms(point), *whole_mask_arms(point), *select_arms(point)]


def mask_arms(point: Point) -> Iterator[Arm]:
    """The mask kernel alone, on flags that are there."""
    rows, live = point.rows, point.context
    kept = min(live, CANDIDATES * BLOCK_SIZE)
    flag_bytes = rows * num_blocks(live, BLOCK_SIZE)
    launches = {
        "mask, full width": (PR_MASK, True),
        "mask, full width, vector stores": (replace(PR_MASK, vector=4), True),
        "mask, live, PR constants": (PR_MASK, False),
        "mask, live, PR const., vector": (replace(PR_MASK, vector=4), False),
        "mask, live, tuned": (tuned_mask(rows, point.width), False),
        "mask, live, tuned, again": (tuned_mask(rows, point.width), False),
    }
    for name, (launch, full_width) in launches.items():
        columns = point.width if full_width else live

        def call(tensors: PointTensors, buffer: int, launch=launch, full_width=full_width) -> None:  # type: ignore[no-untyped-def]
            logits, flags = tensors.logits[buffer], tensors.flags[buffer]
            mask_columns(logits, flags, None, tensors.ends, BLOCK_SIZE, launch=launch, full_width=full_width)

        yield Arm(name, call, flag_bytes, 4 * rows * (columns - kept), rows * columns)


def flag_arms(point: Point) -> Iterator[Arm]:
    """The flags alone; without the clear as a control, whose flags are of no use."""
    rows, blocks = point.rows, num_blocks(point.context, BLOCK_SIZE)
    live_flags = rows * (blocks + 1)
    listed = 4 * rows * CANDIDATES

    def full(tensors: PointTensors, buffer: int) -> None:
        flags, candidates = tensors.flags[buffer], tensors.candidates
        flag_candidates(flags, candidates, None, tensors.ends, point.width, BLOCK_SIZE, launch=None)

    def live(tensors: PointTensors, buffer: int) -> None:
        flag_candidates(tensors.flags[buffer], tensors.candidates, None, tensors.ends, point.width, BLOCK_SIZE)

    def no_clear(tensors: PointTensors, buffer: int) -> None:
        set_flags_only(tensors.scratch_flags[buffer], tensors.candidates, tensors.ends, point.width, BLOCK_SIZE)

    yield Arm("flags, full width", full, listed, rows * (num_blocks(point.width, BLOCK_SIZE) + 1), rows * CANDIDATES)
    yield Arm("flags, live", live, listed, live_flags, rows * CANDIDATES)
    yield Arm("flags, live, again", live, listed, live_flags, rows * CANDIDATES)
    yield Arm("flags, live, no clear", no_clear, listed, rows * min(blocks, CANDIDATES), rows * CANDIDATES)


def whole_mask_arms(point: Point) -> Iterator[Arm]:
    """Flags and mask together, as a layer runs them. The task reads the candidates and writes -inf; flags are means."""
    rows, live = point.rows, point.context
    listed = 4 * rows * CANDIDATES
    kept = min(live, CANDIDATES * BLOCK_SIZE)
    for form in ("full-width", "live", "bounded", "one-kernel"):
        columns = point.width if form == "full-width" else live

        def call(tensors: PointTensors, buffer: int, form=form) -> None:  # type: ignore[no-untyped-def]
            apply_candidate_mask(tensors.logits[buffer], None, tensors.ends, tensors.candidates, BLOCK_SIZE, form=form)

        yield Arm(f"flags + mask, {form}", call, listed, 4 * rows * (columns - kept), rows * columns)


def select_arms(point: Point) -> Iterator[Arm]:
    """Choosing the candidates: scores alone, top-k alone, and the three forms as a layer runs them."""
    rows, live = point.rows, point.context
    all_scores, live_scores = (4 * rows * num_blocks(columns, BLOCK_SIZE) for columns in (point.width, live))
    listed = 4 * rows * CANDIDATES
    columns, blocks = rows * live, rows * num_blocks(live, BLOCK_SIZE)

    def scores_full(tensors: PointTensors, buffer: int) -> None:
        block_scores(tensors.source, None, tensors.ends, tensors.scratch_scores, BLOCK_SIZE, launch=None)

    def scores_pr(tensors: PointTensors, buffer: int) -> None:
        tensors.scratch_scores.fill_(float("-inf"))
        block_scores(tensors.source, None, tensors.ends, tensors.scratch_scores, BLOCK_SIZE, launch=PR_SCORES)

    def scores_tuned(tensors: PointTensors, buffer: int) -> None:
        block_scores(tensors.source, None, tensors.ends, tensors.scratch_scores, BLOCK_SIZE)

    def torch_topk(tensors: PointTensors, buffer: int) -> None:
        values, indices = torch.topk(tensors.scores, min(CANDIDATES, tensors.scores.shape[1]), dim=1)
        store_candidates(values, indices, tensors.scratch_candidates)

    def bounded_topk(tensors: PointTensors, buffer: int) -> None:
        topk_live(tensors.scores, None, tensors.ends, tensors.scratch_candidates, point.width, BLOCK_SIZE)

    yield Arm("scores, full width", scores_full, 4 * columns, all_scores, columns)
    yield Arm("scores, live, PR (fill + scores)", scores_pr, 4 * columns, all_scores, columns)
    yield Arm("scores, live, tuned", scores_tuned, 4 * columns, live_scores, columns)
    yield Arm("scores, live, tuned, again", scores_tuned, 4 * columns, live_scores, columns)
    yield Arm("top-k, torch.topk + store", torch_topk, all_scores, listed, rows * num_blocks(point.width, BLOCK_SIZE))
    yield Arm("top-k, bounded", bounded_topk, live_scores, listed, blocks)
    for form in ("full-width", "live", "bounded"):

        def call(tensors: PointTensors, buffer: int, form=form) -> None:  # type: ignore[no-untyped-def]
            select_candidate_blocks(
                tensors.source, None, tensors.ends, tensors.scratch_candidates, BLOCK_SIZE, form=form
            )

        yield Arm(f"select, {form}", call, 4 * columns, listed, columns + blocks)
