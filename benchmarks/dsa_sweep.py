"""The launches that `dsa_kernels.py` sweeps: of the masks, the flags, the scores and the bounded top-k."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from dsa_arms import BLOCK_SIZE, Point, PointTensors

from profkit.kernels.dsa.bounds import num_blocks
from profkit.kernels.dsa.flags import TUNED_FLAGS, FlagLaunch, flag_candidates
from profkit.kernels.dsa.fused import FusedLaunch, flag_and_mask, tuned_fused
from profkit.kernels.dsa.mask import PR_MASK, MaskLaunch, mask_columns, tuned_mask
from profkit.kernels.dsa.programs import ProgramPolicy
from profkit.kernels.dsa.scores import PR_SCORES, TUNED_SCORES, ScoreLaunch, block_scores
from profkit.kernels.dsa.topk import TUNED_TOPK, TopkLaunch, topk_live

#: The pull request's floor of 8 and total of 8192, down and up, each with the other as it is.
PR_FLOORS = (1, 2, 4, 8, 16, 32)
PR_TOTALS = (512, 1024, 2048, 4096, 8192, 16384, 32768)
TOTALS = (528, 1024, 1536, 2048, 4096, 8192)
Launch = MaskLaunch | FlagLaunch | FusedLaunch | ScoreLaunch | TopkLaunch


@dataclass(frozen=True)
class Candidate:
    """One launch of one kernel, and one call of it.

    Args:
        programs: a row, at the point that is swept.
        default: the launch that is used where none is given.
    """

    kernel: str
    launch: Launch
    programs: int
    default: bool
    call: Callable[[PointTensors, int], None]

    @property
    def numbers(self) -> dict[str, Any]:
        """The launch in numbers, and the programs a row that it comes to."""
        fields = asdict(self.launch)
        return {**fields.pop("programs"), **fields, "programs": self.programs, "default": self.default}


def candidates(point: Point) -> list[Candidate]:
    """All launches to time at a point; of those that come to the same grid and tile only the first."""
    found: dict[Any, Candidate] = {}
    for candidate in [*_masks(point), *_flags(point), *_fused(point), *_scores(point), *_topk(point)]:
        same = replace(candidate.launch, programs=ProgramPolicy(1, candidate.programs))
        found.setdefault((candidate.kernel, same), candidate)
    return list(found.values())


def _masks(point: Point) -> Iterator[Candidate]:
    tuned = tuned_mask(point.rows, point.width)
    launches = [
        tuned,
        PR_MASK,
        *(replace(PR_MASK, programs=ProgramPolicy(floor, PR_MASK.programs.total)) for floor in PR_FLOORS),
        *(replace(PR_MASK, programs=ProgramPolicy(PR_MASK.programs.floor, total)) for total in PR_TOTALS),
        # Below a floor of 8 many rows have fewer programs only where the total is low too.
        *(replace(PR_MASK, programs=ProgramPolicy(floor, 1024)) for floor in (1, 2, 4)),
        *(
            replace(tuned, programs=ProgramPolicy(1, total), tile=tile, warps=warps)
            for total, tile, warps in itertools.product(TOTALS, (1024, 2048, 4096, 8192), (4, 8))
        ),
        *(replace(tuned, tile=tile, early=early) for tile in (2048, 4096) for early in (False, True)),
    ]
    for launch in launches:

        def call(tensors: PointTensors, buffer: int, launch: MaskLaunch = launch) -> None:
            logits, flags = tensors.logits[buffer], tensors.flags[buffer]
            mask_columns(logits, flags, None, tensors.ends, BLOCK_SIZE, launch=launch)

        programs = launch.programs.row_programs(point.rows, -(-point.width // launch.tile))
        yield Candidate("mask", launch, programs, launch == tuned, call)


def _flags(point: Point) -> Iterator[Candidate]:
    launches = [
        *(
            FlagLaunch(ProgramPolicy(1, total), least_run, warps, candidate_step=2048)
            for total, least_run, warps in itertools.product((264, 512, 1024), (1024, 4096), (4, 8))
        ),
        replace(TUNED_FLAGS, candidate_step=1024),
    ]
    for launch in (TUNED_FLAGS, *launches):

        def call(tensors: PointTensors, buffer: int, launch: FlagLaunch = launch) -> None:
            flags, listed = tensors.flags[buffer], tensors.candidates
            flag_candidates(flags, listed, None, tensors.ends, point.width, BLOCK_SIZE, launch=launch)

        yield Candidate("flags", launch, _runs(point, launch), launch == TUNED_FLAGS, call)


def _fused(point: Point) -> Iterator[Candidate]:
    tuned = tuned_fused(point.rows)
    launches = [
        *(
            replace(tuned, programs=ProgramPolicy(1, total), tile=tile, warps=warps)
            for total, (tile, warps) in itertools.product(
                (528, 1024, 2048), ((2048, 4), (4096, 4), (4096, 8), (8192, 8))
            )
        ),
        *(replace(tuned, least_run=least_run) for least_run in (256, 512, 1024)),
    ]
    for launch in (tuned, *launches):

        def call(tensors: PointTensors, buffer: int, launch: FusedLaunch = launch) -> None:
            flag_and_mask(tensors.logits[buffer], tensors.candidates, None, tensors.ends, BLOCK_SIZE, launch=launch)

        yield Candidate("fused", launch, _runs(point, launch), launch == tuned, call)


def _scores(point: Point) -> Iterator[Candidate]:
    launches = [
        *(
            ScoreLaunch(ProgramPolicy(1, total), tile, 4, True, early_columns=0)
            for total, tile in itertools.product((1024, 2048, 4096, 8192), (128, 256, 512))
        ),
        replace(TUNED_SCORES, early_columns=1 << 30),
    ]
    for launch in (TUNED_SCORES, PR_SCORES, *launches):

        def call(tensors: PointTensors, buffer: int, launch: ScoreLaunch = launch) -> None:
            block_scores(tensors.source, None, tensors.ends, tensors.scratch_scores, BLOCK_SIZE, launch=launch)

        programs = launch.programs.row_programs(point.rows, -(-num_blocks(point.width, BLOCK_SIZE) // launch.tile))
        yield Candidate("scores", launch, programs, launch == TUNED_SCORES, call)


def _topk(point: Point) -> Iterator[Candidate]:
    launches = [
        *(
            replace(TUNED_TOPK, programs=ProgramPolicy(1, total), cut_tile=tile, warps=warps)
            for total, (tile, warps) in itertools.product((128, 256, 528, 1024), ((2048, 8), (1024, 4), (2048, 16)))
        ),
        *(replace(TUNED_TOPK, tile=tile, warps=warps) for tile, warps in ((1024, 8), (2048, 4), (2048, 8), (2048, 16))),
    ]
    for launch in (TUNED_TOPK, *launches):

        def call(tensors: PointTensors, buffer: int, launch: TopkLaunch = launch) -> None:
            out = tensors.scratch_candidates
            topk_live(tensors.scores, None, tensors.ends, out, point.width, BLOCK_SIZE, launch=launch)

        programs = launch.programs.row_programs(point.rows, -(-num_blocks(point.width, BLOCK_SIZE) // launch.cut_tile))
        yield Candidate("top-k", launch, programs, launch == TUNED_TOPK, call)


def _runs(point: Point, launch: FlagLaunch | FusedLaunch) -> int:
    return launch.programs.row_programs(point.rows, -(-num_blocks(point.width, BLOCK_SIZE) // launch.least_run))
