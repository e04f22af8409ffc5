"""Reading a workload's shapes from a context, with the errors that name the option to mend. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable

from profkit.errors import ProfkitError
from profkit.model.workload import BuildContext


def positive(workload: str, context: BuildContext, names: Iterable[str]) -> dict[str, int]:
    """The integer shapes called `names`.

    Raises:
        ProfkitError: one is below 1.
    """
    shapes = {name: context.int_shape(name) for name in names}
    for name, value in shapes.items():
        if value < 1:
            raise ProfkitError(f"{workload}: --shape {name}={value} must be at least 1.")
    return shapes


def real_requests(workload: str, context: BuildContext, rows: int) -> int:
    """How many of `rows` are requests: the shape `requests`, or 13 of every 14 rows where that is 0.

    Raises:
        ProfkitError: less than none, or more than there are rows.
    """
    requests = context.int_shape("requests") or max(1, rows * 13 // 14)
    if not 1 <= requests <= rows:
        raise ProfkitError(
            f"{workload}: --shape requests={requests} must lie between 1 and rows={rows}: each request is one row."
        )
    return requests


def whole_heads(workload: str, heads: int, ranks: int) -> int:
    """The heads of one rank.

    Raises:
        ProfkitError: the heads do not divide evenly.
    """
    if heads % ranks:
        raise ProfkitError(
            f"{workload}: heads={heads} cannot be divided evenly over ranks={ranks}. Give a --shape heads that can."
        )
    return heads // ranks


def power_of_two(workload: str, name: str, value: int, least: int) -> None:
    """Refuse a width that Triton's tiles cannot have.

    Raises:
        ProfkitError: it is no power of two from `least` up.
    """
    if value & (value - 1) or value < least:
        raise ProfkitError(f"{workload}: --shape {name}={value} must be a power of two from {least} up.")
