"""Launch range: an eager op → the host call that launched it → the ranges open on that thread at that moment. Exact.

Kernels that replaying a graph adds outside it belong to no layer, whatever range is open: PyTorch's `CUDAGraph.replay`
writes the random generator's seed and offset before it launches the graph, two eager fills of one int64 each.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from profkit.attribution.method import Context, LaunchJoin, Placement
from profkit.attribution.scopes import scopes_at
from profkit.model import names as kernel_names
from profkit.model.trace import Trace

_OVERHEAD = "(replay overhead)"
#: The fill of an int64 tensor, in a canonical name.
_FILL = "FillFunctor<long>"
#: A generator's seed and its offset.
_FILLS = 2


def attribute(context: Context) -> Placement:
    """Place every op whose own launch was recorded.

    An op launched by a graph launch is left alone: the ranges around a replay say nothing about its layer.
    """
    trace, joined = context.trace, context.joined
    placed = (joined.row >= 0) & ~joined.by_graph
    scope = np.zeros(len(trace.ops), dtype=np.int32)
    rows, inverse = np.unique(joined.row[placed], return_inverse=True)
    launches = trace.launches.iloc[rows]
    found = scopes_at(
        context.ranges,
        launches["process"].to_numpy().astype(np.int64),
        launches["thread"].to_numpy(),
        launches["start"].to_numpy(),
        context.scopes,
    )
    scope[placed] = found[inverse.reshape(-1)]
    added = _replay_overhead(trace, joined)
    if not added.any():
        return Placement(placed, scope)
    overhead = context.scopes.intern((_OVERHEAD,))
    scope[added] = overhead
    return Placement(placed, scope, overhead=frozenset([overhead]))


def _replay_overhead(trace: Trace, joined: LaunchJoin) -> npt.NDArray[np.bool_]:
    """The ops that are fills launched in pairs right before a graph launch, on its thread."""
    result = np.zeros(len(trace.ops), dtype=np.bool_)
    fills = np.array([_FILL in kernel_names.canonical(n) for n in trace.ops["name"].cat.categories], dtype=np.bool_)
    if not fills.any():
        return result
    is_fill = fills[trace.ops["name"].cat.codes.to_numpy()] & (joined.row >= 0) & ~joined.by_graph
    launches = trace.launches
    fill_launch = np.zeros(len(launches), dtype=np.bool_)
    fill_launch[joined.row[is_fill]] = True
    order = np.lexsort((launches["start"], launches["thread"], launches["process"]))
    thread = launches[["process", "thread"]].to_numpy()[order]
    follows = np.r_[False, (thread[1:] == thread[:-1]).all(axis=1)]
    graph = (launches["api"] == "graph").to_numpy()[order]
    fill = fill_launch[order]
    run = np.zeros(len(order), dtype=np.int64)  # fills in a row that end here
    for index in np.flatnonzero(fill).tolist():
        run[index] = 1 + (run[index - 1] if follows[index] else 0)
    overhead = np.zeros(len(launches), dtype=np.bool_)
    for index in np.flatnonzero(graph & follows).tolist():
        count = int(run[index - 1])
        if count and count % _FILLS == 0:
            overhead[order[index - count : index]] = True
    result[is_fill] = overhead[joined.row[is_fill]]
    return result
