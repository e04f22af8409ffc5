"""What is outside layers: the rows of a kind of step, those of no step, and where every op went."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from profkit.census_model import EAGER, IN_GRAPH, UNATTRIBUTED, WARM_UP, Ints, Ledger
from profkit.census_ops import PlacedOps, first_of

_NUMBER = re.compile(r"\d+")


def outside_layers(ops: PlacedOps, rows: Ints, step: Ints, steps: int) -> tuple[pd.DataFrame, Ints]:
    """`KindCensus.outside` and `KindCensus.outside_ns` of the ops at `rows`, in the steps `step`."""
    table, codes = _by_place(ops, rows)
    weights = ops.end[rows] - ops.start[rows]
    ns = np.bincount(codes * steps + step, weights=weights, minlength=len(table) * steps).astype(np.int64)
    return table, ns.reshape(len(table), steps)


def ledger_and_beyond(ops: PlacedOps) -> tuple[Ledger, pd.DataFrame]:
    """Where every op went, and `Census.beyond_steps`."""
    in_step = ops.steps.step >= 0
    scope, placed = ops.attribution.scope, ops.attribution.method > 0
    by_graph = ops.attribution.joined.by_graph
    warm_up = ops.in_layer & ~in_step
    in_layers = ops.in_layer & in_step
    in_ranges = ~in_layers & placed & ~np.isin(scope, [0, *ops.attribution.outside])
    rest = ~in_layers & ~in_ranges
    # A graph op that a method placed under no range is known to be outside layers; one that none placed is not.
    masks = {
        "in_layers": in_layers,
        "in_ranges": in_ranges,
        "in_graph_outside_layers": rest & by_graph & placed,
        "outside_graphs": rest & ~by_graph & placed,
        "unattributed": rest & ~placed,
    }
    duration = ops.end - ops.start
    ns = {name: int(duration[mask].sum()) for name, mask in masks.items()}
    ns |= {"ops": int(duration.sum()), "warm_up": int(duration[warm_up].sum())}
    counts = {name: int(mask.sum()) for name, mask in masks.items()}
    ledger = Ledger(ops=len(duration), **counts, warm_up=int(warm_up.sum()), set_aside=len(ops.trace.set_aside), ns=ns)
    beyond, _ = _by_place(ops, np.flatnonzero(~in_step), warm_up=True)
    return ledger, beyond


def _by_place(ops: PlacedOps, rows: Ints, *, warm_up: bool = False) -> tuple[pd.DataFrame, Ints]:
    """Ops outside layers, grouped by where they are and by name, in order of first appearance. Ranges that differ
    only in their numbers (one a step, say) are one place."""
    scope, method = ops.attribution.scope[rows].astype(np.int64), ops.attribution.method[rows]
    by_graph = ops.attribution.joined.by_graph[rows]
    fixed = [UNATTRIBUTED, IN_GRAPH, EAGER, WARM_UP]
    where = np.where(method == 0, 0, np.where(by_graph, 1, 2))
    named, labels = _outside_labels(ops, scope)
    where = np.where(scope != 0, named + len(fixed), where)
    if warm_up:
        where = np.where(ops.in_layer[rows], fixed.index(WARM_UP), where)
    key = (where * len(ops.names) + ops.name[rows]) * len(ops.op_kinds) + ops.op_kind[rows]
    codes, unique = pd.factorize(key)
    first = first_of(codes, len(unique))
    table = ops.named(rows[first])
    table.insert(0, "where", pd.Series([[*fixed, *labels][w] for w in where[first]], dtype=object))
    table["launches"] = np.bincount(codes, minlength=len(unique))
    weights = ops.end[rows] - ops.start[rows]
    table["ns"] = np.bincount(codes, weights=weights, minlength=len(unique)).astype(np.int64)
    return table, codes.astype(np.int64)


def _outside_labels(ops: PlacedOps, scope: Ints) -> tuple[Ints, list[str]]:
    """For each scope a label's index; the label is the path, with ``#`` for numbers where several share it."""
    used = pd.unique(scope).tolist()
    shapes: dict[str, list[int]] = {}
    for s in used:
        shapes.setdefault(_NUMBER.sub("#", ops.places[s].path), []).append(s)
    lookup = np.zeros(max(used, default=0) + 1, dtype=np.int64)
    labels: list[str] = []
    for shape, members in shapes.items():
        lookup[members] = len(labels)
        labels.append(shape if len(members) > 1 else ops.places[members[0]].path)
    return lookup[scope], labels
