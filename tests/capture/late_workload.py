"""A workload that compiles a kernel inside the recorded window, as no well-behaved one does."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl

from profkit.model.workload import BuildContext, InputSet, Layer, Scope, Step, Workload

#: Refreshes before the window opens with `--warmup 1`: one of each input set.
REFRESHES_BEFORE_WINDOW = 2


@triton.jit
def late_kernel(x_ptr):
    tl.store(x_ptr, 1.0)


def build(context: BuildContext) -> Step:
    """One layer; its refresh launches a Triton kernel once the window is open."""
    x = torch.zeros(1, device=context.device)
    refreshes = 0

    def refresh(inputs: InputSet) -> None:
        nonlocal refreshes
        refreshes += 1
        if refreshes > REFRESHES_BEFORE_WINDOW:
            late_kernel[(1,)](x)

    def run(scope: Scope) -> None:
        with scope("add"):
            x.add_(1.0)

    def outputs() -> Mapping[str, torch.Tensor]:
        return {"layers.0.late/x": x}

    return Step(layers=[Layer(0, "late", run)], refresh=refresh, outputs=outputs)


LATE = Workload("late", "compiles too late", {"only": "one variant"}, {}, build)
