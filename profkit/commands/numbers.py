"""Checks numbers given on the command line before anything else runs."""

from __future__ import annotations

import typer

from profkit.number_ranges import check_number


def in_range(param: typer.CallbackParam, value: float | None) -> float | None:
    """An option's callback that lets a number through where it is in the option's range.

    Raises:
        ProfkitError: it is not.
    """
    check_number(max(param.opts, key=len), value)
    return value
