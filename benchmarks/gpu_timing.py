"""What the kernel benchmarks share: timing CUDA graphs in turn, and the bandwidth and launch cost of this device."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import torch
import triton
from bandwidth import best_rates

from profkit.capture.device import driver_version
from profkit.capture.floor_kernels import time_per_node

_FLOOR_REPLAYS = 20


@dataclass(frozen=True)
class Device:
    """What was measured on, and what its floors follow from.

    Args:
        date: UTC, when it was measured.
        driver: of NVIDIA; None where nothing tells.
        copy_bytes_per_second: read plus written, of the fastest large copy.
        fill_bytes_per_second: written, of the fastest large fill.
        read_bytes_per_second: read, of the fastest large sum.
        fastest: which way was the fastest, of "copy", "fill" and "read".
        l2_bytes: of the cache behind which these rates hold.
        launch_us: one more empty kernel in a graph.
    """

    name: str
    date: str
    driver: str | None
    torch: str
    triton: str
    copy_bytes_per_second: float
    fill_bytes_per_second: float
    read_bytes_per_second: float
    fastest: dict[str, str]
    l2_bytes: int
    launch_us: float

    def floor_us(self, read_bytes: float, written_bytes: float) -> float:
        """The time in which these bytes can move at the fastest measured rate of their mix.

        The fill's where next to nothing is read. The copy's where both are moved, or the read's if that is higher and
        reads are most of it.
        """
        rate = self.copy_bytes_per_second
        if read_bytes < written_bytes / 16:
            rate = self.fill_bytes_per_second
        elif read_bytes > 4 * written_bytes:
            rate = max(rate, self.read_bytes_per_second)
        return (read_bytes + written_bytes) / rate * 1e6


@dataclass(frozen=True)
class Sample:
    """Microseconds of one call: the quartiles over all timed replays."""

    median_us: float
    p25_us: float
    p75_us: float


def this_device() -> Device:
    """Measures the current device; about a second.

    Raises:
        SystemExit: there is none.
    """
    if not torch.cuda.is_available():
        raise SystemExit("This measures a GPU, and torch sees none here.")
    nodes: dict[str, list[float]] = time_per_node(_FLOOR_REPLAYS)
    rates = best_rates(median_us)
    return Device(
        name=torch.cuda.get_device_name(),
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        driver=driver_version(),
        torch=torch.__version__,
        triton=triton.__version__,
        copy_bytes_per_second=rates["copy"][0],
        fill_bytes_per_second=rates["fill"][0],
        read_bytes_per_second=rates["read"][0],
        fastest={task: way for task, (_, way) in rates.items()},
        l2_bytes=torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size,
        launch_us=min(statistics.median(samples) for samples in nodes.values()),
    )


def timed_us(run: Callable[[], object], count: int) -> list[float]:
    """Microseconds of each of `count` runs on the current stream, by CUDA events."""
    events: list[tuple[Any, Any]] = [
        (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(count)
    ]
    for start, end in events:
        start.record()
        run()
        end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) * 1e3 for start, end in events]


def median_us(run: Callable[[], object]) -> float:
    """The median of ten runs, after three that are not counted."""
    timed_us(run, 3)
    return statistics.median(timed_us(run, 10))


def capture(calls: Sequence[Callable[[], object]]) -> torch.cuda.CUDAGraph:
    """A graph of these calls, after a run outside it that compiles what there is to compile.

    What the calls work on must outlive the graph.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for call in calls:
            call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return graph


def measure(
    graphs: Mapping[str, torch.cuda.CUDAGraph], calls: int, turns: int = 4, turn_ms: float = 4.0
) -> dict[str, Sample]:
    """Microseconds of one call in each graph.

    The graphs take turns, every other time in reverse, so that a drift of the clock meets all of them.

    Args:
        graphs: each of `calls` calls.
        turns: of each graph, at least 1.
        turn_ms: about how long a turn lasts; it has 3 to 20 replays.
    """
    samples: dict[str, list[float]] = {name: [] for name in graphs}
    replays: dict[str, int] = {}
    for name, graph in graphs.items():
        # The first replay uploads the graph.
        estimate_us = min(timed_us(graph.replay, 3)[1:])
        replays[name] = int(max(3, min(20, turn_ms * 1e3 / estimate_us)))
    for turn in range(turns):
        for name in list(graphs) if turn % 2 == 0 else reversed(list(graphs)):
            # The first replay of a turn finds the caches as the graph before left them.
            samples[name] += timed_us(graphs[name].replay, replays[name] + 1)[1:]
    return {name: _sample([value / calls for value in values]) for name, values in samples.items()}


def _sample(values: list[float]) -> Sample:
    low, middle, high = statistics.quantiles(values, n=4)
    return Sample(median_us=middle, p25_us=low, p75_us=high)
