"""The range of every option that takes a number, for the command line and for plans that are made without it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from profkit.errors import ProfkitError

#: What torch's generators take.
_LARGEST_SEED = 2**63 - 1


@dataclass(frozen=True)
class NumberRange:
    """A range of finite numbers.

    Args:
        holds: whether a finite number is in it.
        needed: what is, in words that follow "give".
    """

    holds: Callable[[float], bool]
    needed: str


_COUNT = NumberRange(lambda value: value >= 1, "a whole number of at least 1")
_COUNT_OR_NONE = NumberRange(lambda value: value >= 0, "a whole number of at least 0")
_SEED = NumberRange(lambda value: 0 <= value <= _LARGEST_SEED, f"a whole number from 0 to {_LARGEST_SEED}")
_SECONDS = NumberRange(lambda value: value > 0, "a number of seconds above 0")
_MICROSECONDS = NumberRange(lambda value: value > 0, "a number of µs above 0")
_NUMBER_OR_NONE = NumberRange(lambda value: value >= 0, "a finite number of at least 0")
_PER_CENT = NumberRange(lambda value: value >= -100, "a finite number of per cent, at least -100 (all of the time)")
_FACTOR = NumberRange(lambda value: value == 0 or value >= 1, "a finite factor of at least 1, or 0 for all")

#: By option; an option of several commands has one range.
RANGES: Mapping[str, NumberRange] = {
    "--expect-removed": _COUNT_OR_NONE,
    "--floor-us": _MICROSECONDS,
    "--jobs": _COUNT,
    "--max-launches-per-layer": _NUMBER_OR_NONE,
    "--max-regression": _PER_CENT,
    "--nproc": _COUNT,
    "--orders": _COUNT,
    "--pairs": _COUNT,
    "--rank-timeout": _SECONDS,
    "--replays": _COUNT,
    "--screen": _FACTOR,
    "--seed": _SEED,
    "--stop-after": _SECONDS,
    "--warmup": _COUNT,
}


def check_number(option: str, value: float | None) -> None:
    """Refuse a number that is out of its option's range, or not finite; None is an option that was not given.

    Args:
        option: a key of `RANGES`.

    Raises:
        ProfkitError: it is refused.
    """
    wanted = RANGES[option]
    # Comparisons with nan are false, and infinity passes them.
    if value is not None and not (math.isfinite(value) and wanted.holds(value)):
        shown = value if isinstance(value, int) else f"{value:g}"
        raise ProfkitError(f"{option} {shown}: give {wanted.needed}.")
