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
    between_steps,
    clock_of,
    disagreements,
    layer_changes,
    net_effect,
    one_layer_differences,
    recorded_step_times,
    row_differences,
    traced_step_times,
)
from profkit.comparison.fusions import find_fusions
from profkit.comparison.model import Comparison, Finding, Fusion, Gates, Input, Reason, Samples
from profkit.comparison.removal import removal
from profkit.comparison.rows import group_layers, layer_rows, outside_rows, unpaired_rows
from profkit.comparison.statistics import OVER_RUNS, Thresholds
from profkit.comparison.verdict import judge, statuses_of
from profkit.counting.floor import floor_of
from profkit.model.selection import Selection
from profkit.model.wording import signed
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
    first, *more = (
        Input(run.label, run.census, run.record, run.identity, rank=run.rank, numbers=run.numbers) for run in runs
    )
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
    census_after, cut = unify(census_before, after.chosen)
    steps = (census_before.passes, census_after.passes)
    kind_steps = (census_before.kind.steps, census_after.kind.steps)
    census_before, census_after, scope_notes = comparable_scopes(census_before, census_after)
    pairs, loose = layer_pairs(census_before, census_after)
    groups = group_layers(census_before, census_after, pairs)
    in_layers = layer_rows(census_before, census_after, align(census_before, census_after, pairs), groups)
    unpaired = unpaired_rows(census_before, census_after, loose)
    rows = [*in_layers, *unpaired, *outside_rows(census_before, census_after)]
    clock = clock_of(rows, steps) if timed and samples == "replays" else 1.0
    sides = Sides(census_before, census_after, samples, thresholds, timed, clock)
    stats = row_differences(rows, groups, sides)
    single = one_layer_differences(rows, groups, sides)
    differs = [bool(stats.notable[i]) or bool(single[i].unlike or single[i].collapsed) for i in range(len(rows))]
    work, why = work_status.judged(before, after)
    censuses = (census_before, census_after)
    gone = removal((before, after), censuses, groups, rows, work_preserved=work == "preserved")
    statuses = statuses_of(rows, differs, steps, census_before.selected_layers // census_before.ranks, gone.left)
    findings = [
        Finding(
            row=r,
            status=statuses[i],
            delta=float(stats.delta[i]),
            low=float(stats.low[i]),
            high=float(stats.high[i]),
            p=float(stats.p[i]),
            notable=bool(stats.notable[i]),
            unlike=single[i].unlike,
            collapsed=single[i].collapsed,
        )
        for i, r in enumerate(rows)
    ]
    selected = [f for f in findings[: len(in_layers)] if f.row.selected]
    elsewhere = [f for f in findings[: len(in_layers) + len(unpaired)] if not f.row.selected]
    chosen = [group for group in groups if group.selected]
    fusions: list[Fusion] = []
    for group in chosen:
        own = [f for f in selected if f.row.group == group.index]
        others = [f for f in (*selected, *elsewhere) if f.row.group != group.index]
        fusions += find_fusions(own, group.layers, kind_steps, work == "preserved", others)
    notes = [*notes, *cut, *scope_notes, *why]
    untraced = recorded_step_times(before, after, "untraced")
    comparison = Comparison(
        before=before,
        after=after,
        verdict="neutral",
        work=work,
        reasons=(),
        timed=timed,
        selected_layers=(census_before.selected_layers, census_after.selected_layers),
        steps=steps,
        samples=samples,
        ranks=census_before.ranks,
        findings=tuple(selected),
        elsewhere=tuple(elsewhere),
        outside=tuple(findings[len(in_layers) + len(unpaired) :]),
        fusions=tuple(fusions),
        layers=layer_changes(chosen, gone.by_group, sides),
        net=net_effect(selected, untraced, sides, between_steps(before, after)),
        untraced=untraced,
        graph_level=recorded_step_times(before, after, "graph_level"),
        traced=traced_step_times(before, after),
        floor=floor_of(before.record, [run.census for run in before.runs], gates.floor_us) if timed else None,
        groups=tuple(groups),
        moved=gone.moved,
        unexplained=gone.unexplained,
        clock=clock,
        thresholds=thresholds,
    )
    if unpaired:
        message = "Layers outside the selection differ in number; they are compared by kernel name, in total."
        notes.append(Reason("other-layers-unpaired", message))
    if clock != 1.0:
        message = (
            f"All launches alike last {signed((clock - 1) * 100, 1)} % longer after: another clock, left out of "
            "what counts as changed. Repeated captures (--pairs) average it."
        )
        notes.append(Reason("clock", message))
    notes += disagreements(untraced, comparison.net, thresholds)
    notes += recordings.losses(before, after)
    notes += recordings.ranks_as_runs(before, after)
    notes += recordings.unlike_steps(before, after)
    notes += recordings.unlike_runs(before, after)
    notes += recordings.other_kinds(before, after)
    notes += [*recordings.between(before, after), *recordings.beyond(before, after)]
    settings = differing_settings(before, after)
    if settings:
        notes.append(Reason("settings-differ", f"Recorded under different settings: {'; '.join(settings)}."))
    return judge(comparison, gates, notes)
