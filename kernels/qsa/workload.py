"""The workload `qsa-attention`: what it is called, its variants, shapes and launches. Needs torch only to be built."""

from __future__ import annotations

from profkit.kernels.gpu_packages import gpu_packages
from profkit.kernels.qsa.regions import PARAMETERS, SWEPT
from profkit.kernels.qsa.variants import VARIANTS
from profkit.model.workload import BuildContext, Problem, Shape, Step, Tunable, Workload


def _build(context: BuildContext) -> Step:
    with gpu_packages("qsa-attention"):
        from profkit.kernels.qsa.step import build_step
    return build_step(context)


def _build_problem(context: BuildContext) -> Problem:
    with gpu_packages("qsa-attention"):
        from profkit.kernels.qsa.tuning import build_problem
    return build_problem(context)


QSA_ATTENTION = Workload(
    name="qsa-attention",
    summary="sparse paged attention with grouped queries: split over programs, merged and gated",
    variants=VARIANTS,
    shapes={
        "rows": Shape(16, "query positions of the batch"),
        "rows_per_request": Shape(4, "rows of one request: one token and its drafts, or a chunk of a prefill"),
        "q_heads": Shape(12, "query heads of this rank"),
        "kv_heads": Shape(1, "KV heads of this rank"),
        "head_dim": Shape(256, "width of a head, a power of two"),
        "width": Shape(2051, "tokens that a row selects at most: a budget of whole groups of 4, and 3"),
        "page": Shape(1568, "tokens in a block of the KV cache"),
        "context": Shape(8192, "tokens of a request, its rows included"),
        "layers": Shape(12, "QSA layers in a step"),
        "dtype": Shape(
            "bf16",
            "dtype of query and KV cache; fp8 is a bf16 query with a cache of e4m3, fp8-fp16 an fp16 one",
            choices=("bf16", "fp16", "fp8", "fp8-fp16"),
        ),
        "mode": Shape(
            "decode", "which of the tables' entries for large batches applies", choices=("decode", "prefill")
        ),
    },
    build=_build,
    tunable=Tunable(parameters=PARAMETERS, regions=SWEPT, build=_build_problem),
)
