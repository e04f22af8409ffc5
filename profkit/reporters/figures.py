"""Figures of an answer, as data: what a page draws, in microseconds. Names come from strangers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from profkit.comparison.model import Comparison, Finding
from profkit.comparison.verdict import other_changes
from profkit.model.wording import counted
from profkit.reporters.diff_table import DiffTable, Part, layers_title
from profkit.reporters.layers_document import LayerKind, Run

#: Launches that a plot of intervals shows.
_MOST_INTERVALS = 40


@dataclass(frozen=True)
class Bar:
    """A stretch of a lane: from where, how long, what it says, and what became of it."""

    at: float
    us: float
    text: str
    status: str


@dataclass(frozen=True)
class Slots:
    """The launches of a layer in order, as long as they last; below them the same layer after.

    Args:
        lanes: their name and bars.
        arrows: from the middle of what is gone to that of what took its place.
        us: how long all of it is.
    """

    title: str
    lanes: Sequence[tuple[str, Sequence[Bar]]]
    us: float
    arrows: Sequence[tuple[float, float]] = ()
    kind: str = "slots"


@dataclass(frozen=True)
class Waterfall:
    """How a sum became another one: names and amounts; the first and last are sums."""

    title: str
    steps: Sequence[tuple[str, float]]
    kind: str = "waterfall"


@dataclass(frozen=True)
class Interval:
    """A change with its interval, and the least that counts."""

    name: str
    change: float
    low: float
    high: float
    least: float
    status: str


@dataclass(frozen=True)
class Forest:
    """Changes of launches, beside zero."""

    title: str
    intervals: Sequence[Interval]
    kind: str = "forest"

    @property
    def most(self) -> float:
        """How far the plot reaches to either side."""
        return max(max(abs(i.low), abs(i.high), i.least) for i in self.intervals)


@dataclass(frozen=True)
class Dots:
    """One value a layer; those that are named stand apart."""

    title: str
    unit: str
    values: Sequence[tuple[str, float, bool]]
    kind: str = "dots"


Figure = Slots | Waterfall | Forest | Dots


def of_diff(comparison: Comparison, table: DiffTable) -> Iterator[Figure]:
    """What a comparison that measured times shows: for each kind of layer the slots and the sum, then what else there
    is, and the layers one by one."""
    if not comparison.timed:
        return
    groups = sorted(comparison.selected_groups, key=lambda group: -group.layers)
    for group, part in zip(groups, table.parts, strict=True):
        title = f"One layer, {layers_title(group)}" if len(groups) > 1 else "One layer"
        findings = [f for f in comparison.findings if f.row.group == group.index]
        yield _slots(f"{title}: before, and after", findings, comparison)
        yield _waterfall(title, part)
    yield from _forest(comparison, table)
    layers = [layer for layer in comparison.layers if not math.isnan(layer.share)]
    if len(layers) > 1:
        shares = sorted(layer.share for layer in layers)
        middle = shares[len(shares) // 2]
        spread = sorted(abs(share - middle) for share in shares)[len(shares) // 2]
        values = [
            (layer.name, layer.share * 100, abs(layer.share - middle) > max(6 * spread, 0.02)) for layer in layers
        ]
        yield Dots("Change of each layer's time", "%", values)


def _slots(title: str, findings: Sequence[Finding], comparison: Comparison) -> Slots:
    """Each launch has a place as wide as the longer of before and after."""
    lanes: tuple[list[Bar], list[Bar]] = ([], [])
    middle: dict[int, float] = {}
    at = 0.0
    for finding in findings:
        row, per = finding.row, comparison.per_of(finding.row)
        us = [ns / n / 1e3 for ns, n in zip((row.ns_before, row.ns_after), per, strict=True)]
        for lane, own in zip(lanes, us, strict=True):
            here = own > 0 or not any(us)
            text = f"{row.name}, {row.where}: {us[0]:.2f} → {us[1]:.2f} µs, {finding.status}"
            lane.append(Bar(at, own if here else max(us), text, finding.status if here else "absent"))
        middle[id(finding)] = at + max(us) / 2
        at += max(us)
    arrows = [
        (middle[id(gone)], middle[id(absorber)])
        for fusion in comparison.fusions
        if fusion.evidence != "adjacent"
        for gone in fusion.removed
        for absorber in fusion.absorbers[:1]
        if id(gone) in middle and id(absorber) in middle
    ]
    return Slots(title, (("before", lanes[0]), ("after", lanes[1])), at, arrows)


def _waterfall(title: str, part: Part) -> Waterfall:
    """Of the printed rows, so that it adds up as the table does."""
    by_status: dict[str, int] = {}
    for row in part.rows:
        name = {"removed": "gone", "moved": "gone", "added": "new"}.get(row.status, "other launches")
        by_status[name] = by_status.get(name, 0) + row.us_change
    changes = [(name, by_status[name] / 100) for name in ("gone", "new", "other launches") if by_status.get(name)]
    steps = [("before", part.total.us_before / 100), *changes, ("after", part.total.us_after / 100)]
    return Waterfall(f"{title}: µs", steps)


def _forest(comparison: Comparison, table: DiffTable) -> Iterator[Forest]:
    """The launches that are not gone or new, and do not stand in their place."""
    known = {id(f) for f in other_changes(comparison)}
    absorbers = {id(a) for fusion in comparison.fusions for a in fusion.absorbers}
    kept = [
        f
        for f in (*comparison.findings, *comparison.elsewhere, *comparison.outside)
        if not math.isnan(f.low) and id(f) not in absorbers and (f.status == "unchanged" or id(f) in known)
    ]
    kept.sort(key=lambda f: (f.status == "unchanged", -abs(f.delta)))
    if kept:
        left = f", the largest {_MOST_INTERVALS} of {len(kept)}" if len(kept) > _MOST_INTERVALS else ""
        title = f"Every other launch: change in µs with its 95 % interval; grey is what would not count{left}"
        yield Forest(title, [_interval(f, comparison) for f in kept[:_MOST_INTERVALS]])


def _interval(finding: Finding, comparison: Comparison) -> Interval:
    row, per = finding.row, comparison.per_of(finding.row)
    least = comparison.thresholds.effect_ns(np.array(max(row.ns_before / per[0], row.ns_after / per[1])))
    name = f"{row.name} {'/'.join(map(str, row.position_after or row.position_before or ()))}".rstrip()
    change, low, high = (ns / 1e3 for ns in (finding.delta, finding.low, finding.high))
    return Interval(name, change, low, high, float(least) / 1e3, finding.status)


def of_layers(run: Run) -> Iterator[Figure]:
    """What a run that was timed shows: the slots of each kind of layer, the layers one by one, where the step's time
    goes."""
    if not run.timed or not run.layers:
        return
    for kind in run.selected.kinds:
        yield _kind_slots(run, kind)
    times = [layer.kernel_us for layer in run.layers if layer.kernel_us is not None]
    if len(times) > 1:
        values = [(str(layer.layer), layer.kernel_us or 0.0, layer.exception) for layer in run.layers]
        yield Dots("Kernel time of each layer", "µs", values)
    inside, outside = sum(times), sum(o.us or 0.0 for o in run.outside)
    step = run.traced_step.median if run.traced_step else inside + outside
    # Side streams run beside, so the sum of launches may be longer than the step.
    idle = [("between launches", step - inside - outside)] if step > inside + outside else []
    yield Waterfall(
        "Where the step's time goes: µs", [("layers", inside), ("outside layers", outside), *idle, ("step", step)]
    )


def _kind_slots(run: Run, kind: LayerKind) -> Slots:
    first = next(layer for layer in run.layers if layer.layer_kind == kind.kind and not layer.exception)
    bars: list[Bar] = []
    at = 0.0
    for kernel in first.kernels:
        us = kernel.us or 0.0
        text = f"{kernel.position}/{kernel.of} {kernel.name}, {kernel.scope}: {us:.2f} µs"
        bars.append(Bar(at, us, text, "floor" if kernel.floor else "unchanged"))
        at += us
    title = f"Layer {first.layer}, one of {counted(len(kind.layers), 'layer')} of {counted(kind.launches, 'launch')}"
    return Slots(f"{title}; at the dispatch floor: striped", ((f"layer {first.layer}", bars),), at)
