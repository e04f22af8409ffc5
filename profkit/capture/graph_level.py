"""The same step once more under nsys at graph level: what tracing each node adds to a step, beside the node trace.

At graph level nsys writes one row for each launch of a graph, from its first node's start to its last node's end, and
nothing of the nodes; it costs the step far less than node tracing does.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profkit.capture.options import Options
from profkit.capture.profilers import Profiler
from profkit.capture.profilers.nsys import TRACE_FILE
from profkit.capture.workers import Workers
from profkit.errors import ProfkitError
from profkit.readers.sqlite_columns import Database

METHOD = "nsys --cuda-graph-trace=graph, in a process of its own: the row of each graph launch"
_ROWS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"


@dataclass(frozen=True)
class GraphLevel:
    """What a graph-level recording found.

    Args:
        content: the `graph_level` field of run.json; None where there is none.
        problem: why there is none although it was asked for.
    """

    content: Mapping[str, Any] | None = None
    problem: str | None = None

    @property
    def warnings(self) -> list[dict[str, str]]:
        """For run.json: that it could not be measured, and why."""
        if self.problem is None:
            return []
        return [{"code": "graph-level-not-measured", "message": self.problem}]


def measure(options: Options, profiler: Profiler, directories: Sequence[Path]) -> Sequence[GraphLevel]:
    """Record one job a rank at graph level. Failing is no reason to give up the capture that asks for it.

    Args:
        directories: of the ranks; they are not kept.
    """
    workers = Workers(options, profiler, graph_trace="graph")
    jobs = workers.jobs(directories)
    try:
        workers.record(jobs)
        return [GraphLevel(summarise(step_times_us(Path(job.directory) / TRACE_FILE), job.replays)) for job in jobs]
    except ProfkitError as error:
        return [GraphLevel(problem=f"The step at graph level could not be timed: {error}")] * len(jobs)


def step_times_us(trace: Path) -> list[float]:
    """The duration of each whole graph in an export, in the order of launch.

    Raises:
        ProfkitError: the export has none: nsys 2023.4 does not write them.
    """
    with Database(trace) as database:
        if not {"start", "end"} <= database.columns(_ROWS):
            raise ProfkitError("its export has no rows of whole graphs; nsys 2024 and later write them.")
        # A row that was cut off has no end.
        rows = database.rows(f'SELECT "end" - start FROM {_ROWS} WHERE "end" > start ORDER BY start')
    return [int(ns) / 1e3 for (ns,) in rows]


def summarise(samples_us: Sequence[float], replays: int) -> dict[str, Any]:
    """The `graph_level` field of run.json.

    Args:
        replays: how many launches there were.

    Raises:
        ProfkitError: another number was recorded, so that something else is among them or some are lost.
    """
    if len(samples_us) != replays:
        raise ProfkitError(f"nsys recorded {len(samples_us)} whole graphs of {replays} replays.")
    quartiles = [samples_us[0]] * 3 if replays == 1 else statistics.quantiles(samples_us, n=4, method="inclusive")
    p25, median, p75 = (round(value, 3) for value in quartiles)
    times = {"median": median, "p25": p25, "p75": p75, "min": min(samples_us), "max": max(samples_us)}
    return {"unit": "us", "method": METHOD, "replays": replays, **times, "samples": list(samples_us)}
