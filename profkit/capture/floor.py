"""The dispatch floor of this machine: what a graph node costs when its kernel does nothing, traced and untraced."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profkit.capture import profilers
from profkit.capture.device import probe_torch
from profkit.capture.options import FLOOR_WORKLOAD, Options
from profkit.capture.profilers import AUTO, Profiler
from profkit.capture.workers import Workers, recording
from profkit.errors import ProfkitError, did_you_mean

if TYPE_CHECKING:
    from profkit.model.trace import Trace

SCHEMA = "profkit.floor/1"
#: Kernel name in the trace to the name under which it is reported.
TRACED_KERNELS = {"floor_empty_kernel": "empty", "floor_load_store_kernel": "load_store"}
#: Nodes of each kernel in the traced graph and its replays: 2560 durations of each kernel, read back in a second.
TRACED_NODES, TRACED_REPLAYS = 256, 10

METHOD = (
    "untraced_per_node: CUDA events around replays of a graph of 64 and of one of 512 kernels, each enqueued behind a "
    "spinning kernel that hides the launch; their difference over 448 nodes. traced_duration, traced_gap: kernel rows "
    f"of {TRACED_REPLAYS} replays of {TRACED_NODES} nodes under the profiler, and the time from one row's end to the "
    "next one's start. One program of 128 threads; load_store copies one float32."
)


@dataclass(frozen=True)
class Measured:
    """The dispatch floor as it goes into run.json, or why it is not there.

    Args:
        content: the `floor` field; None where it was not measured.
        problem: what prevented it; None where nothing did or it was not wanted.
    """

    content: Mapping[str, Any] | None
    problem: str | None

    @property
    def warnings(self) -> list[dict[str, str]]:
        """The warning that a problem deserves."""
        if self.problem is None:
            return []
        return [{"code": "floor-not-measured", "message": f"The dispatch floor was not measured: {self.problem}"}]


@dataclass(frozen=True)
class Floor:
    """The floor of one `profkit capture`: measured when it is first asked for, and once.

    Args:
        profiler: what records the capture; without times it has no floor.
        wanted: false measures nothing.
    """

    profiler: Profiler
    wanted: bool

    @property
    def is_due(self) -> bool:
        """Whether there is anything to measure."""
        return self.wanted and self.profiler.timed

    @cached_property
    def measured(self) -> Measured:
        """The measurement; a floor that cannot be measured is no reason to give up the capture that asks for it."""
        if not self.is_due:
            return Measured(None, None)
        try:
            return Measured(measure(profilers.for_floor_of(self.profiler)), None)
        except ProfkitError as error:
            return Measured(None, str(error))


def choose(asked: str) -> Profiler:
    """What records the traced half: with ``auto`` the first that is usable.

    Raises:
        ProfkitError: an unknown profiler, no CUDA device, or nsys is asked for and not usable.
    """
    known = profilers.names(profilers.recording_floor())
    if asked not in known:
        raise ProfkitError(f"No profiler {asked!r} for the floor.{did_you_mean(asked, known)}")
    torch = probe_torch()
    if torch.problem is not None:
        raise ProfkitError(f"The dispatch floor cannot be measured: {torch.problem}")
    if not torch.cuda:
        raise ProfkitError(
            f"The dispatch floor cannot be measured: torch {torch.torch} finds no CUDA device. Run `profkit floor` on "
            "the machine whose traces you compare; `profkit doctor` says what is missing here."
        )
    return profilers.first_found(profilers.recording_floor()) if asked == AUTO else profilers.get(asked).find()


def measure(profiler: Profiler) -> dict[str, Any]:
    """Measure the floor in two processes; takes some ten seconds.

    Args:
        profiler: records the traced half.

    Returns:
        The `floor` field of run.json; see docs/run-directory.md.

    Raises:
        ProfkitError: a worker failed, or the profiler did not record every kernel.
    """
    from profkit import readers

    workers = Workers(traced_options(profiler), profiler)
    with tempfile.TemporaryDirectory(prefix="profkit.") as name:
        jobs = workers.jobs([Path(name)])
        ((traced, untraced),) = workers.record_and_time(jobs, workers.jobs([Path(name)], "floor"))
        kept = profiler.keep(recording(jobs[0]), Path(name), keep_report=False)
        times = traced_times(readers.read(Path(name) / kept.trace))
    return {
        "unit": "us",
        "method": METHOD,
        "device": traced["device"]["name"],
        "profiler": {"name": profiler.name, "version": profiler.version(traced["versions"])},
        **{
            kernel: {"untraced_per_node": summarise(untraced["samples_us"][kernel]), **times[kernel]}
            for kernel in TRACED_KERNELS.values()
        },
    }


def traced_options(profiler: Profiler) -> Options:
    """What the traced half records: the floor's own workload under `profiler`."""
    nodes = f"nodes={TRACED_NODES}"
    return Options(FLOOR_WORKLOAD, shapes=(nodes,), profiler=profiler.name, replays=TRACED_REPLAYS, warmup=1)


def traced_times(
    trace: Trace, nodes: int = TRACED_NODES, replays: int = TRACED_REPLAYS
) -> dict[str, dict[str, Mapping[str, float]]]:
    """``traced_duration`` and ``traced_gap`` of each kernel, summaries in µs.

    Args:
        trace: of `replays` replays of the floor's graph.
        nodes: of each kernel in that graph.

    Raises:
        ProfkitError: the trace holds another number of rows, so that the profiler did not record the graph's nodes.
    """
    found: dict[str, dict[str, Mapping[str, float]]] = {}
    for name, kernel in TRACED_KERNELS.items():
        rows = trace.ops[trace.ops["name"] == name].sort_values("start")
        if len(rows) != nodes * replays:
            raise ProfkitError(
                f"{trace.info.profiler} recorded {len(rows)} of {nodes * replays} rows of {name}. "
                "`profkit doctor` checks the profilers; --profiler torch measures without nsys."
            )
        follows = rows["correlation"].eq(rows["correlation"].shift()) & rows["process"].eq(rows["process"].shift())
        gaps_ns = (rows["start"] - rows["end"].shift())[follows]
        found[kernel] = {
            "traced_duration": summarise(((rows["end"] - rows["start"]) / 1e3).tolist()),
            "traced_gap": summarise((gaps_ns / 1e3).tolist()),
        }
    return found


def summarise(values_us: Sequence[float]) -> dict[str, float]:
    """Median, quartiles and number of `values_us`, in µs to the nanosecond."""
    p25, median, p75 = statistics.quantiles(values_us, n=4, method="inclusive")
    return {"median": round(median, 3), "p25": round(p25, 3), "p75": round(p75, 3), "count": len(values_us)}
