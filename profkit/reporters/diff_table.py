"""The diff's table with its numbers as printed: rows that add up, in every column and across.

µs are rounded to hundredths by largest remainders, the change is the difference of the two printed columns, and the
total change is the exact one, rounded. So a reader who adds up the table finds its totals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from profkit.comparison.model import Comparison, Finding
from profkit.reporters import blocks

#: With more unchanged launches than this in a layer, they share one row.
MAX_UNCHANGED_ROWS = 12
_HUNDREDTH_US = Fraction(10)
_HUNDREDTH = Fraction(1, 100)


@dataclass(frozen=True)
class TableRow:
    """One printed row: launches per layer in hundredths at most, times in whole hundredths of µs per layer."""

    where: str
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
class DiffTable:
    """The selected layers' rows, their sums by the outermost scope inside the layer, and the total; and, apart, the
    rows outside layers (per step) that are not the same before and after. `printed` finds a row by its finding's id."""

    rows: Sequence[TableRow]
    scopes: Sequence[TableRow]
    total: TableRow
    outside: Sequence[TableRow]
    outside_rest: TableRow | None
    layers: int
    printed: Mapping[int, TableRow]


def build(comparison: Comparison) -> DiffTable:
    """The table of a comparison that has findings."""
    layers = comparison.selected_layers[0]
    rows = _rows(comparison.findings, comparison, layers)
    total = replace(_sum(rows, "", "total"), total=True)
    by_scope: dict[str, list[TableRow]] = {}
    for row in rows:
        by_scope.setdefault(row.where.split("/")[0], []).append(row)
    scopes = [_sum(members, scope or "(layer itself)", "") for scope, members in by_scope.items()]
    outside_all = [*comparison.elsewhere, *comparison.outside]
    outside = _rows(outside_all, comparison, 1)
    differ = [r for r in outside if r.status != "unchanged"]
    same = [r for r in outside if r.status == "unchanged"]
    rest = _sum(same, "", f"{len(same)} unchanged") if same else None
    found = [*comparison.findings, *outside_all]
    printed = {id(f): row for f, row in zip(found, [*rows, *outside], strict=True)}
    return DiffTable(_collapsed(rows), scopes, total, differ, rest, layers, printed)


def _rows(findings: Sequence[Finding], comparison: Comparison, layers: int) -> list[TableRow]:
    per = [Fraction(1, layers * s) for s in comparison.steps]
    before, after = blocks.apportion_pair(
        [f.row.ns_before * per[0] for f in findings], [f.row.ns_after * per[1] for f in findings], _HUNDREDTH_US
    )
    launches_before = blocks.apportioned([f.row.launches_before * per[0] for f in findings], _HUNDREDTH)
    launches_after = blocks.apportioned([f.row.launches_after * per[1] for f in findings], _HUNDREDTH)
    return [
        TableRow(
            where=f.row.where,
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
        name=name,
        kind="",
        status="",
        launches_before=sum((r.launches_before for r in rows), Fraction()),
        launches_after=sum((r.launches_after for r in rows), Fraction()),
        us_before=sum(r.us_before for r in rows),
        us_after=sum(r.us_after for r in rows),
        interval=None,
    )


def _collapsed(rows: Sequence[TableRow]) -> list[TableRow]:
    same = [r for r in rows if r.status == "unchanged"]
    if len(same) <= MAX_UNCHANGED_ROWS:
        return list(rows)
    return [*(r for r in rows if r.status != "unchanged"), _sum(same, "", f"{len(same)} unchanged launches")]
