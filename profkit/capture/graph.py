"""Recording a step on a GPU: one CUDA graph, captured and replayed inside a profiler's window, or timed without one."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from profkit.capture import digests
from profkit.capture.compiles import CompileWatch
from profkit.capture.deviations import against_references
from profkit.capture.device import describe_device, describe_versions
from profkit.capture.options import Job
from profkit.capture.process_group import aligner, backend, joined
from profkit.model.workload import Scope, Step, no_ranges

#: torch.cuda is only partly annotated; through this name strict type checking leaves its calls alone.
_cuda: Any = torch.cuda

#: Keeps the GPU busy (about 1 ms at 2 GHz) while the host enqueues a replay, so that a timed replay does not wait for
#: its own launch: launching a graph of 300 nodes takes the host some 100 us.
SPIN_CYCLES = 2_000_000
#: Replays before the timed ones: the first uploads the graph.
UNTIMED_REPLAYS = 3


def warm_up(step: Step, runs: int, stream: torch.cuda.Stream) -> None:
    """Run the step eagerly on the stream that will be captured: compiles kernels and makes library workspaces.

    Both input sets are refreshed, so that nothing which a refresh launches compiles later.
    """
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step.refresh("digest")
        for _ in range(runs):
            step.refresh("timing")
            step.run(no_ranges)
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()


def capture_graph(step: Step, stream: torch.cuda.Stream, scope: Scope) -> torch.cuda.CUDAGraph:
    """Capture one run of the step on `stream`; ranges are pushed on this thread while its nodes are made."""
    graph = torch.cuda.CUDAGraph()
    # A process group has a thread that asks CUDA how its collectives fare, which would break a global capture.
    mode = "thread_local" if joined() else "global"
    with torch.cuda.graph(graph, stream=stream, capture_error_mode=mode):
        step.run(scope)
    return graph


def record_traced(
    job: Job,
    build: Callable[[], Step],
    scope: Scope,
    ranges: str,
    window: Callable[[], AbstractContextManager[None]],
) -> dict[str, Any]:
    """Capture and replay the step inside the profiler's window, then digest its outputs after one more replay.

    The refresh before each replay runs inside the window but outside the replay's range and outside the graph.

    Args:
        scope: pushes ranges; `ranges` is its name for run.json.
        window: what the profiler records.

    Returns:
        The worker's result: ``layers``, ``notes``, ``ranges``, ``compiles``, ``digests``, ``references``, ``device``,
        ``versions``, ``backend``.
    """
    watch = CompileWatch()
    step = build()
    stream = _cuda.Stream()
    line_up = aligner(SPIN_CYCLES)
    job.at("warming up")
    warm_up(step, job.options.warmup, stream)
    watch.open_window()
    with window():
        job.at("capturing the graph")
        graph = capture_graph(step, stream, scope)
        torch.cuda.synchronize()
        job.at("replaying the graph under the profiler")
        for number in range(job.replays):
            step.refresh("timing")
            torch.cuda.synchronize()
            line_up()
            with scope(f"replay.{number}"):
                graph.replay()
                torch.cuda.synchronize()
    watch.close_window()
    job.at("replaying the graph for its digests")
    outputs = digest_replay(step, graph)
    return {
        "backend": backend(),
        "layers": len(step.layers),
        "notes": dict(step.notes),
        "ranges": ranges,
        "compiles": watch.to_dict(),
        "compiles_watched": watch.triton_watched,
        "digests": outputs,
        "references": against_references(step.outputs(), step.references),
        "device": describe_device(),
        "versions": describe_versions(),
    }


@contextmanager
def torch_nvtx_range(name: str) -> Iterator[None]:
    """A range of torch's: nvtx, and roctx in ROCm builds."""
    nvtx: Any = torch.cuda.nvtx  # not annotated
    nvtx.range_push(name)
    try:
        yield
    finally:
        nvtx.range_pop()


@contextmanager
def cuda_profiler_window() -> Iterator[None]:
    """A recorded window as the CUDA profiler API marks it."""
    torch.cuda.synchronize()
    _cuda.profiler.start()
    try:
        yield
        torch.cuda.synchronize()
    finally:
        _cuda.profiler.stop()


def digest_replay(step: Step, graph: torch.cuda.CUDAGraph) -> dict[str, str]:
    """Digests of the outputs of one replay on the digest inputs."""
    step.refresh("digest")
    graph.replay()
    torch.cuda.synchronize()
    return digests.digest_outputs(step.outputs())


def time_untraced(job: Job, build: Callable[[], Step]) -> dict[str, Any]:
    """Time each replay with CUDA events, in a process that no profiler watches.

    Returns:
        The worker's result: ``untraced`` as run.json has it, and ``digests``.
    """
    step = build()
    stream = _cuda.Stream()
    line_up = aligner(SPIN_CYCLES)
    job.at("warming up, untraced")
    warm_up(step, job.options.warmup, stream)
    graph = capture_graph(step, stream, no_ranges)
    job.at("replaying the graph, untraced")
    samples_us: list[float] = []
    for number in range(UNTIMED_REPLAYS + job.replays):
        step.refresh("timing")
        sample_us = replay_us(graph, line_up)
        if number >= UNTIMED_REPLAYS:
            samples_us.append(round(sample_us, 3))
    return {"untraced": summarise(samples_us), "digests": digest_replay(step, graph)}


def replay_us(graph: torch.cuda.CUDAGraph, line_up: Callable[[], None] | None = None) -> float:
    """The GPU's time for one replay, in µs, from CUDA events; behind a spinning kernel that hides the launch.

    Args:
        line_up: from `profkit.capture.process_group.aligner`, where several ranks replay together.
    """
    start = _cuda.Event(enable_timing=True)
    end = _cuda.Event(enable_timing=True)
    _cuda._sleep(SPIN_CYCLES)
    if line_up is not None:
        line_up()
    start.record()
    graph.replay()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) * 1e3


def summarise(samples_us: list[float]) -> dict[str, Any]:
    """The `untraced` field of run.json from each replay's time in µs."""
    p25, median, p75 = statistics.quantiles(samples_us, n=4, method="inclusive")
    return {
        "unit": "us",
        "method": "CUDA events around each graph replay, enqueued behind a spinning kernel that hides the launch",
        "replays": len(samples_us),
        "median": round(median, 3),
        "p25": round(p25, 3),
        "p75": round(p75, 3),
        "min": min(samples_us),
        "max": max(samples_us),
        "samples": samples_us,
    }
