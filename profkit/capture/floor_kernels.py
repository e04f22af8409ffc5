"""What the dispatch floor is measured with: a kernel that does nothing, one that moves one element, chains of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from profkit.model.workload import BuildContext, InputSet, Layer, Scope, Shape, Step, Workload

#: 128 threads, as in torch's elementwise kernels, which are what runs at the floor in practice.
NUM_WARPS = 4


@triton.jit  # type: ignore[untyped-decorator]
def floor_empty_kernel(x_ptr: tl.tensor) -> None:
    """Nothing; x_ptr is there so that both kernels are launched with the same arguments."""


@triton.jit  # type: ignore[untyped-decorator]
def floor_load_store_kernel(x_ptr: tl.tensor) -> None:
    """x[1] = x[0]."""
    tl.store(x_ptr + 1, tl.load(x_ptr))


#: The name under which each is reported, and in which order.
KERNELS: Mapping[str, Any] = {"empty": floor_empty_kernel, "load_store": floor_load_store_kernel}


def element_pair(device: str) -> torch.Tensor:
    """What the kernels work on: two float32."""
    return torch.ones(2, dtype=torch.float32, device=device)


def launch_chain(name: str, x: torch.Tensor, nodes: int) -> None:
    """Launch the kernel `name` `nodes` times, one program each, on the current stream."""
    for _ in range(nodes):
        KERNELS[name][(1,)](x, num_warps=NUM_WARPS)


def _build(context: BuildContext) -> Step:
    nodes = context.int_shape("nodes")
    x = element_pair(context.device)

    def chain(name: str) -> Layer:
        def run(_: Scope) -> None:
            launch_chain(name, x, nodes)

        return Layer(list(KERNELS).index(name), name, run)

    layers = [chain(name) for name in KERNELS]

    def refresh(_: InputSet) -> None:
        """Nothing is overwritten that a replay reads."""

    def outputs() -> Mapping[str, torch.Tensor]:
        return {f"{layer.scope}/x": x for layer in layers}

    return Step(layers=layers, refresh=refresh, outputs=outputs)


FLOOR = Workload(
    name="floor",
    summary="chains of kernels that do next to nothing",
    variants={"chains": "one chain of each kernel"},
    shapes={"nodes": Shape(256, "kernels in a chain")},
    build=_build,
)
