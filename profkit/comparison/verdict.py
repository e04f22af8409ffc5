"""The verdict: one table, each outcome with its reasons."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from profkit.comparison.model import Comparison, Finding, Gates, Reason, Verdict


def judge(comparison: Comparison, gates: Gates, notes: Sequence[Reason]) -> Comparison:
    """`comparison` with its verdict and reasons.

    | case | verdict |
    |---|---|
    | outputs differ, or a gate fails | refuted |
    | launches removed, work preserved or consistent | confirmed |
    | launches removed, work unknown, the gate on launches holds | confirmed, on launches alone |
    | launches removed, work unknown | inconclusive |
    | nothing removed; something differs / nothing does | changed / neutral |

    Args:
        notes: reasons already known (work, settings), listed after the verdict's own.
    """
    verdict, reasons = _decide(comparison, gates)
    same = comparison.before.identity is not None and comparison.before.identity == comparison.after.identity
    if same:
        reasons.append(Reason("same-input", "Both sides are the same recording."))
    if not comparison.timed:
        reasons.append(Reason("counts-only", "No times were measured: this compares launch counts only."))
    elif min(comparison.steps) < 2:
        reasons.append(Reason("one-step", "One step a side: times are shown without intervals and decide nothing."))
    elif comparison.samples == "replays":
        message = "Times compare replays within one process a side, which are not independent runs."
        reasons.append(Reason("replays-not-runs", message))
    return dataclasses.replace(comparison, verdict=verdict, reasons=(*reasons, *notes))


def _decide(comparison: Comparison, gates: Gates) -> tuple[Verdict, list[Reason]]:
    gone = comparison.with_status("removed", "moved")
    layers = comparison.selected_layers[0]
    removed_per_layer = sum(f.row.launches_before for f in gone) / (layers * comparison.steps[0])
    net = comparison.net
    falls = net is not None and net.launches_per_layer < 0
    reasons: list[Reason] = []
    gate_holds = True
    if gates.expect_removed is not None:
        gate_holds = _in_every_layer(gone, layers) and removed_per_layer == gates.expect_removed
        code = "expected-removal" if gate_holds else "unexpected-removal"
        told = f"{removed_per_layer:g} launches per layer are gone, {gates.expect_removed} were expected."
        reasons.append(Reason(code, told))
    if comparison.work == "lost":
        reasons.insert(0, Reason("work-lost", "The outputs are not the same: work was lost or changed."))
        return "refuted", reasons
    if not gate_holds:
        return "refuted", reasons
    if gone and falls:
        reasons.insert(0, Reason("launches-removed", _removed_sentence(comparison, gone, removed_per_layer)))
        if comparison.work in ("preserved", "consistent"):
            return "confirmed", reasons + _others_changed(comparison)
        if gates.expect_removed is not None:
            reasons.append(Reason("launches-alone", "Judged on launches alone: whether the work is done is not known."))
            return "confirmed", reasons + _others_changed(comparison)
        reasons.insert(
            0, Reason("cannot-tell-work", "Launches are gone; whether their work is still done is not known.")
        )
        return "inconclusive", reasons
    different = [
        f for f in (*comparison.findings, *comparison.elsewhere, *comparison.outside) if f.status != "unchanged"
    ]
    if not different:
        reasons.append(Reason("no-difference", "The same launches, and no time differs beyond noise."))
        return "neutral", reasons
    return "changed", [*reasons, *_differences(comparison, different)]


def _in_every_layer(gone: Sequence[Finding], layers: int) -> bool:
    return all(f.row.layers_before == layers for f in gone)


def _removed_sentence(comparison: Comparison, gone: Sequence[Finding], per_layer: float) -> str:
    layers, steps = comparison.selected_layers[0], comparison.steps[0]
    if not _in_every_layer(gone, layers):
        touched = max(f.row.layers_before for f in gone)
        per_step = sum(f.row.launches_before for f in gone) / steps
        return f"{per_step:g} launches a step are gone, from at most {touched} of {layers} layers each."
    moved = sum(f.row.launches_before for f in gone if f.status == "moved") / (layers * steps)
    text = f"{per_layer:g} launches per layer are gone from {layers} layers"
    if moved:
        text += f"; {moved:g} of them now run outside the layers, once a step"
    return text + "."


def _others_changed(comparison: Comparison) -> list[Reason]:
    """Launches beside the fusion whose time changed beyond noise."""
    absorbers = {id(f.absorber) for f in comparison.fusions}
    changed = [
        f
        for f in (*comparison.findings, *comparison.elsewhere, *comparison.outside)
        if f.status == "changed" and id(f) not in absorbers
    ]
    if not changed:
        return [Reason("nothing-else-moved", "No other launch changed in number, or in time beyond noise.")]
    listed = ", ".join(f"{f.row.name} {_time(f)}" for f in changed[:3])
    return [Reason("others-changed", f"{len(changed)} other launches changed beyond noise: {listed}.")]


def _differences(comparison: Comparison, different: Sequence[Finding]) -> list[Reason]:
    steps, layers = comparison.steps, comparison.selected_layers
    reasons: list[Reason] = []
    added = [f for f in comparison.findings if f.status == "added"]
    if added:
        per_layer = sum(f.row.launches_after for f in added) / (layers[1] * steps[1])
        reasons.append(Reason("launches-added", f"{per_layer:g} launches per layer are new in {layers[1]} layers."))
    rest = [f for f in different if f not in added]
    if rest:
        listed = ", ".join(f"{f.row.name} ({f.status}{', ' + _time(f) if _time(f) else ''})" for f in rest[:3])
        reasons.append(Reason("launches-changed", f"{len(rest)} launches differ: {listed}."))
    return reasons


def _time(finding: Finding) -> str:
    return "" if math.isnan(finding.delta) else f"{finding.delta / 1e3:+.2f} µs"
