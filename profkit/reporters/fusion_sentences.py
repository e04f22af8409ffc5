"""A fusion in a sentence: what is gone, what stands in its place, and what that cost. Plain text, not escaped."""

from __future__ import annotations

import math

import numpy as np

from profkit.comparison.model import Comparison, Finding, Fusion
from profkit.model.wording import counted
from profkit.reporters.diff_sentences import MAX_NAMES, interval, where
from profkit.reporters.diff_table import DiffTable
from profkit.reporters.rounding import hundredths

_EVIDENCE = {
    "renamed": "the launch there, under a new name",
    "grew": "which grew beyond noise",
}


def line(comparison: Comparison, table: DiffTable, fusion: Fusion) -> str:
    """One fusion, or replacement; its numbers are sums of the table's rows."""
    per_layer = sum(f.row.launches_before for f in fusion.removed) / (
        comparison.selected_layers[0] * comparison.steps[0]
    )
    gone = f"{counted(per_layer, 'launch')} a layer ({where(fusion.removed)})"
    changed = "absorbed"
    if fusion.evidence == "replaced":
        new = sum(f.row.launches_after for f in fusion.absorbers) / (
            comparison.selected_layers[0] * comparison.steps[1]
        )
        text = f"Replaced, not fused: {gone} by {counted(new, 'new launch')} at the same place ({_named(fusion)})"
        changed = "added"
    elif fusion.evidence == "new":
        several = len(fusion.absorbers) > 1
        text = f"Fusion: {gone} became {'' if several else 'part of '}{_named(fusion)}, "
        text += "new launches at the same place" if several else "a new launch at the same place"
    elif fusion.evidence == "adjacent":
        (neighbour,) = fusion.absorbers
        text = f"Not shown what does the work of {gone}, though the outputs are equal; behind them is {_named(fusion)}"
        text += f", {_neighbour(comparison, table, neighbour)}" if comparison.timed else ""
        changed = "in that launch"
    else:
        text = f"Fusion: {gone} became part of {_named(fusion)}, {_EVIDENCE[fusion.evidence]}"
    if comparison.timed:
        removed = sum(table.printed[id(f)].us_change for f in fusion.removed)
        added = sum(table.printed[id(f)].us_change for f in fusion.absorbers)
        # A launch that got faster absorbed no time.
        changed = "in that launch" if added < 0 else changed
        text += (
            f"; {hundredths(removed, sign=True)} µs removed, {hundredths(added, sign=True)} µs {changed}, "
            f"net {hundredths(removed + added, sign=True)} µs a layer"
        )
    return text + "."


def _named(fusion: Fusion) -> str:
    """What stands in the place of the launches that are gone."""
    names = [f.row.name for f in fusion.absorbers]
    if len(names) > MAX_NAMES + 1:
        names = [*names[:MAX_NAMES], f"{len(names) - MAX_NAMES} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _neighbour(comparison: Comparison, table: DiffTable, neighbour: Finding) -> str:
    """What the time of the launch behind the ones that are gone did, which did not grow beyond noise."""
    if neighbour.status == "changed" and neighbour.delta < 0:
        return "which got faster, not slower"
    row, steps = neighbour.row, comparison.steps
    larger = max(row.ns_before / steps[0], row.ns_after / steps[1]) / comparison.selected_layers[0]
    if abs(neighbour.delta) < float(comparison.thresholds.effect_ns(np.array(larger))):
        return "whose time changed by less than what counts"
    if math.isnan(neighbour.low):
        return "whose change of time has no interval, and shows nothing"
    return f"whose time did not change beyond noise {interval(table.printed[id(neighbour)])}"
