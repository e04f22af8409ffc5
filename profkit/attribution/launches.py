"""Ops and the host calls that launched them, joined on (process, correlation)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from profkit.model.trace import NONE, Trace, joint_key


@dataclass(frozen=True)
class LaunchJoin:
    """The launch of every op, and what follows from it.

    Args:
        row: index into `trace.launches` for each op, -1 where the trace has no such call.
        by_graph: the op was launched by a graph launch, or carries a graph node.
        used: for each launch, whether any op names it.
    """

    row: npt.NDArray[np.int64]
    by_graph: npt.NDArray[np.bool_]
    used: npt.NDArray[np.bool_]


def join(trace: Trace) -> LaunchJoin:
    """Find the launch of every op. A correlation id means something only within its process."""
    ops, launches = trace.ops, trace.launches
    row = np.full(len(ops), -1, dtype=np.int64)
    has_node = ops["node"].to_numpy() != NONE
    if not len(launches):
        return LaunchJoin(row, has_node, np.zeros(0, np.bool_))
    key = joint_key(launches["process"].to_numpy(), launches["correlation"].to_numpy())
    order = np.argsort(key, kind="stable")
    wanted = joint_key(ops["process"].to_numpy(), ops["correlation"].to_numpy())
    position = np.minimum(np.searchsorted(key[order], wanted), len(order) - 1)
    found = order[position]
    hit = (key[found] == wanted) & (ops["correlation"].to_numpy() != NONE)
    row[hit] = found[hit]
    is_graph = (launches["api"] == "graph").to_numpy()
    used = np.zeros(len(launches), np.bool_)
    used[row[row >= 0]] = True
    return LaunchJoin(row, has_node | ((row >= 0) & is_graph[row]), used)
