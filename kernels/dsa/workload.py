"""The workload `dsa-candidates`: what it is called, its variants and its shapes. Needs torch only to be built."""

from __future__ import annotations

from profkit.kernels.gpu_packages import gpu_packages
from profkit.model.workload import BuildContext, Parameter, Problem, Shape, Step, Tunable, Workload

_MILLION = 1 << 20
_CONTEXTS = {"c512": 512, "half": _MILLION // 2, "full": _MILLION}


def _build(context: BuildContext) -> Step:
    with gpu_packages("dsa-candidates"):
        from profkit.kernels.dsa.step import build_step
    return build_step(context)


def _build_problem(context: BuildContext) -> Problem:
    with gpu_packages("dsa-candidates"):
        from profkit.kernels.dsa.tuning import build_problem
    return build_problem(context)


DSA_CANDIDATES = Workload(
    name="dsa-candidates",
    summary="sparse attention's candidate blocks in a decode step: chosen once, then masking four layers' logits",
    variants={
        "old": "over the full width: scores, torch.topk, flags, mask",
        "new": "scores and mask over the live range, with the constants of vLLM #57459",
        "bounded": "flags and top-k over the live range too, tuned constants",
        "one-kernel": "as bounded, with flags and mask in one kernel",
        "hoisted": "as bounded, with the flags made once a step",
    },
    shapes={
        "rows": Shape(52, "rows of logits, one a request"),
        "width": Shape(_MILLION, "columns of logits: the longest context that is served, in tokens"),
        "context": Shape(512, "tokens of every row in the timed batch"),
        "block_size": Shape(8, "tokens a block"),
        "candidates": Shape(2048, "candidate blocks a row"),
        "consumers": Shape(4, "layers that mask their logits"),
    },
    build=_build,
    # The mask kernel of the live range, alone: flags are built beforehand.
    tunable=Tunable(
        parameters={
            "floor": Parameter((1, 8), "fewest programs a row"),
            "total": Parameter((256, 512, 1024, 2048, 8192), "programs of all rows that are aimed for"),
            "tile": Parameter((1024, 2048, 4096, 8192), "columns that a program masks at once"),
            "warps": Parameter((2, 4, 8), "warps a program"),
            "vector": Parameter((1, 4), "adjacent columns that share one flag load and one store"),
            "early": Parameter((0, 1), "1: flags are loaded ahead of the ends and of the tile in front"),
        },
        regions={
            f"r{rows}-{name}": {"rows": rows, "context": tokens}
            for rows in (52, 1, 8, 256)
            for name, tokens in _CONTEXTS.items()
        },
        build=_build_problem,
    ),
)
