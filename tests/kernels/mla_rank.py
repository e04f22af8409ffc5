"""One rank of a tiny `mla-step` with real collectives, against a double-precision step of all ranks. Run by
`test_mla_ranks` as a process of its own: ``python mla_rank.py VARIANT``; ends with status 1 where a result is wrong.
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from mla_cases import TINY, WORKLOAD

from profkit.kernels.dcp.collective import all_gather, all_to_all
from profkit.kernels.mla_step.inputs import draw_inputs
from profkit.kernels.mla_step.reference import reference_step
from profkit.kernels.mla_step.sizes import Sizes
from profkit.model.workload import BuildContext, no_ranges

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
TOLERANCE = 5e-3


def main(variant: str) -> int:
    """Check both input sets; 0 where all results are right."""
    gpu = torch.cuda.is_available()
    if gpu:
        torch.cuda.set_device(RANK)
    group = {"backend": "nccl", "device_id": torch.device("cuda", RANK)} if gpu else {"backend": "gloo"}
    dist.init_process_group(timeout=timedelta(seconds=60), **group)
    defaults = {name: shape.default for name, shape in WORKLOAD.shapes.items()}
    shapes = {**defaults, **TINY, "ranks": RANKS, "exchange": "distributed"}
    context = BuildContext(variant, shapes, "cuda" if gpu else "cpu", 0, RANK, RANKS)
    step, sizes = WORKLOAD.build(context), Sizes.of(context)
    inputs = draw_inputs(context, sizes)
    wrong = 0
    for input_set in ("timing", "digest"):
        step.refresh(input_set)
        step.run(no_ranges)
        results, hidden = reference_step(inputs, sizes, inputs.batches[input_set], all_gather, all_to_all)
        expected = {f"layers.{number}.mla/combined": result for number, result in enumerate(results)}
        expected[f"layers.{sizes.layers - 1}.mla/hidden"] = hidden
        for name, right in expected.items():
            error = float((step.outputs()[name].double() - right).abs().max())
            # A comparison with NaN is false.
            wrong += not error <= TOLERANCE * (1 + float(right.abs().max()))
            sys.stdout.write(f"rank {RANK} of {RANKS}, {variant}, {input_set}, {name}: largest error {error:.2e}\n")
    sys.stdout.flush()
    dist.barrier()
    dist.destroy_process_group()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
