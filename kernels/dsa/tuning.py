"""The launch configuration of the live-range mask kernel as a problem that a sweep can run."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from profkit.kernels.dsa.bounds import num_blocks
from profkit.kernels.dsa.checksum import row_checksums
from profkit.kernels.dsa.flags import empty_flags, flag_candidates
from profkit.kernels.dsa.inputs import LogitSource
from profkit.kernels.dsa.mask import PR_MASK, MaskLaunch, can_vectorise, mask_columns, tuned_mask
from profkit.kernels.dsa.programs import ProgramPolicy
from profkit.kernels.dsa.reference import reference_mask
from profkit.kernels.dsa.select import select_candidate_blocks
from profkit.kernels.dsa.step import checked_sizes
from profkit.model.workload import BuildContext, Configuration, Problem

_MOST_TILE = 1 << 16
_MOST_WARPS = 32


def build_problem(context: BuildContext) -> Problem:
    """One call of the mask kernel on one layer's logits, every row at the context of the shapes.

    The output is a checksum of every row over the whole width, so that a write behind the live range shows too. A
    full-width mask is no configuration of this kernel. Where every block would be a candidate the first one is none:
    a mask that has nothing to write is right without running.

    Raises:
        ProfkitError: shapes that do not fit together.
    """
    sizes = checked_sizes(context)
    rows, width, block_size = sizes.rows, sizes.width, sizes.block_size
    generator = torch.Generator(device="cpu").manual_seed(context.seed)
    pristine = LogitSource(rows, width, 1, block_size, context.device, generator).layer(0)
    logits = pristine.clone(memory_format=torch.contiguous_format)
    ends = torch.full((rows,), sizes.context, dtype=torch.int32, device=context.device)
    candidates = torch.empty(rows, sizes.candidates, dtype=torch.int32, device=context.device)
    select_candidate_blocks(logits, None, ends, candidates, block_size)
    kept_columns = sizes.candidates * block_size
    if kept_columns >= sizes.context:
        candidates[candidates == 0] = -1
        kept_columns = max(sizes.context - block_size, 0)
    flags = empty_flags(rows, width, block_size, context.device)
    flag_candidates(flags, candidates, None, ends, width, block_size)
    vectorises = can_vectorise(logits, None, block_size)

    def run(configuration: Configuration) -> None:
        mask_columns(logits, flags, None, ends, block_size, launch=_launch(configuration))

    def checksums(masked: torch.Tensor) -> Mapping[str, torch.Tensor]:
        return {"logits": row_checksums(masked, [width] * rows)}

    def rejects(configuration: Configuration) -> str | None:
        if configuration["early"] not in (0, 1):
            return "early must be 0 or 1"
        for name in ("floor", "total", "tile", "warps", "vector"):
            value = configuration[name]
            if value < 1:
                return f"{name} must be at least 1"
            if name in ("tile", "warps") and value & (value - 1):
                return f"{name} must be a power of two"
        if configuration["tile"] > _MOST_TILE or configuration["warps"] > _MOST_WARPS:
            return f"tile must be at most {_MOST_TILE} and warps at most {_MOST_WARPS}"
        if configuration["vector"] not in (1, 4):
            return "vector must be 1 or 4"
        if configuration["vector"] == 4 and not vectorises:
            return "vector 4 needs a width and a block size that are multiples of 4"
        return None

    return Problem(
        run=run,
        outputs=lambda: checksums(logits),
        reference=lambda: checksums(reference_mask(pristine, None, ends, candidates, block_size)),
        poison=lambda: _restore(logits, pristine),
        rejects=rejects,
        known={"pr": _configuration(PR_MASK), "default": _configuration(tuned_mask(rows, width))},
        least_bytes=rows * (4 * (sizes.context - kept_columns) + num_blocks(sizes.context, block_size)),
    )


def _restore(logits: torch.Tensor, pristine: torch.Tensor) -> None:
    # Unmasked logits: a configuration that leaves columns unmasked then shows.
    logits.copy_(pristine)


def _launch(configuration: Configuration) -> MaskLaunch:
    return MaskLaunch(
        programs=ProgramPolicy(configuration["floor"], configuration["total"]),
        tile=configuration["tile"],
        warps=configuration["warps"],
        vector=configuration["vector"],
        early=bool(configuration["early"]),
    )


def _configuration(launch: MaskLaunch) -> dict[str, int]:
    return {
        "floor": launch.programs.floor,
        "total": launch.programs.total,
        "tile": launch.tile,
        "warps": launch.warps,
        "vector": launch.vector,
        "early": int(launch.early),
    }
