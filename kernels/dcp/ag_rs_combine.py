"""One layer's all-gather and reduce-scatter combine, in every variant: mask, gather, correct, scatter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from profkit.errors import ProfkitError
from profkit.kernels.dcp.ag_rs import correct, mask_copy
from profkit.kernels.dcp.combine import Metadata
from profkit.kernels.dcp.mask import mask_dcp_empty_shards_
from profkit.model.workload import Scope


@dataclass(frozen=True)
class Collectives:
    """The two exchanges, each on the current stream.

    Args:
        all_gather: from ``source [R, H]`` to ``target [N, R, H]``; ``target[n]`` becomes rank n's source.
        reduce_scatter: from ``source [N, R, h, D]`` to ``target [R, h, D]``, which on rank n becomes the sum of all
            ranks' ``source[n]``.
    """

    all_gather: Callable[[torch.Tensor, torch.Tensor], None]
    reduce_scatter: Callable[[torch.Tensor, torch.Tensor], None]


def local_all_gather(source: torch.Tensor, target: torch.Tensor) -> None:
    """The stand-in on one GPU: every rank is taken to hold this rank's LSEs, all of which are written; one kernel."""
    target.copy_(source)


def local_reduce_scatter(source: torch.Tensor, target: torch.Tensor) -> None:
    """The stand-in on one GPU: what this rank has for the N ranks stands in for what N ranks have for it; one kernel.

    The sum is taken in fp32 and rounded once.
    """
    torch.sum(source, 0, out=target)


LOCAL = Collectives(local_all_gather, local_reduce_scatter)


@dataclass(frozen=True)
class AgRsBuffers:
    """What one layer's combine reads and writes.

    Args:
        out: ``[R, H, D]``, the partial attention output of this rank.
        lse: ``[R, H]`` fp32, its LSE; the eager mask overwrites it where it is contiguous.
        masked: ``[R, H]`` fp32; the fused variant's.
        gathered: ``[N, R, H]`` fp32.
        corrected: ``[N, R, h, D]``.
        result: ``[R, h, D]``.
    """

    out: torch.Tensor
    lse: torch.Tensor
    masked: torch.Tensor
    gathered: torch.Tensor
    corrected: torch.Tensor
    result: torch.Tensor


_Mask = Callable[[AgRsBuffers], torch.Tensor]


class AgRsCombine:
    """The combine of every layer of a step, in one variant.

    Args:
        workload: named in errors.
        variant: one of `AG_RS_VARIANTS`.
        metadata: what all layers share.
        collectives: the exchanges.

    Raises:
        ProfkitError: an unknown variant.
    """

    def __init__(self, workload: str, variant: str, metadata: Metadata, collectives: Collectives = LOCAL) -> None:
        self._collectives = collectives
        arms = _arms(metadata)
        if variant not in arms:
            raise ProfkitError(f"{workload} has no variant {variant!r}. It has: {', '.join(arms)}.")
        self._mask = arms[variant]

    def run(self, scope: Scope, buffers: AgRsBuffers) -> None:
        """Launch one layer's combine on the current stream, inside the range ``combine``."""
        with scope("combine"):
            with scope("mask"):
                lse = self._mask(buffers)
            with scope("gather"):
                self._collectives.all_gather(lse, buffers.gathered)
            with scope("correct"):
                correct(buffers.out, lse, buffers.gathered, buffers.corrected)
            with scope("scatter"):
                self._collectives.reduce_scatter(buffers.corrected, buffers.result)


def _arms(metadata: Metadata) -> dict[str, _Mask]:
    """How each variant comes to a contiguous LSE that is masked, or not."""

    def eager(layer: AgRsBuffers) -> torch.Tensor:
        return mask_dcp_empty_shards_(layer.lse.contiguous(), metadata.seq_lens, metadata.query_start_loc)

    def fused(layer: AgRsBuffers) -> torch.Tensor:
        return mask_copy(layer.lse, layer.masked, metadata.seq_lens, metadata.query_start_loc)

    def dropped(layer: AgRsBuffers) -> torch.Tensor:
        return layer.lse.contiguous()

    return {"eager": eager, "fused": fused, "dropped": dropped}
