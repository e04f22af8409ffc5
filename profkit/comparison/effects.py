"""By how much times differ: of each row, of a layer, of each layer alone, and of the step, traced and untraced."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

import numpy as np

from profkit.comparison.model import Finding, Group, Input, LayerChange, Net, Reason, Row, Samples, StepTimes
from profkit.comparison.statistics import OVER_RUNS, Differences, Floats, Thresholds, differences
from profkit.counting.ranks import is_collective
from profkit.model.census import KindCensus
from profkit.model.run import StepTimesRecord


@dataclass(frozen=True)
class Sides:
    """What is compared, and how: the kinds of step of both sides, over replays or runs; and by what factor the clock
    of the side after was slower."""

    before: KindCensus
    after: KindCensus
    samples: Samples
    thresholds: Thresholds
    timed: bool
    clock: float = 1.0

    def differences(self, before: Floats, after: Floats, thresholds: Thresholds | None = None) -> Differences:
        """Of many times by step of both sides, shape [rows, steps]; NaN where nothing was timed. Whether a difference
        counts is judged at one clock."""
        if not self.timed or not len(before):
            nan, no = np.full(len(before), np.nan), np.zeros(len(before), dtype=np.bool_)
            return Differences(nan, nan, nan, nan, no, no)
        one = _sampled(before / self.before.step_weight, self.before, self.samples)
        other = _sampled(after / self.after.step_weight, self.after, self.samples)
        found = differences(one, other, thresholds or self.thresholds)
        if self.clock == 1.0:
            return found
        level = differences(one, other / self.clock, thresholds or self.thresholds)
        return replace(found, significant=level.significant, notable=level.notable)


#: A clock is told where so many launches lasted alike longer or shorter, by the same factor to within the tolerance. A
#: larger factor is no clock that a GPU has beside another of its kind.
_FEWEST_FOR_CLOCK, _CLOCK_TOLERANCE, _LEAST_CLOCK, _MOST_CLOCK = 4, 0.02, 0.003, 0.04


def clock_of(rows: Sequence[Row], steps: tuple[int, int]) -> float:
    """The factor by which all launches that run on both sides lasted longer after; 1 where they did not all alike."""
    kept = [
        (row.ns_before / steps[0], row.ns_after / steps[1])
        for row in rows
        if row.ns_before and row.ns_after and row.launches_before * steps[1] == row.launches_after * steps[0]
    ]
    if len(kept) < _FEWEST_FOR_CLOCK:
        return 1.0
    ratios = np.array([after / before for before, after in kept])
    middle = float(np.median(ratios))
    alike = np.mean(np.abs(ratios / middle - 1) <= _CLOCK_TOLERANCE) >= 0.8
    return middle if alike and _LEAST_CLOCK <= abs(middle - 1) <= _MOST_CLOCK else 1.0


def row_differences(rows: Sequence[Row], groups: Sequence[Group], sides: Sides) -> Differences:
    """Per layer per step for selected rows, per step for the rest; an absent side counts as zero, with certainty."""
    ranks = sides.before.ranks
    scale = np.array([1.0 / (groups[r.group].layers if r.selected else ranks) for r in rows])[:, None]
    return sides.differences(*(by_step * scale for by_step in _by_step(rows, sides)))


def _by_step(rows: Sequence[Row], sides: Sides) -> tuple[Floats, Floats]:
    """Nanoseconds of each row by step on both sides, shape [rows, steps]."""
    steps = (sides.before.kind.steps, sides.after.kind.steps)
    before, after = (np.zeros((len(rows), n)) for n in steps)
    for index, row in enumerate(rows):
        before[index], after[index] = row.step_ns_before, row.step_ns_after
    return before, after


#: A launch of one layer is unlike the same launch of the others from here: single launches differ more from process to
#: process than their sums over layers do.
_ONE_LAYER = Thresholds(min_us=0.3, min_share=0.1)
#: So much of what it lasts in the other layers is the least for a launch that does its work.
_COLLAPSED = 0.5
_FEWEST_SIBLINGS = 3


@dataclass(frozen=True)
class OneLayer:
    """What is to be said of single layers of a row, see `Finding`."""

    unlike: Sequence[tuple[str, float]] = ()
    collapsed: Sequence[str] = ()


def one_layer_differences(rows: Sequence[Row], groups: Sequence[Group], sides: Sides) -> list[OneLayer]:
    """Of each row the layers whose time changed otherwise than that of the others."""
    found = [OneLayer()] * len(rows)
    chosen = [
        index
        for index, row in enumerate(rows)
        # A collective waits for other ranks, in one layer longer than in the next.
        if row.selected
        and not is_collective(row.recorded)
        and len(row.slots[0]) > 1
        and row.layers_before == row.layers_after == len(row.slots[0])
    ]
    if not sides.timed or not chosen or min(sides.before.kind.steps, sides.after.kind.steps) < 2:
        return found
    slots = [np.concatenate([rows[index].slots[side] for index in chosen]) for side in (0, 1)]
    before, after = sides.before.slot_ns[slots[0]].astype(float), sides.after.slot_ns[slots[1]].astype(float)
    stats = sides.differences(before, after, _ONE_LAYER)
    means = before.mean(axis=1), after.mean(axis=1)
    layer_of = sides.before.slots["layer"].to_numpy()
    first = 0
    for index in chosen:
        row = rows[index]
        own = slice(first, first + len(row.slots[0]))
        first = own.stop
        names = {b: name for (b, _), name in zip(groups[row.group].pairs, groups[row.group].names, strict=True)}
        layers = [names[layer] for layer in layer_of[row.slots[0]].tolist()]
        delta, longer = stats.delta[own], np.maximum(means[0][own], means[1][own])
        away = np.abs(delta - np.median(delta)) >= _ONE_LAYER.effect_ns(longer)
        unlike = stats.notable[own] & (away | (np.sign(delta) != np.sign(np.median(delta))))
        collapsed = (
            (means[1][own] < _COLLAPSED * np.median(means[1][own]))
            & (means[0][own] >= _COLLAPSED * np.median(means[0][own]))
            & (longer >= sides.thresholds.min_us * 1e3)
            & (len(layers) >= _FEWEST_SIBLINGS)
        )
        found[index] = OneLayer(
            [(layers[i], float(delta[i])) for i in np.flatnonzero(unlike)],
            [layers[i] for i in np.flatnonzero(collapsed)],
        )
    return found


def layer_changes(groups: Sequence[Group], removed: Sequence[Fraction], sides: Sides) -> list[LayerChange]:
    """Each selected layer on its own.

    Args:
        removed: from each layer of a group, net.
    """
    before, after = sides.before, sides.after
    pairs = [(b, a, group, net) for group, net in zip(groups, removed, strict=True) for b, a in group.pairs]
    launches_before, ns_before = _by_layer(before, [b for b, _, _, _ in pairs])
    launches_after, ns_after = _by_layer(after, [a for _, a, _, _ in pairs])
    stats = sides.differences(ns_before, ns_after)
    means = _sampled(ns_before / before.step_weight, before, sides.samples).mean(axis=1)
    ranks: list[int] = before.layers["rank"].tolist()
    name_of = {b: name for group in groups for (b, _), name in zip(group.pairs, group.names, strict=True)}
    return [
        LayerChange(
            name=name_of[b],
            rank=ranks[b],
            launches_before=launches_before[row] / before.kind.steps,
            launches_after=launches_after[row] / after.kind.steps,
            removed=float(net),
            share=float(stats.delta[row] / means[row]) if sides.timed and means[row] else float("nan"),
            notable=bool(stats.notable[row]),
        )
        for row, (b, _, _, net) in enumerate(pairs)
    ]


def _by_layer(census: KindCensus, layers: Sequence[int]) -> tuple[list[int], Floats]:
    """Launches, and nanoseconds by step, of the selected slots of each of `layers`."""
    chosen = census.slots["selected"].to_numpy()
    layer = census.slots["layer"].to_numpy()[chosen]
    launches = np.bincount(layer, weights=census.slots["launches"].to_numpy()[chosen], minlength=len(census.layers))
    by_step = np.zeros((len(census.layers), census.kind.steps))
    np.add.at(by_step, layer, census.slot_ns[chosen])
    return launches[list(layers)].astype(int).tolist(), by_step[list(layers)]


def _sampled(by_step: Floats, census: KindCensus, samples: Samples) -> Floats:
    """The samples that are compared, one a column: means of jobs, or replays of one job, of all its ranks together."""
    job = census.job_of_step
    if samples == "runs":
        # By weight, so that every rank of a job counts once.
        means = [
            np.average(by_step[:, mine], axis=1, weights=census.step_weight[mine])
            for mine in (job == number for number in np.unique(job))
        ]
        return np.stack(means, axis=1)
    return by_step


def between_steps(before: Input, after: Input) -> tuple[float, float]:
    """How many more launches run between the steps after, where their number differs; and nanoseconds of them."""
    counts = [sum(side.between_steps.values(), Fraction()) for side in (before, after)]
    if before.between_steps == after.between_steps:
        return 0.0, 0.0
    means = [statistics.fmean(run.census.chosen.between_ns for run in side.runs) for side in (before, after)]
    return float(counts[1] - counts[0]), means[1] - means[0]


def net_effect(
    selected: Sequence[Finding], untraced: StepTimes | None, sides: Sides, between: tuple[float, float]
) -> Net:
    """What the selected rows' launches and times add up to, and what share of the step that is.

    Args:
        between: launches and nanoseconds that run between the steps and belong to one each, after minus before.
    """
    before, after, timed = sides.before, sides.after, sides.timed
    # A layer's whole time, tested beside the step's: each at half of the chance of error.
    half = replace(sides.thresholds, alpha=sides.thresholds.alpha / 2)
    whole_rows = _by_step([f.row for f in selected], sides)
    sums = [ns.sum(axis=0)[None, :] / before.selected_layers for ns in whole_rows]
    total = sides.differences(sums[0], sums[1], half)
    steps = (before.passes, after.passes)
    per = (before.selected_layers * before.kind.steps, before.selected_layers * after.kind.steps)
    ns = [sum(f.row.ns_before for f in selected), sum(f.row.ns_after for f in selected)]
    launches = [sum(f.row.launches_before for f in selected), sum(f.row.launches_after for f in selected)]
    whole_launches = [int(c.slots["launches"].sum() + c.outside["launches"].sum()) for c in (before, after)]
    change = after.kind.gpu_ns / steps[1] - before.kind.gpu_ns / steps[0] + between[1] if timed else float("nan")
    if not timed:
        whole, basis = float("nan"), "not timed"
    elif untraced is not None:
        whole, basis = untraced.before_us * 1e3, "untraced step"
    else:
        whole, basis = float(np.median(before.step_span_ns)), "traced step"
    return Net(
        launches_per_layer=launches[1] / per[1] - launches[0] / per[0],
        launches_per_step=whole_launches[1] / steps[1] - whole_launches[0] / steps[0] + between[0],
        ns_per_layer=ns[1] / per[1] - ns[0] / per[0] if timed else float("nan"),
        low=float(total.low[0]),
        high=float(total.high[0]),
        significant=bool(total.significant[0]),
        notable=bool(total.notable[0]),
        ns_per_step=change,
        step_ns=whole,
        share_of_step=change / whole if whole else float("nan"),
        share_basis=basis,
    )


#: A launch more or less changes an untraced step by its kernel's time and by the gap before it, which no kernel's
#: duration holds: 0.21 µs on an H200 (docs/results/dcp-combine-h200.md). Up to so much is taken for such gaps.
LARGEST_GAP_US = 2.0


def recorded_step_times(before: Input, after: Input, field: Literal["untraced", "graph_level"]) -> StepTimes | None:
    """The step times that captures keep in run.json; None where a side has none."""
    sides = [
        [(job, getattr(run.record, field)) for job, run in _by_job(side) if run.record is not None]
        for side in (before, after)
    ]
    return _step_times(sides)


def traced_step_times(before: Input, after: Input) -> StepTimes | None:
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
    before = statistics.median(medians[0])
    if min(map(len, medians)) > 1:
        beside_the_layers = replace(OVER_RUNS, confidence=1 - (1 - OVER_RUNS.confidence) / 2)
        stats = differences(np.array([medians[0]]), np.array([medians[1]]), beside_the_layers)
        half = float(stats.high[0] - stats.low[0]) / 2
    else:
        spread = sum(p75 - p25 for p25, p75 in quartiles) if len(quartiles) == len(sides) else 0.0
        half = spread / 2 + PROCESS_SHARE * before
    return StepTimes(before, statistics.median(medians[1]), medians[0], medians[1], half)


#: Step times of single processes differ by so much without a cause.
PROCESS_SHARE = 0.03
#: A gap is told over at least so many launches of difference.
_FEWEST_FOR_GAP = 8


def gap_us(untraced: StepTimes, net: Net) -> float | None:
    """What the untraced step's change holds beside kernel time, for each launch of difference; None where few launches
    differ."""
    if abs(net.launches_per_step) < _FEWEST_FOR_GAP:
        return None
    return (untraced.delta_us - net.ns_per_step / 1e3) / net.launches_per_step


def longer_untraced(untraced: StepTimes, traced: StepTimes) -> bool:
    """Whether a side's step takes longer without the profiler than with it, beyond what processes differ by."""
    return any(
        without > (1 + PROCESS_SHARE) * with_it
        for without, with_it in ((untraced.before_us, traced.before_us), (untraced.after_us, traced.after_us))
    )


def disagreements(untraced: StepTimes | None, net: Net | None, thresholds: Thresholds) -> Iterator[Reason]:
    """Says where the untraced saving is not that of the kernels, beyond noise and beyond what gaps explain."""
    if untraced is None or net is None or np.isnan(net.ns_per_step):
        return
    kernels_us = net.ns_per_step / 1e3
    apart_us = untraced.delta_us - kernels_us
    if abs(apart_us) <= max(untraced.half_us, thresholds.min_share * untraced.before_us):
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
