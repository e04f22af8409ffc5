"""By how much times differ: of each row, of a layer, of each layer alone, and of the step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from profkit.comparison.model import Finding, LayerChange, Net, Samples, StepTimes
from profkit.comparison.rows import Row
from profkit.comparison.statistics import Differences, differences
from profkit.comparison.thresholds import Floats, Thresholds
from profkit.model.census import KindCensus


def row_differences(
    rows: Sequence[Row],
    selected_layers: int,
    censuses: tuple[KindCensus, KindCensus],
    samples: Samples,
    thresholds: Thresholds,
    timed: bool,
) -> Differences:
    """Per layer per step for selected rows, per step for the rest; an absent side counts as zero, with certainty."""
    if not rows or not timed:
        return _untold(len(rows))
    scale = np.array([1.0 / selected_layers if r.selected else 1.0 for r in rows])[:, None]
    before = np.stack([r.step_ns_before for r in rows]) * scale
    after = np.stack([r.step_ns_after for r in rows]) * scale
    return _over_samples(before, after, censuses, samples, thresholds)


def total_difference(
    rows: Sequence[Row],
    selected_layers: int,
    censuses: tuple[KindCensus, KindCensus],
    samples: Samples,
    thresholds: Thresholds,
    timed: bool,
) -> Differences:
    """The difference of a selected layer's whole time, tested alone."""
    mine = [r for r in rows if r.selected]
    if not mine or not timed:
        return _untold(1)
    before = np.stack([r.step_ns_before for r in mine]).sum(axis=0)[None, :] / selected_layers
    after = np.stack([r.step_ns_after for r in mine]).sum(axis=0)[None, :] / selected_layers
    return _over_samples(before, after, censuses, samples, thresholds)


def _untold(count: int) -> Differences:
    """Where nothing was timed."""
    nan, no = np.full(count, np.nan), np.zeros(count, dtype=np.bool_)
    return Differences(nan, nan, nan, nan, no, no)


def _over_samples(
    before: Floats,
    after: Floats,
    censuses: tuple[KindCensus, KindCensus],
    samples: Samples,
    thresholds: Thresholds,
) -> Differences:
    """The rows' times by step, shape [rows, steps], compared over replays or runs."""
    before, after = (
        _sampled(by_step / census.step_weight, census, samples)
        for by_step, census in zip((before, after), censuses, strict=True)
    )
    return differences(before, after, thresholds)


def layer_changes(
    before: KindCensus,
    after: KindCensus,
    pairs: Sequence[tuple[int, int]],
    samples: Samples,
    thresholds: Thresholds,
    timed: bool,
) -> list[LayerChange]:
    """Each selected layer on its own."""
    chosen = before.layers["selected"].to_numpy()
    pairs = [(b, a) for b, a in pairs if chosen[b]]
    sides = [_by_layer(c, [p[i] for p in pairs]) for i, c in enumerate((before, after))]
    by_step = [_sampled(side[1], census, samples) for side, census in zip(sides, (before, after), strict=True)]
    stats = differences(by_step[0], by_step[1], thresholds) if timed else None
    changes: list[LayerChange] = []
    for row, (b, _) in enumerate(pairs):
        layer = before.layers.iloc[b]
        mean = float(by_step[0][row].mean()) if timed else 0.0
        changes.append(
            LayerChange(
                name=f"{layer['number']} ({layer['kind']})",
                launches_before=sides[0][0][row] / before.kind.steps,
                launches_after=sides[1][0][row] / after.kind.steps,
                share=float(stats.delta[row]) / mean if stats is not None and mean else float("nan"),
                notable=stats is not None and bool(stats.notable[row]),
            )
        )
    return changes


def _by_layer(census: KindCensus, layers: Sequence[int]) -> tuple[list[int], Floats]:
    """Launches, and nanoseconds by step, of the selected slots of each of `layers`."""
    slots = census.slots
    launches: list[int] = []
    by_step = np.zeros((len(layers), census.kind.steps))
    for row, layer in enumerate(layers):
        mine = np.flatnonzero(slots["selected"].to_numpy() & (slots["layer"].to_numpy() == layer))
        launches.append(int(slots["launches"].to_numpy()[mine].sum()))
        by_step[row] = census.slot_ns[mine].sum(axis=0) / census.step_weight
    return launches, by_step


def _sampled(by_step: Floats, census: KindCensus, samples: Samples) -> Floats:
    """The samples that are compared, one a column: means of jobs; or replays, those of one job's ranks as their mean.

    The ranks of a job wait for each other, so that one replay of all of them is one sample.
    """
    job = census.job_of_step
    if samples == "runs":
        # By weight, so that every rank of a job counts once.
        means = [
            np.average(by_step[:, mine], axis=1, weights=census.step_weight[mine])
            for mine in (job == number for number in np.unique(job))
        ]
        return np.stack(means, axis=1)
    _, replays = np.unique(census.run_of_step, return_counts=True)
    if len(np.unique(job)) == 1 and len(replays) > 1 and len(set(replays.tolist())) == 1:
        mean: Floats = by_step.reshape(len(by_step), len(replays), -1).mean(axis=1)
        return mean
    return by_step


def net_effect(
    before: KindCensus,
    after: KindCensus,
    selected: Sequence[Finding],
    untraced: StepTimes | None,
    timed: bool,
    total: Differences,
) -> Net:
    """What the selected rows' launches and times add up to, and what share of the step that is.

    Args:
        total: from `total_difference`.
    """
    layers, steps = before.selected_layers, (before.kind.steps, after.kind.steps)
    ns = [sum(f.row.ns_before for f in selected), sum(f.row.ns_after for f in selected)]
    launches = [sum(f.row.launches_before for f in selected), sum(f.row.launches_after for f in selected)]
    whole_launches = [int(c.slots["launches"].sum() + c.outside["launches"].sum()) for c in (before, after)]
    change = after.kind.gpu_ns / steps[1] - before.kind.gpu_ns / steps[0] if timed else float("nan")
    if not timed:
        whole, basis = float("nan"), "not timed"
    elif untraced is not None:
        whole, basis = untraced.before_us * 1e3, "untraced step"
    else:
        whole, basis = float(before.step_span_ns.mean()), "traced step"
    return Net(
        launches_per_layer=launches[1] / (layers * steps[1]) - launches[0] / (layers * steps[0]),
        launches_per_step=whole_launches[1] / steps[1] - whole_launches[0] / steps[0],
        ns_per_layer=ns[1] / (layers * steps[1]) - ns[0] / (layers * steps[0]) if timed else float("nan"),
        low=float(total.low[0]),
        high=float(total.high[0]),
        significant=bool(total.significant[0]),
        notable=bool(total.notable[0]),
        ns_per_step=change,
        step_ns=whole,
        share_of_step=change / whole if whole else float("nan"),
        share_basis=basis,
    )
