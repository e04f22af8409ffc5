"""Ranges of numbers given on the command line: one out of its range, and one that is no finite number, is an error."""

from __future__ import annotations

import math
from collections.abc import Callable

import typer

from profkit.errors import ProfkitError

#: What torch's generators take.
_LARGEST_SEED = 2**63 - 1


def _refusing(
    holds: Callable[[float], bool], needed: str
) -> Callable[[typer.CallbackParam, float | None], float | None]:
    """An option's callback that lets a number through where it `holds`, as it does an option that was not given."""

    def check(param: typer.CallbackParam, value: float | None) -> float | None:
        # Comparisons with nan are false, and infinity passes them.
        if value is not None and not (math.isfinite(value) and holds(value)):
            shown = value if isinstance(value, int) else f"{value:g}"
            raise ProfkitError(f"{max(param.opts, key=len)} {shown}: give {needed}.")
        return value

    return check


COUNT = _refusing(lambda value: value >= 1, "a whole number of at least 1")
COUNT_OR_NONE = _refusing(lambda value: value >= 0, "a whole number of at least 0")
SEED = _refusing(lambda value: 0 <= value <= _LARGEST_SEED, f"a whole number from 0 to {_LARGEST_SEED}")
SECONDS = _refusing(lambda value: value > 0, "a number of seconds above 0")
MICROSECONDS = _refusing(lambda value: value > 0, "a number of µs above 0")
NUMBER_OR_NONE = _refusing(lambda value: value >= 0, "a finite number of at least 0")
PER_CENT = _refusing(lambda value: value >= -100, "a finite number of per cent, at least -100 (all of the time)")
FACTOR = _refusing(lambda value: value == 0 or value >= 1, "a finite factor of at least 1, or 0 for all")
