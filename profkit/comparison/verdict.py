"""The verdict: one table of outcomes, each with its reasons; the gates that flags set; what became of each launch."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from profkit.comparison.model import Comparison, Finding, Fusion, Gates, LayerChange, Reason, Row, Status, Verdict
from profkit.comparison.work import NOT_REPRODUCIBLE
from profkit.counting.ranks import world_sizes
from profkit.model.census import UNATTRIBUTED
from profkit.model.wording import are, counted, signed, were


def judge(comparison: Comparison, gates: Gates, notes: Sequence[Reason]) -> Comparison:
    """`comparison` with its verdict and reasons.

    | case | verdict |
    |---|---|
    | outputs differ, or a gate fails | refuted |
    | whether a gate holds cannot be told | inconclusive |
    | launches removed, work preserved or consistent | confirmed |
    | launches removed, work unknown, the gate on launches holds | confirmed, on launches alone; inconclusive where the
        outputs are not reproducible |
    | launches removed, work unknown | inconclusive |
    | nothing removed; something differs / nothing does | changed / neutral |

    Args:
        notes: reasons already known (work, settings), listed after the verdict's own.
    """
    verdict, reasons = _decide(comparison, gates, reproducible=all(note.code != NOT_REPRODUCIBLE for note in notes))
    identities = [{run.identity for run in side.runs} for side in (comparison.before, comparison.after)]
    if None not in identities[0] and identities[0] == identities[1]:
        reasons.append(Reason("same-input", "Both sides are the same recording."))
    if comparison.samples == "runs":
        reasons += _more_runs(comparison)
    if not comparison.timed:
        reasons.append(Reason("counts-only", "No times were measured: this compares launch counts only."))
    elif min(comparison.steps) < 2:
        reasons.append(Reason("one-step", "One step a side: times are shown without intervals and decide nothing."))
    elif comparison.samples == "replays":
        ranks = any(world_sizes(s.runs) != {1} for s in (comparison.before, comparison.after))
        peers = any(len(side.runs) > 1 for side in (comparison.before, comparison.after))
        within = "one process a side"
        if ranks:
            within = "one job a side, averaged over its ranks" if peers else "one rank of a job a side"
        message = f"Times compare replays within {within}, which are not independent runs."
        counts = [side.independent_runs for side in (comparison.before, comparison.after)]
        if max(counts) > 1:
            one, several = sorted(zip(counts, (comparison.before.label, comparison.after.label), strict=True))
            message = (
                f"{one[1]} is one run, so times compare its replays with those of {several[0]} runs of {several[1]}; "
                "replays are not independent runs."
            )
        reasons.append(Reason("replays-not-runs", message))
    return dataclasses.replace(comparison, verdict=verdict, reasons=(*reasons, *notes))


def _decide(comparison: Comparison, gates: Gates, *, reproducible: bool) -> tuple[Verdict, list[Reason]]:
    gone = comparison.with_status("removed", "moved")
    removed_per_layer = sum(f.row.launches_before for f in gone) / comparison.per[0]
    net = comparison.net
    falls = net is not None and net.launches_per_layer < 0 and net.launches_per_step < 0
    checked = _check_gates(comparison, gates, gone, removed_per_layer)
    reasons = [reason for _, reason in checked]
    if comparison.work == "lost":
        return "refuted", [Reason("work-lost", "The outputs are not the same: work was lost or changed."), *reasons]
    failed = [reason for holds, reason in checked if holds is False]
    if failed:
        return "refuted", failed + [r for r in reasons if r not in failed]
    open_ = [reason for holds, reason in checked if holds is None]
    if open_:
        return "inconclusive", open_ + [r for r in reasons if r not in open_]
    if gone and falls:
        reasons.insert(0, Reason("launches-removed", _removed_sentence(comparison, gone, removed_per_layer)))
        if comparison.work in ("preserved", "consistent"):
            return "confirmed", reasons + _others_changed(comparison)
        if gates.expect_removed is not None and reproducible:
            reasons.append(Reason("launches-alone", "Judged on launches alone: whether the work is done is not known."))
            return "confirmed", reasons + _others_changed(comparison)
        message = "Launches are gone, and whether their work is still done is not known."
        return "inconclusive", [Reason("cannot-tell-work", message), *reasons]
    everything = (*comparison.findings, *comparison.elsewhere, *comparison.outside)
    different = [f for f in everything if f.status != "unchanged"]
    slower = _whole_changed(comparison)
    if not different and slower:
        return "changed", [*slower, *reasons]
    if not different:
        return "neutral", [Reason("no-difference", _no_difference(comparison)), *reasons]
    return "changed", [*_differences(comparison, different), *reasons]


def _whole_changed(comparison: Comparison) -> list[Reason]:
    """A difference of the whole that no single launch shows."""
    net, untraced = comparison.net, comparison.untraced
    found: list[Reason] = []
    if net is not None and net.notable:
        message = (
            f"A layer's time changed by {signed(net.ns_per_layer / 1e3, 2)} µs beyond noise, spread over its launches."
        )
        found.append(Reason("layer-time-changed", message))
    if untraced is not None and untraced.notable(comparison.thresholds):
        message = f"The untraced step changed by {signed(untraced.delta_us, 2)} µs, beyond the spread of its replays."
        found.append(Reason("step-time-changed", message))
    return found


def _no_difference(comparison: Comparison) -> str:
    if not comparison.timed:
        return "The same launches."
    if min(comparison.steps) < 2:
        return "The same launches; of one step a side, times tell nothing."
    return "The same launches, and no time differs beyond noise."


def _removed_sentence(comparison: Comparison, gone: Sequence[Finding], per_layer: float) -> str:
    layers, steps = comparison.selected_layers[0], comparison.steps[0]
    new = _new_launches(comparison)
    if not in_every_layer(gone, layers):
        touched = max(f.row.layers_before for f in gone)
        per_step = sum(f.row.launches_before for f in gone) / steps
        whence = f"from at most {touched} of {counted(layers, 'layer')} each"
        return f"{counted(per_step, 'launch')} a step {are(per_step)} gone, {whence}{'; ' if new else ''}{new}."
    moved = sum(f.row.launches_before for f in gone if f.status == "moved") / comparison.per[0]
    text = f"{counted(per_layer, 'launch')} per layer {are(per_layer)} gone from {counted(layers, 'layer')}"
    if moved:
        text += f"; {moved:g} of them now run{'s' if moved == 1 else ''} outside the layers, once a step"
    return f"{text}{'; ' if new else ''}{new}."


def _new_launches(comparison: Comparison) -> str:
    """How many launches the selected layers have that they had not: ``1 launch per layer is new in 24 layers``."""
    added = comparison.with_status("added")
    layers, steps = comparison.selected_layers[1], comparison.steps[1]
    number = sum(f.row.launches_after for f in added) / steps
    if not added:
        return ""
    if all(f.row.layers_after == layers and f.row.launches_after % (layers * steps) == 0 for f in added):
        return (
            f"{counted(number / layers, 'launch')} per layer {are(number / layers)} new in {counted(layers, 'layer')}"
        )
    touched = max(f.row.layers_after for f in added)
    return (
        f"{counted(number, 'launch')} a step {are(number)} new, in at most {touched} of {counted(layers, 'layer')} each"
    )


def _others_changed(comparison: Comparison) -> list[Reason]:
    """Launches beside the ones that are gone, and what took their place, that changed in number or beyond noise."""
    changed = other_changes(comparison)
    if not changed:
        return [Reason("nothing-else-moved", "No other launch changed in number, or in time beyond noise.")]
    listed = _listed(changed, comparison.steps)
    return [Reason("others-changed", f"{counted(len(changed), 'other launch')} changed: {listed}.")]


def _differences(comparison: Comparison, different: Sequence[Finding]) -> list[Reason]:
    steps = comparison.steps
    reasons: list[Reason] = []
    added = comparison.with_status("added")
    if added:
        reasons.append(Reason("launches-added", f"{_new_launches(comparison)}."))
    rest = [f for f in different if f not in added]
    if rest:
        listed = _listed(rest, steps)
        reasons.append(
            Reason(
                "launches-changed", f"{counted(len(rest), 'launch')} differ{'s' if len(rest) == 1 else ''}: {listed}."
            )
        )
    return reasons


def _more_runs(comparison: Comparison) -> list[Reason]:
    """How many more runs would decide a difference that is large enough to count and not significant."""
    runs = min(comparison.before.independent_runs, comparison.after.independent_runs)
    needed = 0
    for f in comparison.findings:
        times = [f.row.ns_before / comparison.steps[0], f.row.ns_after / comparison.steps[1]]
        effect = float(comparison.thresholds.effect_ns(np.array(times) / comparison.selected_layers[0]).max())
        if f.status == "unchanged" and abs(f.delta) >= effect and f.high > f.low:
            # The half-width shrinks with the root of the number of runs; half the difference leaves room for Holm.
            needed = max(needed, math.ceil(runs * ((f.high - f.low) / abs(f.delta)) ** 2))
    if needed <= runs:
        return []
    message = (
        f"{runs} runs a side leave a difference open that would count; about {needed - runs} more would decide it."
    )
    return [Reason("more-runs", message)]


#: More names than this make a sentence unreadable; the report's table has them all.
_MOST_NAMES = 3


def _listed(findings: Sequence[Finding], steps: tuple[int, int]) -> str:
    """The findings and what happened to each. By how much is for the table to say, whose rounded rows add up."""
    named = ", ".join(f"{f.row.name} ({_happened(f, steps)})" for f in findings[:_MOST_NAMES])
    rest = len(findings) - _MOST_NAMES
    return f"{named} and {rest} more" if rest > 0 else named


def _happened(finding: Finding, steps: tuple[int, int]) -> str:
    row = finding.row
    same_number = row.launches_before * steps[1] == row.launches_after * steps[0]
    if finding.status != "changed":
        return finding.status
    if not same_number:
        return "more launches" if row.launches_before * steps[1] < row.launches_after * steps[0] else "fewer launches"
    if not finding.notable:
        return "renamed" if row.name_before else finding.status
    return "faster" if finding.delta < 0 else "slower"


def _check_gates(
    comparison: Comparison, gates: Gates, gone: Sequence[Finding], removed_per_layer: float
) -> list[tuple[bool | None, Reason]]:
    """Each condition that a flag set: whether it holds (None: that cannot be told), and what was found."""
    checked: list[tuple[bool | None, Reason]] = []
    net, layers = comparison.net, comparison.selected_layers
    if gates.expect_removed is not None:
        new = [f for f in other_changes(comparison) if f.status == "added" and f.row.selected]
        # More than are gone cannot all have taken their place.
        new += [f for fusion in comparison.fusions if _more(fusion, comparison.steps) for f in fusion.absorbers]
        # Launches that as many others replace are gone by name only.
        saved = not gone or (net is not None and net.launches_per_layer < 0)
        expected = removed_per_layer == gates.expect_removed
        unlike = _unlike_layer(comparison)
        holds = in_every_layer(gone, layers[0]) and expected and not new and saved and unlike is None
        wanted = gates.expect_removed
        told = f"{counted(removed_per_layer, 'launch')} per layer {are(removed_per_layer)} gone, "
        told += f"{wanted} {were(wanted)} expected"
        if new:
            told += f"; but {counted(len(new), 'other')} {are(len(new))} new, e.g. {new[0].row.name}."
        elif unlike is not None:
            told += (
                f"; but not from each: layer {unlike.name} has {unlike.launches_before:g} → {unlike.launches_after:g}."
            )
        else:
            told += "." if saved else "; but as many new ones took their place."
        checked.append((holds, Reason("expected-removal" if holds else "unexpected-removal", told)))
    if gates.expect_fused:
        checked.append(_fused(comparison, gone))
    if gates.max_launches_per_layer is not None:
        most = max(comparison.layers, key=lambda layer: layer.launches_after)
        holds = most.launches_after <= gates.max_launches_per_layer
        allowed = gates.max_launches_per_layer
        told = f"At most {counted(most.launches_after, 'launch')} in a layer ({most.name}); "
        told += f"{allowed:g} {were(allowed)} allowed."
        checked.append((holds, Reason("launches-within-limit" if holds else "too-many-launches", told)))
    if gates.max_regression_percent is not None and net is not None:
        checked.append(_regression(comparison, gates.max_regression_percent))
    return checked


def _fused(comparison: Comparison, gone: Sequence[Finding]) -> tuple[bool | None, Reason]:
    kinds = {fusion.evidence for fusion in comparison.fusions} if gone else set()
    if kinds - {"replaced", "adjacent"}:
        return True, Reason("expected-fusion", "A fusion was expected, and one was found.")
    if "adjacent" in kinds:
        message = (
            "A fusion was expected, and whether it was one cannot be told: launches are gone, the outputs are equal, "
            "but no launch in their place is new, renamed or longer than before."
        )
        return None, Reason("fusion-unknown", message)
    return False, Reason("no-fusion", "A fusion was expected, and none was found.")


def _unlike_layer(comparison: Comparison) -> LayerChange | None:
    """A selected layer that lost another number of launches than most."""
    lost = [round(layer.launches_before - layer.launches_after, 6) for layer in comparison.layers]
    usual = Counter(lost).most_common(1)[0][0] if lost else 0.0
    return next((layer for layer, n in zip(comparison.layers, lost, strict=True) if n != usual), None)


def _more(fusion: Fusion, steps: tuple[int, int]) -> bool:
    """Whether more launches are new at a place than are gone from it."""
    gone, new = (
        sum(f.row.launches_before for f in fusion.removed),
        sum(f.row.launches_after for f in fusion.absorbers),
    )
    return fusion.evidence == "replaced" and new * steps[0] > gone * steps[1]


def _regression(comparison: Comparison, percent: float) -> tuple[bool | None, Reason]:
    net = comparison.net
    before = sum(f.row.ns_before for f in comparison.findings) / comparison.per[0]
    if net is None or not comparison.timed or before == 0 or math.isnan(net.low):
        message = "Whether a layer became slower cannot be told: there are no times, or no repetitions of them."
        return None, Reason("regression-unknown", message)
    share = net.ns_per_layer / before * 100
    slower = [layer for layer in comparison.layers if layer.notable and layer.share * 100 > percent]
    if slower:
        worst = max(slower, key=lambda layer: layer.share)
        message = (
            f"{counted(len(slower), 'layer')} became slower by more than {percent:g} %, beyond noise; layer "
            f"{worst.name} by {worst.share * 100:.2f} %."
        )
        return False, Reason("regression", message)
    highest = net.high / before * 100
    counts = float(comparison.thresholds.effect_ns(np.array(before))) / before * 100
    if not net.significant and highest > percent + counts:
        message = (
            f"Whether a layer became slower cannot be told: its time changed by {signed(share, 2)} %, and noise leaves "
            f"open up to {signed(highest, 2)} %; at most {percent:+g} % were allowed. Record more repetitions."
        )
        return None, Reason("regression-unknown", message)
    holds = not (net.significant and share > percent)
    noise = "beyond noise" if net.significant else "within noise"
    told = f"A layer's time changed by {signed(share, 2)} %, {noise}; at most {percent:+g} % were allowed."
    return holds, Reason("no-regression" if holds else "regression", told)


def in_every_layer(gone: Sequence[Finding], layers: int) -> bool:
    """Whether each of these launches was in every selected layer."""
    return all(f.row.layers_before == layers for f in gone)


def other_changes(comparison: Comparison) -> list[Finding]:
    """Findings that are not unchanged and belong neither to what is gone nor to what took its place."""
    explained = {id(f) for f in comparison.with_status("removed", "moved")}
    explained |= {id(absorber) for fusion in comparison.fusions for absorber in fusion.absorbers}
    moved = {(f.row.canonical, f.row.op_kind) for f in comparison.with_status("moved")}
    explained |= {id(f) for f in comparison.outside if (f.row.canonical, f.row.op_kind) in moved}
    # What moved out of the selected layers moved out of the others too, where those lost the same launch.
    left = {(f.row.where, f.row.canonical, f.row.op_kind) for f in comparison.with_status("moved")}
    explained |= {
        id(f)
        for f in comparison.elsewhere
        if f.status == "removed" and (f.row.where, f.row.canonical, f.row.op_kind) in left
    }
    everything = (*comparison.findings, *comparison.elsewhere, *comparison.outside)
    return [f for f in everything if f.status != "unchanged" and id(f) not in explained]


#: A launch outside the layers that lasts less than this share of the one that is gone does other work.
_SAME_WORK = 0.5


def statuses_of(rows: Sequence[Row], notable: Sequence[bool], steps: tuple[int, int], layers: int) -> list[Status]:
    """The status of each row.

    Args:
        notable: whether each row's time differs.
        steps: of either side.
        layers: how many are selected.
    """
    statuses = [_status(row, differs, steps) for row, differs in zip(rows, notable, strict=True)]
    _mark_partial(rows, statuses)
    _mark_moved(rows, statuses, steps, layers)
    return statuses


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


def _identity(row: Row) -> tuple[bool, str, str, str]:
    return row.selected, row.where, row.canonical, row.op_kind


def _mark_moved(rows: Sequence[Row], statuses: list[Status], steps: tuple[int, int], layers: int) -> None:
    """A launch removed from the layers is moved if the same kernel now runs outside them, each step, as it did not."""
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
