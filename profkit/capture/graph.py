"""What a worker runs on a GPU: one CUDA graph, captured and replayed inside a profiler's window or timed without one.

With it stand the process group that ranks join, and the watch on just-in-time compilation.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
import torch.distributed as dist

from profkit.capture.options import Job
from profkit.capture.record import digest_outputs, of_step, step_times
from profkit.errors import ProfkitError
from profkit.model.run import CompileRecord, CompilesRecord, DigestsRecord, RunRecord
from profkit.model.workload import Scope, Step, no_ranges

#: torch.cuda is only partly annotated; through this name strict type checking leaves its calls alone.
_cuda: Any = torch.cuda

#: Keeps the GPU busy (about 1 ms at 2 GHz) while the host enqueues a replay, so that a timed replay does not wait for
#: its own launch: launching a graph of 300 nodes takes the host some 100 us.
SPIN_CYCLES = 2_000_000
#: How long leaving the process group may take: NCCL waits there for graphs that captured its kernels to be gone.
_LEAVE_S = 20.0
#: Dynamo's metric with one entry for each frame that it compiles (torch._dynamo.utils.compilation_time_metrics).
_DYNAMO_METRIC = "_compile.compile_inner"
METHOD = "CUDA events around each graph replay, enqueued behind a spinning kernel that hides the launch"
#: Replays before the timed ones: the first uploads the graph.
UNTIMED_REPLAYS = 3


def prepared(job: Job, build_on: Callable[[str], Step]) -> tuple[Step, torch.cuda.Stream, Callable[[], None]]:
    """The step, warmed up; the stream to capture it on; and what lines ranks up before a replay, see `aligner`.

    The step runs eagerly on that stream, which compiles kernels and makes library workspaces. Both input sets are
    refreshed, so that nothing which a refresh launches compiles later.
    """
    step = build_on("cuda")
    stream = _cuda.Stream()
    line_up = aligner()
    job.at("warming up")
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step.refresh("digest")
        for _ in range(job.options.warmup):
            step.refresh("timing")
            step.run(no_ranges)
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    return step, stream, line_up


def capture_graph(step: Step, stream: torch.cuda.Stream, scope: Scope) -> torch.cuda.CUDAGraph:
    """Capture one run of the step on `stream`; ranges are pushed on this thread while its nodes are made."""
    graph = torch.cuda.CUDAGraph()
    # A process group has a thread that asks CUDA how its collectives fare, which would break a global capture.
    mode = "thread_local" if joined() else "global"
    with torch.cuda.graph(graph, stream=stream, capture_error_mode=mode):
        step.run(scope)
    return graph


def record_traced(
    job: Job, build_on: Callable[[str], Step], scope: Scope, ranges: str, window: AbstractContextManager[None]
) -> RunRecord:
    """Capture and replay the step inside the profiler's window, then digest its outputs after one more replay.

    The refresh before each replay runs inside the window but outside the replay's range and outside the graph. `ranges`
    is the name of `scope` for run.json.
    """
    watch = CompileWatch()
    step, stream, line_up = prepared(job, build_on)
    watch.open_window()
    with window:
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
    digest_replay(step, graph)
    again = partial(digest_replay, step, graph)
    return of_step(job, step, ranges, again=again, compiles=watch.compiles, unwatched=not watch.triton_watched)


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


def digest_replay(step: Step, graph: torch.cuda.CUDAGraph) -> None:
    """One replay on the digest inputs."""
    step.refresh("digest")
    graph.replay()
    torch.cuda.synchronize()


def time_untraced(job: Job, build_on: Callable[[str], Step]) -> RunRecord:
    """Time each replay with CUDA events, in a process that no profiler watches: run.json's `untraced` and `digests`."""
    step, stream, line_up = prepared(job, build_on)
    graph = capture_graph(step, stream, no_ranges)
    job.at("replaying the graph, untraced")
    samples_us: list[float] = []
    for number in range(UNTIMED_REPLAYS + job.replays):
        step.refresh("timing")
        sample_us = replay_us(graph, line_up)
        if number >= UNTIMED_REPLAYS:
            samples_us.append(round(sample_us, 3))
    digest_replay(step, graph)
    digests = DigestsRecord(outputs=digest_outputs(step.outputs()))
    return RunRecord(trace="", untraced=step_times(samples_us, METHOD), digests=digests)


def replay_us(graph: torch.cuda.CUDAGraph, line_up: Callable[[], None] = lambda: None) -> float:
    """The GPU's time for one replay, in µs, from CUDA events; behind a spinning kernel that hides the launch."""
    start = _cuda.Event(enable_timing=True)
    end = _cuda.Event(enable_timing=True)
    _cuda._sleep(SPIN_CYCLES)
    line_up()
    start.record()
    graph.replay()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) * 1e3


