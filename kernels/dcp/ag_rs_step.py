"""Building a step of `dcp-ag-rs`: its inputs, its buffers, and what each variant launches."""

from __future__ import annotations

from functools import partial

import torch

from profkit.kernels.dcp.ag_rs_combine import LOCAL, AgRsBuffers, AgRsCombine, Collectives
from profkit.kernels.dcp.inputs import Inputs
from profkit.kernels.dcp.layout import heads_per_rank
from profkit.model.workload import BuildContext, Step


def build_step(context: BuildContext, collectives: Collectives = LOCAL) -> Step:
    """One step of `dcp-ag-rs`; see `Inputs` for what it works on.

    Args:
        context: shapes, variant, device and seed.
        collectives: the exchanges; real ones on several GPUs.

    Raises:
        ProfkitError: an unknown variant, or shapes that do not fit together.
    """
    inputs = Inputs("dcp-ag-rs", context, lse_heads_first=context.shapes["lse"] == "heads-first")
    sizes = inputs.sizes
    combine = AgRsCombine("dcp-ag-rs", context.variant, inputs.metadata, collectives)
    heads = heads_per_rank(sizes.heads, sizes.ranks)
    buffers = [
        AgRsBuffers(
            out=layer.out,
            lse=layer.lse,
            masked=torch.zeros(sizes.rows, sizes.heads, device=context.device),
            gathered=torch.zeros(sizes.ranks, sizes.rows, sizes.heads, device=context.device),
            corrected=inputs.zeros(sizes.ranks, sizes.rows, heads, sizes.head_dim),
            result=inputs.zeros(sizes.rows, heads, sizes.head_dim),
        )
        for layer in inputs.layers
    ]
    runs = [partial(combine.run, buffers=layer) for layer in buffers]
    return inputs.step(runs, [layer.result for layer in buffers])
