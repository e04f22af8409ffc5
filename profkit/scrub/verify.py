"""Whether a scrubbed trace is read as the original is: the same rows, and texts that differ by the filter alone."""

from __future__ import annotations

from typing import Any

import pandas as pd

from profkit.errors import ProfkitError
from profkit.model.trace import Trace
from profkit.scrub import texts

_TABLES = ("ops", "set_aside", "launches", "ranges", "nodes")
_FACTS = ("vendor", "graph_trace", "timed", "processes")


def check(before: Trace, after: Trace) -> None:
    """Compare every value of every table.

    Raises:
        ProfkitError: something else than a filtered text differs; says in which table and column.
    """
    unlike = [f"{name}.{column}" for name in _TABLES for column in _unlike(getattr(before, name), getattr(after, name))]
    unlike += [name for name in _FACTS if getattr(before.info, name) != getattr(after.info, name)]
    if {i: texts.kept(n) for i, n in before.info.devices.items()} != dict(after.info.devices):
        unlike.append("devices")
    if unlike:
        raise ProfkitError(
            f"{before.info.source}: scrubbing would change {', '.join(unlike)}; nothing was written. Report this trace."
        )


def _unlike(before: pd.DataFrame, after: pd.DataFrame) -> list[str]:
    """Columns that differ; "rows" where the tables have other lengths or columns."""
    if len(before) != len(after) or list(before.columns) != list(after.columns):
        return ["rows"]
    return [str(c) for c in before.columns if not _same(before[c], after[c])]


def _same(before: pd.Series[Any], after: pd.Series[Any]) -> bool:
    if not isinstance(before.dtype, pd.CategoricalDtype):
        return before.equals(after)
    labels = {label: texts.kept(str(label)) for label in before.cat.categories}
    return bool((before.astype(object).map(labels) == after.astype(object)).all())
