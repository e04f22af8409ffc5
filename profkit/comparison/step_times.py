"""How long a whole step took, without a profiler and under it, and whether the savings agree with each other."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from profkit.comparison.model import Input, Net, Reason, StepTimes
from profkit.comparison.thresholds import Thresholds
from profkit.model.run import StepTimesRecord

#: A launch more or less changes an untraced step by its kernel's time and by the gap before it, which no kernel's
#: duration holds: 0.21 µs on an H200 (docs/results/dcp-combine-h200.md). Up to so much is taken for such gaps.
LARGEST_GAP_US = 2.0


def recorded(before: Input, after: Input, field: Literal["untraced", "graph_level"]) -> StepTimes | None:
    """The step times that captures keep in run.json; None where a side has none."""
    sides = [
        [(job, getattr(run.record, field)) for job, run in _by_job(side) if run.record is not None]
        for side in (before, after)
    ]
    return _step_times(sides)


def traced(before: Input, after: Input) -> StepTimes | None:
    """First start to last end of each step in the traces; None where nothing was timed."""
    if not all(run.census.info.timed for side in (before, after) for run in side.runs):
        return None
    return _step_times([[(job, _summary(run)) for job, run in _by_job(side)] for side in (before, after)])


def _by_job(side: Input) -> Iterator[tuple[int, Input]]:
    return zip(side.jobs, side.runs, strict=True)


def _summary(run: Input) -> StepTimesRecord:
    p25, median, p75 = np.percentile(run.census.chosen.step_span_ns / 1e3, [25, 50, 75]).tolist()
    return StepTimesRecord(p25=p25, median=median, p75=p75)


def _step_times(sides: Sequence[Sequence[tuple[int, StepTimesRecord | None]]]) -> StepTimes | None:
    """Of each run's job and summary: the median over jobs, of which each is the mean over its ranks."""
    medians: list[tuple[float, ...]] = []
    #: Of the first run of each side with times that says them.
    quartiles: list[tuple[float, float]] = []
    for side in sides:
        known = [(job, times, times.median) for job, times in side if times is not None and times.median is not None]
        if not known:
            return None
        by_job: dict[int, list[float]] = {}
        for job, _, median in known:
            by_job.setdefault(job, []).append(median)
        medians.append(tuple(statistics.fmean(ranks) for ranks in by_job.values()))
        first = known[0][1]
        if first.p25 is not None and first.p75 is not None:
            quartiles.append((first.p25, first.p75))
    spread = len(quartiles) == len(sides)
    return StepTimes(
        before_us=statistics.median(medians[0]),
        after_us=statistics.median(medians[1]),
        runs_before=medians[0],
        runs_after=medians[1],
        spread_us=sum(p75 - p25 for p25, p75 in quartiles) if spread else 0.0,
        # The middle halves of the two samples of step times do not touch.
        apart=spread and (quartiles[0][1] < quartiles[1][0] or quartiles[1][1] < quartiles[0][0]),
    )


def gap_us(untraced: StepTimes, net: Net) -> float | None:
    """What the untraced step's change holds beside kernel time, for each launch of difference; None without any."""
    if not net.launches_per_step:
        return None
    return (untraced.delta_us - net.ns_per_step / 1e3) / net.launches_per_step


def disagreements(untraced: StepTimes | None, net: Net | None, thresholds: Thresholds) -> Iterator[Reason]:
    """Says where the untraced saving is not that of the kernels, beyond noise and beyond what gaps explain."""
    if untraced is None or net is None or np.isnan(net.ns_per_step):
        return
    kernels_us = net.ns_per_step / 1e3
    apart_us = untraced.delta_us - kernels_us
    if abs(apart_us) <= max(untraced.spread_us, thresholds.min_share * untraced.before_us):
        return
    gap = gap_us(untraced, net)
    if gap is not None and 0 <= gap <= LARGEST_GAP_US:
        return
    less = abs(untraced.delta_us) < abs(kernels_us)
    cause = (
        "kernels that ran beside others were not what the step waits for"
        if less
        else "the step waits for something that no kernel's time shows"
    )
    message = (
        f"The untraced step changed by {untraced.delta_us:+.1f} µs and the kernels' time by {kernels_us:+.1f} µs: "
        f"{cause}, or the clocks of the processes differed. Quote the untraced one; repeated captures (--pairs) settle "
        "it."
    )
    yield Reason("savings-disagree", message)
