"""The worker's half of the dispatch floor: kernels that do next to nothing, in graphs that are timed or recorded."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl

from profkit.capture.graph import UNTIMED_REPLAYS, replay_us
from profkit.capture.options import FLOOR_WORKLOAD, TRACED_NODES
from profkit.model.workload import BuildContext, Layer, Scope, Step, Workload

#: 128 threads, as in torch's elementwise kernels, which are what runs at the floor in practice.
NUM_WARPS = 4
#: Kernels in the two graphs whose times are subtracted: what a graph's launch costs is in both and cancels. The larger
#: one takes the host well under the millisecond that `replay_us` hides.
SMALL, LARGE = 64, 512

#: torch.cuda is only partly annotated; through this name strict type checking leaves its calls alone.
_cuda: Any = torch.cuda


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


def _chains(context: BuildContext) -> Step:
    x = element_pair(context.device)

    def chain(name: str, _: Scope) -> None:
        launch_chain(name, x, TRACED_NODES)

    layers = [Layer(number, name, partial(chain, name)) for number, name in enumerate(KERNELS)]
    # Nothing is overwritten that a replay reads.
    return Step(layers, refresh=lambda _: None, outputs=lambda: {f"{layer.scope}/x": x for layer in layers})


#: A step of one chain of each kernel.
FLOOR = Workload(FLOOR_WORKLOAD, "nothing", {"chains": "one of each kernel"}, {}, _chains)


def time_per_node(replays: int) -> dict[str, list[float]]:
    """Kernel name to the time of one more node of a graph, in µs, in each of the replays.

    The graphs take turns, so that a change of the clock meets all of them.
    """
    x = element_pair("cuda")
    stream = _cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for name in KERNELS:
            launch_chain(name, x, 1)
    torch.cuda.synchronize()

    def captured(name: str, nodes: int) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            launch_chain(name, x, nodes)
        return graph

    graphs = {name: (captured(name, SMALL), captured(name, LARGE)) for name in KERNELS}
    samples_us: dict[str, list[float]] = {name: [] for name in KERNELS}
    for number in range(UNTIMED_REPLAYS + replays):
        for name, (small, large) in graphs.items():
            small_us, large_us = replay_us(small), replay_us(large)
            if number >= UNTIMED_REPLAYS:
                samples_us[name].append((large_us - small_us) / (LARGE - SMALL))
    return samples_us
