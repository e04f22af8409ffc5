"""Compares two censuses: rows, findings, fusions, the net effect, and the verdict."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from profkit import names as kernel_names
from profkit.accounting import KindCensus
from profkit.comparison import work as work_status
from profkit.comparison.align import align
from profkit.comparison.comparable import differing_settings, obstacles
from profkit.comparison.fusions import find_fusions
from profkit.comparison.model import Comparison, Finding, Gates, Input, Net, Reason, Status, Untraced, Work
from profkit.comparison.rows import Row, layer_rows, outside_rows
from profkit.comparison.statistics import Differences, Floats, Thresholds, differences
from profkit.comparison.verdict import judge


def compare(
    before: Input, after: Input, gates: Gates | None = None, thresholds: Thresholds | None = None
) -> Comparison:
    """Compare `after` with `before`.

    Args:
        gates: conditions to judge by.
        thresholds: when a difference of times counts.
    """
    gates, thresholds = gates or Gates(), thresholds or Thresholds()
    chosen = [e.census.chosen if e.census.kinds else None for e in (before, after)]
    layer_counts = tuple(c.selected_layers if c else 0 for c in chosen)
    steps = tuple(c.kind.steps if c else 0 for c in chosen)
    timed = before.census.info.timed and after.census.info.timed
    against = obstacles(before, after)
    if against or chosen[0] is None or chosen[1] is None:
        return Comparison(
            before=before,
            after=after,
            verdict="inconclusive",
            work="unknown",
            reasons=tuple(against),
            timed=timed,
            selected_layers=(layer_counts[0], layer_counts[1]),
            steps=(steps[0], steps[1]),
            thresholds=thresholds,
        )
    return _compared(before, after, chosen[0], chosen[1], gates, thresholds, timed)


def _compared(
    before: Input,
    after: Input,
    census_before: KindCensus,
    census_after: KindCensus,
    gates: Gates,
    thresholds: Thresholds,
    timed: bool,
) -> Comparison:
    display = kernel_names.display_names(
        c for k in (census_before, census_after) for t in (k.slots, k.outside) for c in t["canonical"]
    )
    layers, paired_all = _layer_pairs(census_before, census_after)
    in_layers = layer_rows(census_before, census_after, align(census_before, census_after, layers), display)
    beyond = outside_rows(census_before, census_after, display)
    rows = [*in_layers, *beyond]
    count = census_before.selected_layers
    scale = np.array([1.0 / _layers_of(r, count) for r in rows])
    stats = _differences(rows, scale, thresholds, timed)
    statuses = [_status(r, bool(stats.notable[i])) for i, r in enumerate(rows)]
    _mark_partial(rows, statuses)
    _mark_moved(rows, statuses)
    findings = [
        Finding(r, statuses[i], *(float(v[i]) for v in (stats.delta, stats.low, stats.high, stats.p)))
        for i, r in enumerate(rows)
    ]
    selected = [f for f in findings[: len(in_layers)] if f.row.selected]
    elsewhere = [f for f in findings[: len(in_layers)] if not f.row.selected]
    outside = findings[len(in_layers) :]
    gone = [f for f in selected if f.status in ("removed", "moved")]
    work: Work
    why: Reason | None
    work, why = work_status.from_digests(before, after) or ("unknown", None)
    fusions = find_fusions(selected, count, (census_before.kind.steps, census_after.kind.steps), work == "preserved")
    notes = [] if why is None else [why]
    if work == "unknown" and gone:
        work, why = work_status.from_trace(gone, fusions)
        notes.append(why)
    untraced = _untraced(before, after)
    comparison = Comparison(
        before=before,
        after=after,
        verdict="neutral",
        work=work,
        reasons=(),
        timed=timed,
        selected_layers=(count, census_after.selected_layers),
        steps=(census_before.kind.steps, census_after.kind.steps),
        findings=tuple(selected),
        elsewhere=tuple(elsewhere),
        outside=tuple(outside),
        fusions=tuple(fusions),
        net=_net(census_before, census_after, selected, findings, untraced, timed),
        untraced=untraced,
        thresholds=thresholds,
    )
    if not paired_all:
        message = "Layers outside the selection differ in number and are compared by name only in total launches."
        notes.append(Reason("other-layers-unpaired", message))
    settings = differing_settings(before, after)
    if settings:
        notes.append(Reason("settings-differ", f"Recorded under different settings: {'; '.join(settings)}."))
    return judge(comparison, gates, notes)


def _layer_pairs(before: KindCensus, after: KindCensus) -> tuple[list[tuple[int, int]], bool]:
    """Layers in order, selected with selected and, where their numbers agree, the others with the others."""
    pairs: list[tuple[int, int]] = []
    complete = True
    for wanted in (True, False):
        sides = [np.flatnonzero(c.layers["selected"].to_numpy() == wanted).tolist() for c in (before, after)]
        if len(sides[0]) == len(sides[1]):
            pairs += list(zip(*sides, strict=True))
        else:
            complete = False
    return sorted(pairs), complete


def _differences(rows: Sequence[Row], scale: Floats, thresholds: Thresholds, timed: bool) -> Differences:
    """Per layer per step for rows in layers, per step outside; an absent side counts as zero, with certainty."""
    if not rows or not timed:
        nan, no = np.full(len(rows), np.nan), np.zeros(len(rows), dtype=np.bool_)
        return Differences(nan, nan, nan, nan, no, no)
    before = np.stack([r.step_ns_before for r in rows]) * scale[:, None]
    after = np.stack([r.step_ns_after for r in rows]) * scale[:, None]
    return differences(before, after, thresholds)


def _layers_of(row: Row, selected_layers: int) -> int:
    """By how many layers a row's time is divided: all selected ones, its own elsewhere, none outside layers."""
    return selected_layers if row.selected else max(row.layers_before, row.layers_after, 1)


