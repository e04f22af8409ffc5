"""The untraced half of the dispatch floor: graphs of kernels that do nothing, timed in a process of its own."""

from __future__ import annotations

from typing import Any

import torch

from profkit.capture.floor_kernels import KERNELS, element_pair, launch_chain
from profkit.capture.graph import UNTIMED_REPLAYS, replay_us

#: Kernels in the two graphs whose times are subtracted: what a graph's launch costs is in both and cancels. The larger
#: one takes the host well under the millisecond that `replay_us` hides.
SMALL, LARGE = 64, 512

#: torch.cuda is only partly annotated; through this name strict type checking leaves its calls alone.
_cuda: Any = torch.cuda


def time_per_node(replays: int) -> dict[str, Any]:
    """Time one more node of a graph, for each kernel.

    Args:
        replays: of each graph; they take turns, so that a change of the clock meets all of them.

    Returns:
        The worker's result: ``samples_us``, kernel name to the time of one node in each of the replays.
    """
    x = element_pair("cuda")
    stream = _cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for name in KERNELS:
            launch_chain(name, x, 1)
    torch.cuda.synchronize()
    graphs = {name: (_chain(name, x, SMALL, stream), _chain(name, x, LARGE, stream)) for name in KERNELS}
    samples_us: dict[str, list[float]] = {name: [] for name in KERNELS}
    for number in range(UNTIMED_REPLAYS + replays):
        for name, (small, large) in graphs.items():
            small_us, large_us = replay_us(small), replay_us(large)
            if number >= UNTIMED_REPLAYS:
                samples_us[name].append((large_us - small_us) / (LARGE - SMALL))
    return {"samples_us": samples_us}


def _chain(name: str, x: torch.Tensor, nodes: int, stream: torch.cuda.Stream) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        launch_chain(name, x, nodes)
    return graph
