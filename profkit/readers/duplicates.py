"""Rows that a recording holds twice: one launch cannot run twice on one stream at one moment."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from profkit.model.trace import Diagnostic, Trace
from profkit.model.wording import are, counted

_IDENTITY = ["process", "device", "stream", "start", "end", "correlation", "node", "name", "kind"]


def without_duplicates(trace: Trace) -> Trace:
    """`trace` with every repetition of a row set aside, and a diagnostic that counts them."""
    ops = trace.ops
    start, end = ops["start"].to_numpy(), ops["end"].to_numpy()
    # Ops are sorted by start, so only rows beside one of the same start can be repetitions; zero-length ones (counts
    # without times among them) may share a moment.
    beside = np.zeros(len(ops), dtype=np.bool_)
    same = (start[1:] == start[:-1]) & (end[1:] > start[1:])
    beside[1:] |= same
    beside[:-1] |= same
    rows = np.flatnonzero(beside)
    if not len(rows):
        return trace
    repeated = rows[ops.iloc[rows].duplicated(_IDENTITY).to_numpy()]
    if not len(repeated):
        return trace
    keep = np.ones(len(ops), dtype=np.bool_)
    keep[repeated] = False
    message = (
        f"{counted(len(repeated), 'op')} {are(len(repeated))} in the recording twice, equal in every respect; one of "
        "each is set aside."
    )
    return replace(
        trace,
        ops=ops[keep].reset_index(drop=True),
        set_aside=pd.concat([trace.set_aside, ops.iloc[repeated]], ignore_index=True),
        info=replace(trace.info, diagnostics=(*trace.info.diagnostics, Diagnostic("duplicate-rows", message))),
    )