def _status(row: Row, notable: bool) -> Status:
    if row.launches_before and not row.launches_after:
        return "removed"
    if row.launches_after and not row.launches_before:
        return "added"
    per_step = row.launches_before * len(row.step_ns_after) != row.launches_after * len(row.step_ns_before)
    return "changed" if notable or per_step or row.name_before is not None else "unchanged"


def _mark_partial(rows: Sequence[Row], statuses: list[Status]) -> None:
    """A launch that is gone from some layers and stays in others is changed, not removed."""
    kept = {
        (r.where, r.canonical, r.op_kind) for r, s in zip(rows, statuses, strict=True) if s in ("changed", "unchanged")
    }
    most = max((r.layers_before for r in rows), default=0)
    for index, row in enumerate(rows):
        if (
            statuses[index] == "removed"
            and row.layers_before < most
            and (row.where, row.canonical, row.op_kind) in kept
        ):
            statuses[index] = "changed"


def _mark_moved(rows: Sequence[Row], statuses: list[Status]) -> None:
    """A launch removed from the layers is moved if the same kernel now runs outside them, each step, as it did not."""
    room: dict[tuple[str, str], int] = {}
    for row, status in zip(rows, statuses, strict=True):
        if not row.layers_before and not row.layers_after and status in ("added", "changed"):
            steps_before, steps_after = len(row.step_ns_before), len(row.step_ns_after)
            room[row.canonical, row.op_kind] = row.launches_after // steps_after - row.launches_before // steps_before
    for index, row in enumerate(rows):
        if statuses[index] == "removed" and row.layers_before and room.get((row.canonical, row.op_kind), 0) > 0:
            statuses[index] = "moved"
            room[row.canonical, row.op_kind] -= 1


def _untraced(before: Input, after: Input) -> Untraced | None:
    first, second = (((e.record or {}).get("untraced") or {}).get("median") for e in (before, after))
    if not isinstance(first, int | float) or not isinstance(second, int | float):
        return None
    return Untraced(float(first), float(second))


def _net(
    before: KindCensus,
    after: KindCensus,
    selected: Sequence[Finding],
    everything: Sequence[Finding],
    untraced: Untraced | None,
    timed: bool,
) -> Net:
    layers, steps = before.selected_layers, (before.kind.steps, after.kind.steps)
    ns = [sum(f.row.ns_before for f in selected), sum(f.row.ns_after for f in selected)]
    launches = [sum(f.row.launches_before for f in selected), sum(f.row.launches_after for f in selected)]
    step_ns = [sum(f.row.ns_before for f in everything), sum(f.row.ns_after for f in everything)]
    per_step = [step_ns[i] / steps[i] for i in (0, 1)]
    change = per_step[1] - per_step[0] if timed else float("nan")
    if not timed:
        whole, basis = float("nan"), "not timed"
    elif untraced is not None:
        whole, basis = untraced.before_us * 1e3, "untraced step"
    else:
        whole, basis = float(before.step_span_ns.mean()), "traced step"
    return Net(
        launches_per_layer=launches[1] / (layers * steps[1]) - launches[0] / (layers * steps[0]),
        launches_per_step=float(after.kind.ops_per_step - before.kind.ops_per_step),
        ns_per_layer=ns[1] / (layers * steps[1]) - ns[0] / (layers * steps[0]) if timed else float("nan"),
        ns_per_step=change,
        share_of_step=change / whole if whole else float("nan"),
        share_basis=basis,
    )
