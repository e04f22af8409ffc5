"""Numbers as they are printed: rows that add up to their total at the printed precision."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction


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
