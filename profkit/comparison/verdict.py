"""The verdict: one table, each outcome with its reasons."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from profkit.comparison import gates as gates_of
from profkit.comparison.gates import in_every_layer
from profkit.comparison.model import Comparison, Finding, Gates, Reason, Verdict
from profkit.comparison.others import others
from profkit.comparison.work import NOT_REPRODUCIBLE
from profkit.counting.ranks import world_sizes
from profkit.model.wording import are, counted, signed


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
        ranks = any(world_sizes([run.record for run in s.runs]) != {1} for s in (comparison.before, comparison.after))
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
    layers = comparison.selected_layers[0]
    removed_per_layer = sum(f.row.launches_before for f in gone) / (layers * comparison.steps[0])
    net = comparison.net
    falls = net is not None and net.launches_per_layer < 0 and net.launches_per_step < 0
    checked = gates_of.check(comparison, gates, gone, removed_per_layer)
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
    moved = sum(f.row.launches_before for f in gone if f.status == "moved") / (layers * steps)
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
    changed = others(comparison)
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
