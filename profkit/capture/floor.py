"""The dispatch floor of this machine: what a graph node costs when its kernel does nothing, traced and untraced."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profkit.capture import nsys, torch_profiler
from profkit.capture.job import FLOOR_SPEC, make_job
from profkit.capture.plan import Plan, did_you_mean
from profkit.capture.probe import probe_torch
from profkit.capture.workers import Workers
from profkit.errors import ProfkitError

if TYPE_CHECKING:
    from profkit.model.trace import Trace

SCHEMA = "profkit.floor/1"
PROFILERS = ("auto", "nsys", "torch")
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
        profiler: what records the capture; ``dispatch`` has no times, and so no floor.
        nsys: records the traced half; torch.profiler does where it is None, and the result says so.
        wanted: false measures nothing.
    """

    profiler: str
    nsys: nsys.Nsys | None
    wanted: bool

    @property
    def is_due(self) -> bool:
        """Whether there is anything to measure."""
        return self.wanted and self.profiler != "dispatch"

    @cached_property
    def measured(self) -> Measured:
        """The measurement; a floor that cannot be measured is no reason to give up the capture that asks for it."""
        if not self.is_due:
            return Measured(None, None)
        try:
            return Measured(measure(self.nsys), None)
        except ProfkitError as error:
            return Measured(None, str(error))


def choose_nsys(asked: str) -> nsys.Nsys | None:
    """What records the traced half: nsys where it is usable, else torch.profiler (None).

    Raises:
        ProfkitError: an unknown profiler, no CUDA device, or nsys is asked for and not usable.
    """
    if asked not in PROFILERS:
        raise ProfkitError(f"No profiler {asked!r} for the floor.{did_you_mean(asked, PROFILERS)}")
    torch = probe_torch()
    if torch.problem is not None:
        raise ProfkitError(f"The dispatch floor cannot be measured: {torch.problem}")
    if not torch.cuda:
        raise ProfkitError(
            f"The dispatch floor cannot be measured: torch {torch.torch} finds no CUDA device. Run `profkit floor` on "
            "the machine whose traces you compare; `profkit doctor` says what is missing here."
        )
    if asked == "torch":
        return None
    try:
        return nsys.find()
    except ProfkitError:
        if asked == "nsys":
            raise
        return None


def measure(found: nsys.Nsys | None) -> dict[str, Any]:
    """Measure the floor in two processes; takes some ten seconds.

    Args:
        found: the nsys that records the traced half; None takes torch.profiler.

    Returns:
        The `floor` field of run.json; see docs/run-directory.md.

    Raises:
        ProfkitError: a worker failed, or the profiler did not record every kernel.
    """
    from profkit import readers

    profiler = "torch" if found is None else "nsys"
    planned = traced_plan(profiler)
    with tempfile.TemporaryDirectory(prefix="profkit.") as name:
        work = Path(name)
        if found is not None:
            trace, job = nsys.TRACE_FILE, make_job(planned, "nsys", work, nvtx=found.nvtx_api)
        else:
            trace = torch_profiler.TRACE_FILE
            job = make_job(planned, "torch", work, trace=trace)
        timed = make_job(planned, "floor", work, held=True)
        traced, untraced = Workers(work, found, None).record_and_time(job, timed)
        times = traced_times(readers.read(work / trace))
    return {
        "unit": "us",
        "method": METHOD,
        "device": traced["device"]["name"],
        "profiler": {"name": profiler, "version": found.version if found is not None else traced["versions"]["torch"]},
        **{
            kernel: {"untraced_per_node": summarise(untraced["samples_us"][kernel]), **times[kernel]}
            for kernel in TRACED_KERNELS.values()
        },
    }


def traced_plan(profiler: str) -> Plan:
    """What the traced half records: the floor's own workload under `profiler`."""
    return Plan(
        spec=FLOOR_SPEC,
        name="floor",
        source="shipped",
        variant=None,
        shapes=(f"nodes={TRACED_NODES}",),
        profiler=profiler,
        why="",
        replays=TRACED_REPLAYS,
        warmup=1,
        seed=0,
        run_bodies=False,
    )


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
