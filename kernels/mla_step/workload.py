"""The workload `mla-step`: what it is called, its variants and its shapes. Needs torch only to be built."""

from __future__ import annotations

from profkit.kernels.dcp.exchange import EXCHANGE, RANKS, job_shapes
from profkit.kernels.dcp.variants import COMBINE_VARIANTS
from profkit.kernels.gpu_packages import gpu_packages
from profkit.model.workload import BuildContext, Shape, Step, Workload


def _build(context: BuildContext) -> Step:
    with gpu_packages("mla-step"):
        from profkit.kernels.dcp.collective import all_gather, all_to_all_for, is_distributed
        from profkit.kernels.mla_step.step import build_step, repeat_heads
    return build_step(context, all_to_all_for(context), all_gather if is_distributed(context) else repeat_heads)


MLA_STEP = Workload(
    name="mla-step",
    summary="a decode step of MLA layers: projections, attention over one rank's share of the KV cache, combine",
    variants=COMBINE_VARIANTS,
    shapes={
        "rows": Shape(56, "rows of the batch, padding included"),
        "requests": Shape(0, "requests, one row each; 0 means 13 of every 14 rows: 52 of 56, the rest padding"),
        "heads": Shape(96, "attention heads of all ranks together"),
        "ranks": RANKS,
        "exchange": EXCHANGE,
        "layers": Shape(24, "MLA layers in a step"),
        "hidden": Shape(7168, "width of the hidden states"),
        "context": Shape(8192, "tokens of a request over all ranks; timed requests are up to an eighth longer"),
        "q_lora": Shape(1536, "rank of the query projection"),
        "kv_lora": Shape(512, "width of a latent and of one head's attention output, a power of two from 16 up"),
        "qk_nope": Shape(128, "width of a query head's part that is absorbed"),
        "qk_rope": Shape(64, "width of a query head's other part, a power of two from 16 up"),
        "v_head": Shape(128, "width of a head's value after v_up"),
        "dtype": Shape("bf16", "dtype of weights, KV cache and activations", choices=("bf16", "fp16")),
    },
    build=_build,
    job_shapes=job_shapes,
)
