"""The variants of `qsa-attention`: one a table, one with the other merge, and a negative control. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping

from profkit.kernels.qsa.tables import TABLES

#: Ends the names of variants that merge with the loop.
LOOP_SUFFIX = "-loop"
DROPPED = "dropped"

VARIANTS: Mapping[str, str] = {
    **{name: f"launches of the table {name}, {table.summary}" for name, table in TABLES.items()},
    f"sm_90{LOOP_SUFFIX}": "launches of the table sm_90; the merge takes a few splits at a time",
    DROPPED: "half of the cache is out of reach: the negative control, whose results are wrong",
}


def table_of(variant: str) -> str:
    """The table that a variant takes its launches from."""
    name = variant.removesuffix(LOOP_SUFFIX)
    return name if name in TABLES else next(iter(TABLES))
