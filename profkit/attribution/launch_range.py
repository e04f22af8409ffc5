"""Launch range: an eager op → the host call that launched it → the ranges open on that thread at that moment. Exact."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit.attribution.launches import LaunchJoin
from profkit.attribution.scopes import ScopeTable, scopes_at
from profkit.model.trace import Trace


def attribute(
    trace: Trace, joined: LaunchJoin, ranges: pd.DataFrame, scopes: ScopeTable
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int32]]:
    """Place every op whose own launch was recorded.

    An op launched by a graph launch is left alone: the ranges around a replay say nothing about its layer.

    Returns:
        which ops were placed, and their scopes (0 where no range was open).
    """
    placed = (joined.row >= 0) & ~joined.by_graph
    scope = np.zeros(len(trace.ops), dtype=np.int32)
    rows, inverse = np.unique(joined.row[placed], return_inverse=True)
    launches = trace.launches.iloc[rows]
    found = scopes_at(
        ranges,
        launches["process"].to_numpy().astype(np.int64),
        launches["thread"].to_numpy(),
        launches["start"].to_numpy(),
        scopes,
    )
    scope[placed] = found[inverse.reshape(-1)]
    return placed, scope
