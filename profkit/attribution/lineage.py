"""Lineage: an op's graph node → through clones → the node made in stream capture → the ranges open at that moment."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit.attribution.method import Context, Placement
from profkit.attribution.scopes import ScopeTable, scopes_at
from profkit.model.trace import NONE, Diagnostic, Trace


@dataclass(frozen=True)
class Lineage:
    """The result for every op.

    Args:
        placed: the op's node leads to a node made in stream capture.
        scope: index into the scope table; 0 also where placed and no range was open.
        problems: what went wrong, code to number of distinct nodes.
    """

    placed: npt.NDArray[np.bool_]
    scope: npt.NDArray[np.int32]
    problems: dict[str, int]


_PROBLEMS = {
    "cyclic-origin": "graph nodes name each other as origin",
    "conflicting-origins": "graph nodes name more than one origin",
    "node-created-twice": "graph node ids were created more than once",
    "origin-not-recorded": "graph nodes lead to an origin whose creation was not recorded",
}


def attribute(context: Context) -> Placement:
    """Place every op that has a graph node."""
    found = trace_nodes(context.trace, context.ranges, context.scopes)
    notes = [Diagnostic(c, f"{n} {_PROBLEMS[c]}; their ops are unattributed.") for c, n in found.problems.items()]
    if found.placed.any() and not found.scope.any():
        # The nodes' creation is known and no range is: the capture ran before ranges were recorded.
        message = (
            "The graph was captured while no push/pop range was open on its thread, or before the recording, so its "
            "nodes lead to no layer."
        )
        return Placement.nothing(context, *notes, Diagnostic("capture-without-ranges", message))
    return Placement(found.placed, found.scope, notes)


def trace_nodes(trace: Trace, ranges: pd.DataFrame, scopes: ScopeTable) -> Lineage:
    """Where the graph node of every op was captured.

    Args:
        trace: any trace; without node-creation events nothing is placed.
        ranges: from `scopes.user_ranges`.
        scopes: grows by the paths found.
    """
    ops, nodes = trace.ops, trace.nodes
    none = Lineage(np.zeros(len(ops), np.bool_), np.zeros(len(ops), np.int32), {})
    node = ops["node"].to_numpy()
    has_node = node != NONE
    if not len(nodes) or not has_node.any():
        return none
    # One index space for (process, node) over both tables and both columns.
    process = np.concatenate([nodes["process"].to_numpy(), nodes["process"].to_numpy(), ops["process"].to_numpy()])
    ident = np.concatenate([nodes["node"].to_numpy(), nodes["origin"].to_numpy(), node])
    keys, size = _pair_codes(process, ident)
    event, origin, leaf = np.split(keys, [len(nodes), 2 * len(nodes)])
    parent, root_event, problems = _parents(nodes, event, origin, size)
    root, cyclic = _roots(parent)
    broken = cyclic | (root_event[root] < 0) | np.isin(root, np.flatnonzero(parent == _AMBIGUOUS))
    if cyclic[leaf[has_node]].any():
        problems["cyclic-origin"] = len(np.unique(leaf[has_node & cyclic[leaf]]))
    missing = has_node & (root_event[root[leaf]] < 0) & ~cyclic[leaf] & (parent[root[leaf]] != _AMBIGUOUS)
    if missing.any():
        problems["origin-not-recorded"] = len(np.unique(leaf[missing]))
    events = root_event[root]
    used = np.flatnonzero(~broken)
    at = nodes.iloc[events[used]]
    scope_of = np.zeros(size, np.int32)
    scope_of[used] = scopes_at(
        ranges,
        at["process"].to_numpy().astype(np.int64),
        at["thread"].to_numpy(),
        at["created"].to_numpy(),
        scopes,
    )
    placed = has_node & ~broken[leaf]
    return Lineage(placed, np.where(placed, scope_of[leaf], 0).astype(np.int32), problems)


_AMBIGUOUS = -2


def _pair_codes(process: npt.NDArray[np.int32], ident: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], int]:
    codes, unique = pd.factorize(ident)
    processes = int(process.max()) + 1
    if processes > 1:
        codes, unique = pd.factorize(codes.astype(np.int64) * processes + process)
    return codes.astype(np.int64), len(unique)


def _parents(
    nodes: pd.DataFrame, event: npt.NDArray[np.int64], origin: npt.NDArray[np.int64], size: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], dict[str, int]]:
    """The origin of each node (itself where it has none, `_AMBIGUOUS` where events contradict) and, for nodes without
    origin, the row of their creation (-1 where there is none).

    A node may have two events, one without origin and one that names it: then the origin counts.
    """
    parent = np.arange(size, dtype=np.int64)
    root_event = np.full(size, -1, dtype=np.int64)
    cloned = nodes["origin"].to_numpy() != NONE
    rows = np.flatnonzero(~cloned)
    # Written back to front, so that of several creation events the first stays.
    root_event[event[rows[::-1]]] = rows[::-1]
    pairs = pd.DataFrame({"node": event[cloned], "origin": origin[cloned]}).drop_duplicates()
    parent[pairs["node"].to_numpy()] = pairs["origin"].to_numpy()
    root_event[pairs["node"].to_numpy()] = -1
    problems: dict[str, int] = {}
    contradictory = pairs["node"][pairs["node"].duplicated()].unique()
    created_twice = _created_twice(event[rows], nodes["created"].to_numpy()[rows], parent)
    for code, which in (("conflicting-origins", contradictory), ("node-created-twice", created_twice)):
        if len(which):
            parent[which] = _AMBIGUOUS
            problems[code] = len(which)
    return parent, root_event, problems


def _created_twice(
    event: npt.NDArray[np.int64], created: npt.NDArray[np.int64], parent: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Nodes without origin whose creation was recorded at two times: a reused identity tells nothing."""
    pairs = pd.DataFrame({"node": event, "created": created}).drop_duplicates()
    twice = pairs["node"][pairs["node"].duplicated()].unique()
    return np.asarray([n for n in twice if parent[n] == n], dtype=np.int64)


def _roots(parent: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Follow `parent` to its end by pointer doubling; nodes on or behind a cycle are marked.

    An ambiguous node is an end: whatever descends from it ends there.
    """
    here = np.arange(len(parent), dtype=np.int64)
    hop = np.where(parent < 0, here, parent)
    for _ in range(max(1, int(np.ceil(np.log2(len(parent) + 1))) + 1)):
        hop = hop[hop]
    end = np.where(parent < 0, here, parent)
    return hop, end[hop] != hop
