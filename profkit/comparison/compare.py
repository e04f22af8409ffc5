"""Compares two sides of runs, or two censuses: rows, findings, fusions, the net effect, and the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from profkit.comparison import recordings
from profkit.comparison import work as work_status
from profkit.comparison.align import align, comparable_scopes, layer_pairs, unify
from profkit.comparison.comparable import FORCEABLE, differing_settings, obstacles
from profkit.comparison.effects import (
    Sides,
    disagreements,
    layer_changes,
    net_effect,
    recorded_step_times,
    row_differences,
    traced_step_times,
)
from profkit.comparison.fusions import find_fusions
from profkit.comparison.model import Comparison, Finding, Gates, Input, Reason, Samples, Work
from profkit.comparison.rows import layer_rows, outside_rows, unpaired_rows
from profkit.comparison.statistics import OVER_RUNS, Thresholds
from profkit.comparison.verdict import judge, statuses_of
from profkit.counting.floor import floor_of
from profkit.model.selection import Selection
from profkit.readers import format_of
from profkit.runs.sides import Counted, Side, count_sides, not_recorded, recorded_well, stalled


def compare_sides(both: tuple[Side, Side], selection: Selection, gates: Gates, specs: Sequence[str] = ()) -> Comparison:
    """Count both sides and compare them, without the runs that their captures set aside.

    Args:
        specs: what named the sides, for what is missing of repeated captures.

    Raises:
        ProfkitError: bad input, or every run of a side was set aside.
    """
    before, after = (recorded_well(side) for side in both)
    said = [note for spec in specs for note in not_recorded(spec)]
    said += [note for side in both for note in stalled(side)]
    counted = count_sides(before, after, selection)
    first, second = (_input(side.label, runs) for side, runs in zip((before, after), counted, strict=True))
    return compare(first, second, gates, notes=[Reason(note.code, note.message) for note in said])


def _input(label: str, runs: Sequence[Counted]) -> Input:
    first, *more = (Input(run.label, run.census, run.record, run.identity, rank=run.rank) for run in runs)
    own = first.label if more else None
    return replace(first, label=label, more=tuple(more), own=own)


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
    after, kind_notes, unlike_kinds = recordings.matched_kinds(before, after)
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
    return side.census.chosen.selected_layers * 1 if side.census.kinds else 0


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
    census_after, cut = unify(census_before, after.chosen)
    steps = (census_before.kind.steps, census_after.kind.steps)
    census_before, census_after, scope_notes = comparable_scopes(census_before, census_after)
    layers, loose = layer_pairs(census_before, census_after)
    in_layers = layer_rows(census_before, census_after, align(census_before, census_after, layers))
    unpaired = unpaired_rows(census_before, census_after, loose)
    rows = [*in_layers, *unpaired, *outside_rows(census_before, census_after)]
    count = census_before.selected_layers
    sides = Sides(census_before, census_after, samples, thresholds, timed)
    stats = row_differences(rows, sides)
    statuses = statuses_of(rows, stats.notable.tolist(), steps, count)
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
    if work == "unknown" and gone and (why is None or why.code not in work_status.LASTING):
        work, why = work_status.from_trace(gone, fusions, dispatched=_dispatched(before, after))
        notes.append(why)
    untraced = recorded_step_times(before, after, "untraced")
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
        layers=layer_changes(layers, sides),
        net=net_effect(selected, untraced, sides),
        untraced=untraced,
        graph_level=recorded_step_times(before, after, "graph_level"),
        traced=traced_step_times(before, after),
        floor=floor_of(before.record, [run.census for run in before.runs], gates.floor_us) if timed else None,
        thresholds=thresholds,
    )
    if unpaired:
        message = "Layers outside the selection differ in number; they are compared by kernel name, in total."
        notes.append(Reason("other-layers-unpaired", message))
    notes += disagreements(untraced, comparison.net, thresholds)
    notes += recordings.losses(before, after)
    notes += recordings.ranks_as_runs(before, after)
    notes += recordings.unlike_runs(before, after)
    notes += recordings.other_kinds(before, after)
    notes += recordings.beyond(before, after)
    settings = differing_settings(before, after)
    if settings:
        notes.append(Reason("settings-differ", f"Recorded under different settings: {'; '.join(settings)}."))
    return judge(comparison, gates, notes)


def _dispatched(before: Input, after: Input) -> bool:
    return all(format_of(run.census.info.format).own for side in (before, after) for run in side.runs)
