"""The workloads `dcp-combine` and `dcp-ag-rs`: names, variants and shapes. They need torch only to be built."""

from __future__ import annotations

from profkit.kernels.dcp.exchange import job_shapes
from profkit.kernels.dcp.variants import AG_RS_VARIANTS, COMBINE_SHAPES, COMBINE_VARIANTS
from profkit.kernels.gpu_packages import gpu_packages
from profkit.model.workload import BuildContext, Shape, Step, Workload


def _build_combine(context: BuildContext) -> Step:
    with gpu_packages("dcp-combine"):
        from profkit.kernels.dcp.collective import all_to_all_for
        from profkit.kernels.dcp.step import build_step
    return build_step(context, all_to_all_for(context))


def _build_ag_rs(context: BuildContext) -> Step:
    with gpu_packages("dcp-ag-rs"):
        from profkit.kernels.dcp.ag_rs_step import build_step
        from profkit.kernels.dcp.collective import ag_rs_for
    return build_step(context, ag_rs_for(context))


DCP_COMBINE = Workload(
    name="dcp-combine",
    summary="combining decode-context-parallel attention in MLA layers: GEMM, mask, pack, exchange, unpack",
    variants=COMBINE_VARIANTS,
    shapes=COMBINE_SHAPES,
    build=_build_combine,
    job_shapes=job_shapes,
)

DCP_AG_RS = Workload(
    name="dcp-ag-rs",
    summary="the same combine by all-gather and reduce-scatter: GEMM, mask, gather, correct, scatter",
    variants=AG_RS_VARIANTS,
    shapes={
        **COMBINE_SHAPES,
        "lse": Shape("rows-first", "memory order of the attention's LSE", choices=("rows-first", "heads-first")),
    },
    build=_build_ag_rs,
    job_shapes=job_shapes,
)
