"""What reports are made of: titles, sentences and tables, built once from the data; a report only renders them.

Texts are plain, and names in them come from strangers: each report escapes them for its medium. A screen shows all
there is, a page that is pasted less. Numbers are printed so that rows add up to their total at the printed precision.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal

#: Where a block or a column is shown alone.
Medium = Literal["screen", "page"]
#: ``points`` are the sentences of a list, ``fine`` is small print, which a page has at its end, ``next`` what to do
#: next.
Style = Literal["plain", "points", "fine", "next", "warning", "alarm"]
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
#: Characters that no one sees, and that turn what is seen.
_HIDDEN = re.compile(r"[\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]")


def clean(text: str, width: int | None = None) -> str:
    """`text` without control characters and with escapes for those that do not show, its middle left out where it is
    longer than `width`."""
    text = _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", _CONTROL.sub("�", text))
    if width is None or len(text) <= width:
        return text
    head = (width - 1) * 2 // 3
    return f"{text[:head]}…{text[head + 1 - width :]}"


@dataclass(frozen=True)
class Title:
    """What the blocks below are about; a verdict has a colour of its own."""

    text: str
    verdict: str = ""


@dataclass(frozen=True)
class Lines:
    """Sentences, each on a line; empty ones and None are left out. A screen shows `detail` where it is asked for."""

    lines: Iterable[str | None]
    style: Style = "plain"
    only: Medium | None = None
    detail: bool = False

    @cached_property
    def told(self) -> list[str]:
        """Those that say something."""
        return [line for line in self.lines if line]


@dataclass(frozen=True)
class Notes:
    """Codes with their sentences."""

    notes: Sequence[tuple[str, str]]
    warning: bool = False


@dataclass(frozen=True)
class Name:
    """A launch's name in a cell, cut to the room there is; a screen shows `kind` behind it."""

    text: str
    kind: str = ""


@dataclass(frozen=True)
class Column:
    """A column.

    Args:
        title: its head.
        number: it holds numbers, which stand at its right.
        spare: a screen that is too narrow leaves it out, the highest first.
    """

    title: str
    number: bool = False
    only: Medium | None = None
    spare: int = 0


@dataclass(frozen=True)
class Row:
    """A cell for each column."""

    cells: Sequence[str | Name]
    style: Literal["", "total", "dim"] = ""


@dataclass(frozen=True)
class Table:
    """A table.

    Args:
        title: what it is about, above it; on a page the head of its first column.
        continued: of the columns of the table before, but for the first; on a page its rows stand in that table, each
            behind the title.
        most: a screen shows so many rows and says how many more there are, unless it is asked for all.
    """

    columns: Sequence[Column]
    rows: Sequence[Row]
    title: str = ""
    only: Medium | None = None
    continued: bool = False
    most: int | None = None


@dataclass(frozen=True)
class Gap:
    """An empty line."""

    only: Medium | None = None


Block = Title | Lines | Notes | Table | Gap


@dataclass(frozen=True)
class Records:
    """Rows for programs.

    Args:
        beside: what rows have no place for, a line each.
    """

    columns: Sequence[str]
    rows: Iterable[Sequence[object]]
    beside: Sequence[str] = ()


def numbers(*titles: str, only: Medium | None = None, spare: int = 0) -> list[Column]:
    """Columns of numbers."""
    return [Column(title, number=True, only=only, spare=spare) for title in titles]


def origin(*parts: object) -> str:
    """What is known of where something comes from, in a line."""
    return " · ".join(str(part) for part in parts if part)


def placed(methods: Mapping[str, int]) -> str:
    """How many ops each attribution method placed."""
    return ", ".join(f"{n:,} by {method}" for method, n in methods.items()) or "none"


def apportion(values: Sequence[Fraction], unit: Fraction, total: int | None = None) -> list[int]:
    """`values` as whole multiples of `unit` that add up (largest remainders).

    Each differs from its exact value by less than one unit.

    Args:
        total: their sum, in units; the rounded sum of `values` if not given. It must be reachable by rounding each
            value to one of its neighbours.
    """
    exact = [v / unit for v in values]
    floors = [e.__floor__() for e in exact]
    missing = (round(sum(exact, Fraction())) if total is None else total) - sum(floors)
    by_remainder = sorted(range(len(exact)), key=lambda i: (floors[i] - exact[i], i))
    for index in by_remainder[:missing]:
        floors[index] += 1
    return floors


def apportion_pair(
    before: Sequence[Fraction], after: Sequence[Fraction], unit: Fraction
) -> tuple[list[int], list[int]]:
    """`apportion` for two columns whose difference is printed too: the difference of the two totals is the rounded
    difference, which is what readers quote; to that end one of the totals may be rounded the other way."""
    sums = [sum(side, Fraction()) / unit for side in (before, after)]
    totals = [round(s) for s in sums]
    change = round(sums[1] - sums[0])
    if totals[1] - totals[0] != change:
        options = [(totals[1] - change, totals[1]), (totals[0], totals[0] + change)]
        errors = [max(abs(t - s) for t, s in zip(option, sums, strict=True)) for option in options]
        reachable = [
            all(_reachable(t, side, unit) for t, side in zip(o, (before, after), strict=True)) for o in options
        ]
        order = sorted(range(2), key=lambda i: (not reachable[i], errors[i]))
        if reachable[order[0]]:
            totals = list(options[order[0]])
    return apportion(before, unit, totals[0]), apportion(after, unit, totals[1])


def _reachable(total: int, values: Sequence[Fraction], unit: Fraction) -> bool:
    exact = [v / unit for v in values]
    return sum(e.__floor__() for e in exact) <= total <= sum(e.__ceil__() for e in exact)


def apportioned(values: Sequence[Fraction], unit: Fraction) -> list[Fraction]:
    """`apportion`, as values instead of multiples."""
    return [units * unit for units in apportion(values, unit)]


def hundredths(units: int, *, sign: bool = False) -> str:
    """`units` of 0.01 as a decimal; with `sign`, positive numbers get a plus and zero has none."""
    text = f"{abs(units) // 100}.{abs(units) % 100:02d}"
    if units < 0:
        return f"−{text}"
    return f"+{text}" if sign and units else text


def count(value: Fraction, *, sign: bool = False) -> str:
    """A count per layer or step: whole where it is whole, else two decimals."""
    if value.denominator == 1:
        text = f"{abs(value.numerator):,}"
        return f"−{text}" if value < 0 else (f"+{text}" if sign and value else text)
    return hundredths(round(value * 100), sign=sign)
