"""Numbers as they are printed: rows that add up to their total at the printed precision."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction


def apportion(values: Sequence[Fraction], unit: Fraction) -> list[int]:
    """`values` as whole multiples of `unit` whose sum is the rounded sum of `values` (largest remainders).

    Each differs from its exact value by less than one unit, so a table's printed rows add up to its printed total.
    """
    exact = [v / unit for v in values]
    floors = [e.__floor__() for e in exact]
    missing = round(sum(exact, Fraction())) - sum(floors)
    by_remainder = sorted(range(len(exact)), key=lambda i: (floors[i] - exact[i], i))
    for index in by_remainder[:missing]:
        floors[index] += 1
    return floors


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
