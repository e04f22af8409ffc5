"""The conditions that flags set: whether each holds, does not, or cannot be told."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from profkit.comparison.model import Comparison, Finding, Fusion, Gates, LayerChange, Reason
from profkit.comparison.others import others
from profkit.model.wording import are, counted, signed, were


def check(
    comparison: Comparison, gates: Gates, gone: Sequence[Finding], removed_per_layer: float
) -> list[tuple[bool | None, Reason]]:
    """Each condition that a flag set: whether it holds (None: that cannot be told), and what was found."""
    checked: list[tuple[bool | None, Reason]] = []
    net, layers = comparison.net, comparison.selected_layers
    if gates.expect_removed is not None:
        new = [f for f in others(comparison) if f.status == "added" and f.row.selected]
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
    before = sum(f.row.ns_before for f in comparison.findings) / (comparison.selected_layers[0] * comparison.steps[0])
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
