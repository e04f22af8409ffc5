"""What is measured beside a recording, to read its times by: the machine's dispatch floor, and the step at graph level.

The floor is what a graph node costs when its kernel does nothing, traced and untraced. At graph level nsys writes one
row for each launch of a graph, from its first node's start to its last node's end, and nothing of the nodes; it costs
the step far less than node tracing does.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from profkit.capture import profilers
from profkit.capture.device import probe_torch
from profkit.capture.options import FLOOR_WORKLOAD, TRACED_NODES, Options
from profkit.capture.profilers import Profiler
from profkit.capture.profilers.nsys import TRACE_FILE
from profkit.capture.record import quartiles, step_times
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
from profkit.readers.arrow import Database

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
GRAPH_METHOD = "nsys --cuda-graph-trace=graph, in a process of its own: the row of each graph launch"
_GRAPH_ROWS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"


def choose(asked: str) -> Profiler:
    """What records the traced half: with ``auto`` the first that is usable.

    Raises:
        ProfkitError: a profiler that records no floor or is not usable, or no CUDA device.
    """
    options = Options(FLOOR_WORKLOAD, profiler=asked)
    if asked != profilers.AUTO:
        profilers.choose(options, profilers.FLOOR)
    torch = probe_torch()
    if torch.problem is not None:
        raise ProfkitError(f"The dispatch floor cannot be measured: {torch.problem}")
    if not torch.cuda:
        raise ProfkitError(
            f"The dispatch floor cannot be measured: torch {torch.torch} finds no CUDA device. Run `profkit floor` on "
            "the machine whose traces you compare; `profkit doctor` says what is missing here."
        )
    return profilers.choose(options, profilers.FLOOR)[0]


@cache
def beside(profiler: Profiler) -> FloorRecord | MessageRecord:
    """The floor of captures by `profiler`, measured once a process; as a warning, why it could not be."""
    try:
        return measure(profilers.for_floor_of(profiler))
    except ProfkitError as error:
        return MessageRecord(code="floor-not-measured", message=f"The dispatch floor was not measured: {error}")


def measure(profiler: Profiler) -> FloorRecord:
    """Measure the floor in two processes; takes some ten seconds. Returns the `floor` field of run.json.

    Args:
        profiler: records the traced half.

    Raises:
        ProfkitError: a worker failed, or the profiler did not record every kernel.
    """
    from profkit import readers

    workers = Workers(traced_options(profiler), profiler)
    with tempfile.TemporaryDirectory(prefix="profkit.") as name:
        (job,) = workers.jobs([Path(name)])
        ((traced, untraced),) = workers.record_and_time([job], "floor")
        kept = profiler.keep(job.recording, Path(name), keep_report=False)
        times = traced_times(readers.read(Path(name) / kept.trace))
    record = traced.record
    kernels = {
        kernel: KernelFloorRecord(
            untraced_per_node=quartiles(untraced.samples_us[kernel]),
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


def traced_options(profiler: Profiler) -> Options:
    """What the traced half records: a step of the floor's kernels under `profiler`."""
    return Options(FLOOR_WORKLOAD, profiler=profiler.name, replays=TRACED_REPLAYS, warmup=1)


def traced_times(
    trace: Trace, nodes: int = TRACED_NODES, replays: int = TRACED_REPLAYS
) -> dict[str, tuple[list[float], list[float]]]:
    """Each kernel's durations, and its gaps between rows of one replay, in µs.

    Args:
        trace: of `replays` replays of the floor's graph.
        nodes: of each kernel in that graph.

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


def graph_level(
    options: Options, profiler: Profiler, directories: Sequence[Path]
) -> Sequence[StepTimesRecord | MessageRecord]:
    """The step of each rank, recorded as whole graphs; as a warning, why it could not be.

    Args:
        directories: of the ranks; they are not kept.
    """
    workers = Workers(options, profiler, graph_trace="graph")
    jobs = workers.jobs(directories)
    try:
        workers.record(jobs)
        return [graph_times(job.directory / TRACE_FILE, job.replays) for job in jobs]
    except ProfkitError as error:
        why = f"The step at graph level could not be timed: {error}"
        return [MessageRecord(code="graph-level-not-measured", message=why)] * len(jobs)


def graph_times(trace: Path, replays: int) -> StepTimesRecord:
    """The duration of each whole graph in an export, in the order of launch.

    Raises:
        ProfkitError: the export has none (nsys 2023.4 does not write them), or other than `replays`, so that something
            else is among them or some are lost.
    """
    with Database(trace) as database:
        if not {"start", "end"} <= database.columns(_GRAPH_ROWS):
            raise ProfkitError("its export has no rows of whole graphs; nsys 2024 and later write them.")
        # A row that was cut off has no end.
        rows = database.rows(f'SELECT "end" - start FROM {_GRAPH_ROWS} WHERE "end" > start ORDER BY start')
    if len(rows) != replays:
        raise ProfkitError(f"nsys recorded {len(rows)} whole graphs of {replays} replays.")
    return step_times([int(ns) / 1e3 for (ns,) in rows], GRAPH_METHOD)
