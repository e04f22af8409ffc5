"""What is measured beside a recording, to read its times by: the machine's dispatch floor, and the step at graph level.

The floor is what a graph node costs when its kernel does nothing, traced and untraced. At graph level a profiler
records each launch of a graph, from its first node's start to its last node's end, and nothing of the nodes; it costs
the step far less than node tracing does.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from profkit.capture import profilers
from profkit.capture.options import FLOOR_WORKLOAD, TRACED_NODES, Options
from profkit.capture.profilers import Profiler
from profkit.capture.record import quartiles
from profkit.capture.workers import Workers
from profkit.errors import ProfkitError
from profkit.model.run import (
    FloorRecord,
    KernelFloorRecord,
    MessageRecord,
    RecorderRecord,
    StepTimesRecord,
    VersionsRecord,
)

if TYPE_CHECKING:
    from profkit.model.trace import Trace

#: Kernel name in the trace to the name under which it is reported.
TRACED_KERNELS = {"floor_empty_kernel": "empty", "floor_load_store_kernel": "load_store"}
#: Of the traced graph: 2560 durations of each kernel, read back in a second.
TRACED_REPLAYS = 10

METHOD = (
    "untraced_per_node: CUDA events around replays of a graph of 64 and of one of 512 kernels, each enqueued behind a "
    "spinning kernel that hides the launch; their difference over 448 nodes. traced_duration, traced_gap: kernel rows "
    f"of {TRACED_REPLAYS} replays of {TRACED_NODES} nodes under the profiler, and the time from one row's end to the "
    "next one's start. One program of 128 threads; load_store copies one float32."
)


def workers_under(profiler: Profiler) -> Workers:
    """What records a step of the floor's kernels under `profiler`."""
    return Workers(Options(FLOOR_WORKLOAD, profiler=profiler.name, replays=TRACED_REPLAYS, warmup=1), profiler)


def beside(workers: Workers) -> FloorRecord | MessageRecord | None:
    """The floor of a capture by `workers`, measured once a process, or why it could not be; None where it is not wanted
    or the profiler has no times."""
    return _beside(workers.profiler) if workers.options.with_floor and workers.profiler.timed else None


@cache
def _beside(profiler: Profiler) -> FloorRecord | MessageRecord:
    try:
        return measure(profilers.for_floor_of(profiler))
    except ProfkitError as error:
        return MessageRecord(code="floor-not-measured", message=f"The dispatch floor was not measured: {error}")


def measure(profiler: Profiler) -> FloorRecord:
    """The floor, measured in two processes in some ten seconds; `profiler` records the traced half.

    Raises:
        ProfkitError: a worker failed, or the profiler did not record every kernel.
    """
    from profkit import readers

    with tempfile.TemporaryDirectory(prefix="profkit.") as name:
        (own,) = workers_under(profiler).record(Path(name), "floor")
        kept = profiler.keep(own.recording, Path(name), keep_report=False)
        times = traced_times(readers.read(Path(name) / kept.trace))
    record, samples_us = own.traced.record, own.held.samples_us if own.held else {}
    kernels = {
        kernel: KernelFloorRecord(
            untraced_per_node=quartiles(samples_us[kernel]),
            traced_duration=quartiles(durations_us),
            traced_gap=quartiles(gaps_us),
        )
        for kernel, (durations_us, gaps_us) in times.items()
    }
    return FloorRecord(
        unit="us",
        method=METHOD,
        device=record.device.name if record.device else None,
        profiler=RecorderRecord(name=profiler.name, version=profiler.version(record.versions or VersionsRecord())),
        **kernels,
    )


def traced_times(
    trace: Trace, nodes: int = TRACED_NODES, replays: int = TRACED_REPLAYS
) -> dict[str, tuple[list[float], list[float]]]:
    """Each kernel's durations, and its gaps between rows of one replay, in µs.

    The trace is of so many `replays` of a graph with so many `nodes` of each kernel.

    Raises:
        ProfkitError: the trace holds another number of rows, so that the profiler did not record the graph's nodes.
    """
    found: dict[str, tuple[list[float], list[float]]] = {}
    for name, kernel in TRACED_KERNELS.items():
        rows = trace.ops[trace.ops["name"] == name].sort_values("start")
        if len(rows) != nodes * replays:
            raise ProfkitError(
                f"{trace.info.profiler} recorded {len(rows)} of {nodes * replays} rows of {name}. "
                "`profkit doctor` checks the profilers; --profiler torch measures without nsys."
            )
        follows = rows["correlation"].eq(rows["correlation"].shift()) & rows["process"].eq(rows["process"].shift())
        gaps_ns = (rows["start"] - rows["end"].shift())[follows]
        found[kernel] = ((rows["end"] - rows["start"]) / 1e3).tolist(), (gaps_ns / 1e3).tolist()
    return found


def graph_level(workers: Workers, work: Path) -> Sequence[StepTimesRecord | MessageRecord]:
    """The step of each rank, recorded as whole graphs below `work`; as a warning, why it could not be."""
    try:
        # What it says of a failure is a warning of a run that is there: no log is kept.
        recorded = dataclasses.replace(workers, graph_trace="graph", crash_log=None).record(work)
        return [workers.profiler.graph_times(own.recording, own.job.replays) for own in recorded]
    except ProfkitError as error:
        why = f"The step at graph level could not be timed: {error}"
        return [MessageRecord(code="graph-level-not-measured", message=why)] * (workers.options.nproc or 1)
