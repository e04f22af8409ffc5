"""The diff's table with its numbers as printed: rows that add up, in every column and across.

µs are rounded to hundredths by largest remainders, the change is the difference of the two printed columns, and the
total change is the exact one, rounded. So a reader who adds up the table finds its totals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from profkit.comparison.model import Comparison, Finding, Group
from profkit.reporters import blocks

#: With more unchanged launches than this in a layer, those beside no change share rows.
MAX_UNCHANGED_ROWS = 12
_HUNDREDTH_US = Fraction(10)
_HUNDREDTH = Fraction(1, 100)


@dataclass(frozen=True)
class TableRow:
    """One printed row: launches per layer in hundredths at most, times in whole hundredths of µs per layer."""

    where: str
    position: str
    name: str
    kind: str
    status: str
    launches_before: Fraction
    launches_after: Fraction
    us_before: int
    us_after: int
    interval: tuple[int, int] | None
    total: bool = False

    @property
    def us_change(self) -> int:
        """After minus before, as printed."""
        return self.us_after - self.us_before

    @property
    def launches_change(self) -> Fraction:
        """After minus before."""
        return self.launches_after - self.launches_before


@dataclass(frozen=True)
class Part:
    """The rows of alike layers, their sums by the outermost scope inside the layer, and the total.

    Args:
        title: which layers, where there are others.
    """

    title: str
    rows: Sequence[TableRow]
    scopes: Sequence[TableRow]
    total: TableRow
    layers: int

    @property
    def same(self) -> bool:
        """Whether nothing differs in these layers."""
        return all(row.status in ("unchanged", "") for row in self.rows)

    @property
    def gone_and_new(self) -> Sequence[tuple[str, str, str, Fraction]]:
        """What is gone and new in these layers, in order."""
        different = [row for row in self.rows if row.status in ("removed", "added", "moved")]
        return tuple((row.where, row.name, row.status, row.launches_change) for row in different)


@dataclass(frozen=True)
class DiffTable:
    """A part for each group of selected layers; and, apart, the rows outside layers (per step) that are not the same
    before and after. `printed` finds a row by its finding's id."""

    parts: Sequence[Part]
    outside: Sequence[TableRow]
    outside_rest: TableRow | None
    printed: Mapping[int, TableRow]


def build(comparison: Comparison) -> DiffTable:
    """The table of a comparison that has findings."""
    parts: list[Part] = []
    printed: dict[int, TableRow] = {}
    groups = comparison.selected_groups
    for group in sorted(groups, key=lambda group: -group.layers):
        findings = [f for f in comparison.findings if f.row.group == group.index]
        rows = _rows(findings, comparison)
        printed |= {id(f): row for f, row in zip(findings, rows, strict=True)}
        total = replace(_sum(rows, "", "total"), total=True)
        by_scope: dict[str, list[TableRow]] = {}
        for row in rows:
            by_scope.setdefault(row.where.split("/")[0], []).append(row)
        scopes = [_sum(members, scope or "(layer itself)", "") for scope, members in by_scope.items()]
        title = layers_title(group) if len(groups) > 1 else "in the layer"
        parts.append(Part(title, _folded(rows), scopes, total, group.layers))
    outside_all = [*comparison.elsewhere, *comparison.outside]
    outside = _rows(outside_all, comparison)
    printed |= {id(f): row for f, row in zip(outside_all, outside, strict=True)}
    differ = [r for r in outside if r.status != "unchanged"]
    same = [r for r in outside if r.status == "unchanged"]
    rest = _sum(same, "", f"{len(same)} unchanged") if same else None
    return DiffTable(parts, differ, rest, printed)


#: Layers that a title names.
_NAMED = 4


def layers_title(group: Group) -> str:
    """Which layers: ``in each of 23 layers (0, 1, 2, 3, …)``."""
    listed = ", ".join(group.names[:_NAMED]) + (", …" if group.layers > _NAMED else "")
    return f"in layer {listed}" if group.layers == 1 else f"in each of {group.layers} layers ({listed})"


def _rows(findings: Sequence[Finding], comparison: Comparison) -> list[TableRow]:
    per = [[Fraction(1, n) for n in comparison.per_of(f.row)] for f in findings]
    before, after = blocks.apportion_pair(
        [f.row.ns_before * b for f, (b, _) in zip(findings, per, strict=True)],
        [f.row.ns_after * a for f, (_, a) in zip(findings, per, strict=True)],
        _HUNDREDTH_US,
    )
    launches_before = blocks.apportioned(
        [f.row.launches_before * b for f, (b, _) in zip(findings, per, strict=True)], _HUNDREDTH
    )
    launches_after = blocks.apportioned(
        [f.row.launches_after * a for f, (_, a) in zip(findings, per, strict=True)], _HUNDREDTH
    )
    return [
        TableRow(
            where=f.row.where,
            position="/".join(map(str, f.row.position_before or f.row.position_after or ())),
            name=f"{f.row.name_before} → {f.row.name}" if f.row.name_before else f.row.name,
            kind=f.row.op_kind,
            status=f.status,
            launches_before=launches_before[index],
            launches_after=launches_after[index],
            us_before=b,
            us_after=a,
            interval=_interval(f, a - b),
        )
        for index, (f, b, a) in enumerate(zip(findings, before, after, strict=True))
    ]


def _interval(finding: Finding, change: int) -> tuple[int, int] | None:
    """The interval in hundredths of µs, never without the printed change: that may be rounded away from the exact one,
    by less than a hundredth a side."""
    if math.isnan(finding.low):
        return None
    return min(round(finding.low / 10), change), max(round(finding.high / 10), change)


def _sum(rows: Sequence[TableRow], where: str, name: str) -> TableRow:
    return TableRow(
        where=where,
        position="",
        name=name,
        kind="",
        status="",
        launches_before=sum((r.launches_before for r in rows), Fraction()),
        launches_after=sum((r.launches_after for r in rows), Fraction()),
        us_before=sum(r.us_before for r in rows),
        us_after=sum(r.us_after for r in rows),
        interval=None,
    )


def _folded(rows: Sequence[TableRow]) -> list[TableRow]:
    """`rows` with stretches of unchanged launches summed up, but for those beside a change."""
    if sum(row.status == "unchanged" for row in rows) <= MAX_UNCHANGED_ROWS:
        return list(rows)
    shown: list[TableRow] = []
    stretch: list[TableRow] = []
    for index, row in enumerate(rows):
        beside = any(other.status != "unchanged" for other in rows[max(index - 1, 0) : index + 2])
        if not beside:
            stretch.append(row)
            continue
        shown += _fold(stretch)
        stretch = []
        shown.append(row)
    return shown + _fold(stretch)


def _fold(rows: Sequence[TableRow]) -> list[TableRow]:
    return list(rows) if len(rows) < 2 else [_sum(rows, "", f"… {len(rows)} unchanged …")]
