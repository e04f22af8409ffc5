"""Compares two censuses: rows, findings, fusions, the net effect, and the verdict."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from profkit import names as kernel_names
from profkit.accounting import UNATTRIBUTED, KindCensus
from profkit.comparison import cut_names, recordings, step_times
from profkit.comparison import work as work_status
from profkit.comparison.align import PAIRING_SCOPE, align
from profkit.comparison.comparable import FORCEABLE, differing_settings, obstacles
from profkit.comparison.fusions import find_fusions
from profkit.comparison.model import (
    Comparison,
    Finding,
    Gates,
    Input,
    LayerChange,
    Net,
    Reason,
    Samples,
    Status,
    StepTimes,
    Work,
)
from profkit.comparison.rows import Row, layer_rows, outside_rows, unpaired_rows
from profkit.comparison.statistics import Differences, differences
from profkit.comparison.step_kinds import matched
from profkit.comparison.thresholds import OVER_RUNS, Floats, Thresholds
from profkit.comparison.verdict import judge
from profkit.floor import floor_of


def compare(
    before: Input,
    after: Input,
    gates: Gates | None = None,
    thresholds: Thresholds | None = None,
    notes: Sequence[Reason] = (),
) -> Comparison:
    """Compare `after` with `before`.

    Args:
        gates: conditions to judge by.
        thresholds: when a difference of times counts.
        notes: reasons that the caller already has, listed with the rest.
    """
    gates = gates or Gates()
    samples: Samples = "runs" if min(before.independent_runs, after.independent_runs) > 1 else "replays"
    thresholds = thresholds or (OVER_RUNS if samples == "runs" else Thresholds())
    timed = all(run.census.info.timed for side in (before, after) for run in side.runs)
    after, kind_notes, unlike_kinds = matched(before, after)
    against, forced = [*obstacles(before, after), *unlike_kinds], [*notes, *kind_notes]
    if gates.force and all(reason.code in FORCEABLE for reason in against):
        forced += [Reason("forced", f"Compared by --force, although: {r.message}") for r in against]
        against = []
    if against:
        lasting = dict.fromkeys(reason.code for reason in against if reason.code not in FORCEABLE)
        if gates.force and lasting:
            message = f"--force does not set aside {', '.join(lasting)}: there would be no numbers to trust."
            against.append(Reason("not-forced", message))
        return Comparison(
            before=before,
            after=after,
            verdict="inconclusive",
            work="unknown",
            reasons=(*against, *notes),
            timed=timed,
            selected_layers=(_selected_layers(before), _selected_layers(after)),
            steps=(_steps(before), _steps(after)),
            thresholds=thresholds,
        )
    return _compared(before, after, gates, thresholds, samples, timed, forced)


def _selected_layers(side: Input) -> int:
    return side.census.chosen.selected_layers if side.census.kinds else 0


def _steps(side: Input) -> int:
    return sum(run.census.chosen.kind.steps for run in side.runs if run.census.kinds)


def _compared(
    before: Input,
    after: Input,
    gates: Gates,
    thresholds: Thresholds,
    samples: Samples,
    timed: bool,
    notes: list[Reason],
) -> Comparison:
    census_before = before.chosen
    census_after, cut = cut_names.unify(census_before, after.chosen)
    steps = (census_before.kind.steps, census_after.kind.steps)
    display = kernel_names.display_names(
        c for k in (census_before, census_after) for t in (k.slots, k.outside) for c in t["canonical"]
    )
    census_before, census_after, scope_notes = _comparable_scopes(census_before, census_after)
    layers, loose = _layer_pairs(census_before, census_after)
    in_layers = layer_rows(census_before, census_after, align(census_before, census_after, layers), display)
    unpaired = unpaired_rows(census_before, census_after, loose, display)
    rows = [*in_layers, *unpaired, *outside_rows(census_before, census_after, display)]
    count = census_before.selected_layers
    stats = _differences(rows, count, (census_before, census_after), samples, thresholds, timed)
    statuses = [_status(r, bool(stats.notable[i]), steps) for i, r in enumerate(rows)]
    _mark_partial(rows, statuses)
    _mark_moved(rows, statuses, steps, count)
    findings = [
        Finding(
            row=r,
            status=statuses[i],
            delta=float(stats.delta[i]),
            low=float(stats.low[i]),
            high=float(stats.high[i]),
            p=float(stats.p[i]),
            notable=bool(stats.notable[i]),
        )
        for i, r in enumerate(rows)
    ]
    selected = [f for f in findings[: len(in_layers)] if f.row.selected]
    elsewhere = [f for f in findings[: len(in_layers) + len(unpaired)] if not f.row.selected]
    gone = [f for f in selected if f.status in ("removed", "moved")]
    work: Work
    why: Reason | None
    work, why = work_status.from_digests(before, after) or ("unknown", None)
    fusions = find_fusions(selected, count, steps, work == "preserved", elsewhere)
    notes = [*notes, *cut, *scope_notes, *([] if why is None else [why])]
    if work == "unknown" and gone and (why is None or why.code != work_status.NOT_REPRODUCIBLE):
        work, why = work_status.from_trace(gone, fusions, dispatched=_dispatched(before, after))
        notes.append(why)
    untraced = step_times.recorded(before, after, "untraced")
    total = _total(in_layers, count, (census_before, census_after), samples, thresholds, timed)
    comparison = Comparison(
        before=before,
        after=after,
        verdict="neutral",
        work=work,
        reasons=(),
        timed=timed,
        selected_layers=(count, census_after.selected_layers),
        steps=steps,
        samples=samples,
        findings=tuple(selected),
        elsewhere=tuple(elsewhere),
        outside=tuple(findings[len(in_layers) + len(unpaired) :]),
        fusions=tuple(fusions),
        layers=_layer_changes(census_before, census_after, layers, samples, thresholds, timed),
        net=_net(census_before, census_after, selected, untraced, timed, total),
        untraced=untraced,
        graph_level=step_times.recorded(before, after, "graph_level"),
        traced=step_times.traced(before, after),
        floor=floor_of(before.record, [run.census for run in before.runs], gates.floor_us) if timed else None,
        thresholds=thresholds,
    )
    if unpaired:
        message = "Layers outside the selection differ in number; they are compared by kernel name, in total."
        notes.append(Reason("other-layers-unpaired", message))
    notes += step_times.disagreements(untraced, comparison.net, thresholds)
    notes += recordings.losses(before, after)
    notes += recordings.ranks_as_runs(before, after)
    notes += recordings.unlike_runs(before, after)
    notes += recordings.other_kinds(before, after)
    notes += recordings.beyond(before, after)
    settings = differing_settings(before, after)
    if settings:
        notes.append(Reason("settings-differ", f"Recorded under different settings: {'; '.join(settings)}."))
    return judge(comparison, gates, notes)


def _comparable_scopes(before: KindCensus, after: KindCensus) -> tuple[KindCensus, KindCensus, list[Reason]]:
    """Both sides without the scopes inside their layers, if they share none: a range that only one side pushed, or
    pushed under another name, must not tear its launches from their partners."""
    scopes = [set(c.slots["inside"]) - {""} for c in (before, after)]
    if scopes[0] & scopes[1] or not scopes[0] | scopes[1]:
        return before, after, []
    message = "The two sides name no scope inside their layers alike, so launches are paired by name and order alone."
    return _without_scopes(before), _without_scopes(after), [Reason("scopes-ignored", message)]


def _without_scopes(census: KindCensus) -> KindCensus:
    slots = census.slots.assign(**{PAIRING_SCOPE: ""})
    slots["occurrence"] = slots.groupby(["layer", "canonical", "op_kind"], sort=False).cumcount()
    return dataclasses.replace(census, slots=slots)


def _layer_pairs(before: KindCensus, after: KindCensus) -> tuple[list[tuple[int, int]], tuple[list[int], list[int]]]:
    """Layers in order, selected with selected and, where their numbers agree, the others with the others; and the
    layers of either side that are left without a partner."""
    pairs: list[tuple[int, int]] = []
    loose: tuple[list[int], list[int]] = ([], [])
    for wanted in (True, False):
        sides = [np.flatnonzero(c.layers["selected"].to_numpy() == wanted).tolist() for c in (before, after)]
        if len(sides[0]) == len(sides[1]):
            pairs += list(zip(*sides, strict=True))
        else:
            loose[0].extend(sides[0])
            loose[1].extend(sides[1])
    return sorted(pairs), loose


def _differences(
    rows: Sequence[Row],
    selected_layers: int,
    censuses: tuple[KindCensus, KindCensus],
    samples: Samples,
    thresholds: Thresholds,
    timed: bool,
) -> Differences:
    """Per layer per step for selected rows, per step for the rest; an absent side counts as zero, with certainty."""
    if not rows or not timed:
        nan, no = np.full(len(rows), np.nan), np.zeros(len(rows), dtype=np.bool_)
        return Differences(nan, nan, nan, nan, no, no)
    scale = np.array([1.0 / selected_layers if r.selected else 1.0 for r in rows])[:, None]
    before = np.stack([r.step_ns_before for r in rows]) * scale / censuses[0].step_weight
    after = np.stack([r.step_ns_after for r in rows]) * scale / censuses[1].step_weight
    before, after = _sampled(before, censuses[0], samples), _sampled(after, censuses[1], samples)
    return differences(before, after, thresholds)


def _total(
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
        nan, no = np.full(1, np.nan), np.zeros(1, dtype=np.bool_)
        return Differences(nan, nan, nan, nan, no, no)
    weight = [c.step_weight * selected_layers for c in censuses]
    before = np.stack([r.step_ns_before for r in mine]).sum(axis=0)[None, :] / weight[0]
    after = np.stack([r.step_ns_after for r in mine]).sum(axis=0)[None, :] / weight[1]
    before, after = _sampled(before, censuses[0], samples), _sampled(after, censuses[1], samples)
    return differences(before, after, thresholds)


def _layer_changes(
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


def _status(row: Row, notable: bool, steps: tuple[int, int]) -> Status:
    if row.launches_before and not row.launches_after:
        return "removed"
    if row.launches_after and not row.launches_before:
        return "added"
    per_step = row.launches_before * steps[1] != row.launches_after * steps[0]
    return "changed" if notable or per_step or row.name_before is not None else "unchanged"


def _mark_partial(rows: Sequence[Row], statuses: list[Status]) -> None:
    """A launch that is gone from some layers and stays in others is changed, not removed."""
    judged = list(zip(rows, statuses, strict=True))
    kept = {_identity(r) for r, s in judged if s in ("changed", "unchanged")}
    most: dict[bool, int] = {}
    for row in rows:
        most[row.selected] = max(most.get(row.selected, 0), row.layers_before)
    for index, (row, status) in enumerate(judged):
        if status == "removed" and row.layers_before < most[row.selected] and _identity(row) in kept:
            statuses[index] = "changed"


def _dispatched(before: Input, after: Input) -> bool:
    return all(run.census.info.format == "profkit dispatch" for side in (before, after) for run in side.runs)


def _identity(row: Row) -> tuple[bool, str, str, str]:
    return row.selected, row.where, row.canonical, row.op_kind


#: A launch outside the layers that lasts less than this share of the one that is gone does other work.
_SAME_WORK = 0.5


def _mark_moved(rows: Sequence[Row], statuses: list[Status], steps: tuple[int, int], layers: int) -> None:
    """A launch removed from the layers is moved if the same kernel now runs outside them, each step, as it did not.

    Args:
        layers: how many are selected.
    """
    room: dict[tuple[str, str], int] = {}
    lasts: dict[tuple[str, str], float] = {}
    for row, status in zip(rows, statuses, strict=True):
        # What no method placed may still belong to a layer, so it is no proof that a launch left one.
        if row.outside and status in ("added", "changed") and UNATTRIBUTED not in row.where:
            key = row.canonical, row.op_kind
            room[key] = row.launches_after // steps[1] - row.launches_before // steps[0]
            lasts[key] = row.ns_after / row.launches_after if row.launches_after else 0.0
    for index, row in enumerate(rows):
        key = row.canonical, row.op_kind
        here = (
            room.get(key, 0) if lasts.get(key, 0.0) >= _SAME_WORK * row.ns_before / max(row.launches_before, 1) else 0
        )
        # As many launches outside as were in several layers is no hoisting: the same work, in other ranges. Of one
        # layer, a launch that now runs once a step is moved.
        most = row.launches_before / steps[0]
        if statuses[index] == "removed" and row.selected and (0 < here < most or here == most == layers == 1):
            statuses[index] = "moved"
            room[key] -= 1


def _net(
    before: KindCensus,
    after: KindCensus,
    selected: Sequence[Finding],
    untraced: StepTimes | None,
    timed: bool,
    total: Differences,
) -> Net:
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
