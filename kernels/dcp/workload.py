"""The workload `dcp-combine`: what it is called, its variants and its shapes. Needs torch only to be built."""

from __future__ import annotations

from profkit.kernels.dcp.exchange import EXCHANGE, job_shapes
from profkit.kernels.dcp.variants import COMBINE_VARIANTS
from profkit.kernels.gpu_packages import gpu_packages
from profkit.workload import BuildContext, Shape, Step, Workload


def _build(context: BuildContext) -> Step:
    with gpu_packages("dcp-combine"):
        from profkit.kernels.dcp.collective import collective_for
        from profkit.kernels.dcp.step import build_step
    return build_step(context, collective_for(context))


DCP_COMBINE = Workload(
    name="dcp-combine",
    summary="combining decode-context-parallel attention in MLA layers: GEMM, mask, pack, exchange, unpack",
    variants=COMBINE_VARIANTS,
    shapes={
        "rows": Shape(56, "rows of the batch, padding included"),
        "requests": Shape(0, "requests, one row each; 0 means 13 of every 14 rows: 52 of 56, the rest padding"),
        "heads": Shape(96, "attention heads of all ranks together"),
        "ranks": Shape(8, "ranks that share the KV cache; the processes where the exchange is between them"),
        "exchange": EXCHANGE,
        "head_dim": Shape(512, "width of one head's output, a power of two"),
        "layers": Shape(24, "MLA layers in a step"),
        "gemm_in": Shape(1536, "input width of the layer's GEMM"),
        "gemm_out": Shape(2304, "output width of the layer's GEMM (q_b: 12 heads of 192)"),
        "dtype": Shape("bf16", "dtype of the attention output and the GEMM", choices=("bf16", "fp16", "fp32")),
    },
    build=_build,
    job_shapes=job_shapes,
)