def join(job: Job, *, gpu: bool) -> None:
    """Make the default process group of this job's ranks: over NCCL with the GPU of the rank's number, or over gloo.

    Raises:
        ProfkitError: there is no GPU of that number.
    """
    job.at("joining the process group")
    if gpu and job.rank >= torch.cuda.device_count():
        raise ProfkitError(
            f"--nproc {job.world_size} needs a GPU a rank, and torch finds {torch.cuda.device_count()} here. "
            "Check CUDA_VISIBLE_DEVICES, or ask for fewer."
        )
    device = None
    if gpu:
        torch.cuda.set_device(job.rank)
        # Named, so that the communicator is made now and not inside the recorded window.
        device = torch.device("cuda", job.rank)
    # Rank, size and meeting place are in the environment, see `profkit.capture.workers.rank_environment`.
    dist.init_process_group(
        "nccl" if gpu else "gloo",
        timeout=timedelta(seconds=job.options.rank_timeout_s),
        device_id=device,
    )


def joined() -> bool:
    """Whether this process is in a process group."""
    return dist.is_available() and dist.is_initialized()


def backend() -> str | None:
    """What the process group runs over, e.g. ``nccl 2.28.9``; None where there is none."""
    if not joined():
        return None
    name = str(dist.get_backend())
    return f"nccl {'.'.join(map(str, _cuda.nccl.version()))}" if name == "nccl" else name


def aligner() -> Callable[[], None]:
    """What to call before a replay so that it starts on all ranks at once; does nothing without a process group.

    It enqueues a kernel that spins and an all-reduce behind it: the ranks' GPUs leave the all-reduce together, and what
    the host enqueues meanwhile follows at once. A barrier of the processes would leave the GPUs apart by what these
    differ in launching a graph. Call it outside what is counted.
    """
    if not joined():
        return lambda: None
    token = torch.zeros(1, device="cuda")

    def line_up() -> None:
        _cuda._sleep(SPIN_CYCLES)
        dist.all_reduce(token)

    # The first one connects the ranks.
    line_up()
    torch.cuda.synchronize()
    return line_up


def leave() -> None:
    """Leave the process group, once the result is written. A group that cannot be left ends with the process."""
    device = torch.cuda.current_device() if dist.get_backend() == "nccl" else None

    def destroy() -> None:
        if device is not None:
            # A thread begins with the first GPU, which is another rank's.
            torch.cuda.set_device(device)
        dist.destroy_process_group()

    leaving = threading.Thread(target=destroy, daemon=True)
    leaving.start()
    leaving.join(_LEAVE_S)
    if leaving.is_alive():
        sys.stderr.write("the process group was not left in time\n")
        sys.stderr.flush()
        os._exit(0)


class CompileWatch:
    """Sees just-in-time compilation from construction on; `open_window` and `close_window` bound what is inside.

    Triton reports through its compilation listener (triton 3.4 and later), torch.compile through the list of seconds
    that Dynamo keeps for each frame. A kernel that Triton loads from its disk cache inside the window counts as well:
    it costs host time there, and on a machine with a cold cache it would have been compiled.

    `triton_watched` is false where an older triton is installed, whose compilations cannot be seen.
    """

    def __init__(self) -> None:
        self.triton_watched = True
        self._kernels: list[CompileRecord] = []
        self._opened: tuple[int, int] = 0, 0
        self._inside: list[CompileRecord] = []
        self._kernels_inside = 0
        if find_spec("triton") is None:
            return
        try:
            from triton import knobs
        except ImportError:
            self.triton_watched = False
            return
        previous = knobs.compilation.listener

        def listener(**event: Any) -> None:
            if previous is not None:
                previous(**event)
            name = str(event["metadata"].get("name", "triton kernel"))
            self._kernels.append(CompileRecord(name=name, seconds=round(event["times"].total / 1e6, 6)))

        knobs.compilation.listener = listener

    def open_window(self) -> None:
        """From here on compilations are inside the window."""
        self._opened = len(self._kernels), len(_dynamo_frames())

    def close_window(self) -> None:
        """End of the window."""
        kernels, frames = self._kernels[self._opened[0] :], _dynamo_frames()[self._opened[1] :]
        self._kernels_inside = len(kernels)
        compiled = [CompileRecord(name="torch.compile frame", seconds=round(seconds, 6)) for seconds in frames]
        self._inside = [*kernels, *compiled]

    @property
    def compiles(self) -> CompilesRecord:
        """The `compiles` field of run.json; what was compiled after the window counts as before it."""
        before = len(self._kernels) - self._kernels_inside + self._opened[1]
        return CompilesRecord(before=before, inside=self._inside)


def _dynamo_frames() -> list[float]:
    """Seconds of each frame that Dynamo compiled so far in this process; empty where it is not loaded."""
    module = sys.modules.get("torch._dynamo.utils")
    return list(module.compilation_time_metrics.get(_DYNAMO_METRIC, [])) if module is not None else []
