"""The launch slots of layers: which ops of different steps are the same launch."""

from __future__ import annotations

import numpy as np
import pandas as pd

from profkit.census_layers import LayerOfScope
from profkit.census_model import Ints
from profkit.census_ops import PlacedOps, first_of
from profkit.selection import Wanted
from profkit.steps import StepKind
from profkit.trace import NONE


def launch_slots(
    ops: PlacedOps, rows: Ints, step: Ints, kind: StepKind, layer_of: LayerOfScope, wanted: Wanted
) -> tuple[pd.DataFrame, Ints]:
    """`KindCensus.slots` and `KindCensus.slot_ns` of the ops at `rows`, which are in layers.

    Ops of different steps are one slot if they are one node of the step's only graph or, without that, if they have
    the same place and name and are the same occurrence of it in the layer.
    """
    scope = ops.attribution.scope[rows].astype(np.int64)
    node, steps = ops.trace.ops["node"].to_numpy()[rows], kind.steps
    if len(rows) and kind.one_graph and (node != NONE).all():
        codes, unique = pd.factorize(node)
    else:
        codes, unique = _by_occurrence(ops, rows, step, _place_codes(scope, layer_of))
    count = len(unique)
    first = first_of(codes, count)
    ns = np.bincount(codes * steps + step, weights=ops.end[rows] - ops.start[rows], minlength=count * steps)
    slot_ns = ns.astype(np.int64).reshape(count, steps)
    launches = np.bincount(codes, minlength=count)
    step_start = np.full(steps, np.iinfo(np.int64).max)
    np.minimum.at(step_start, step, ops.start[rows])
    offset = np.bincount(codes, weights=ops.start[rows] - step_start[step], minlength=count) / launches
    layer = layer_of.row[scope[first]]
    order = np.lexsort((offset, layer))
    ordered = scope[first][order]
    slots = ops.named(rows[first][order])
    slots.insert(0, "inside", pd.Series([layer_of.inside[s] for s in ordered], dtype=object))
    slots.insert(0, "layer", layer[order])
    slots["occurrence"] = slots.groupby(["layer", "inside", "canonical", "op_kind"], sort=False).cumcount()
    slots["launches"] = launches[order]
    slots["ns"] = slot_ns[order].sum(axis=1)
    in_layers = [wanted.layer(ops.places[s]) for s in ordered]
    slots["in_layers"] = np.array(in_layers, dtype=bool)
    within = [wanted.scope(inside) for inside in slots["inside"]]
    slots["selected"] = slots["in_layers"] & np.array(within, dtype=bool)
    return slots, slot_ns[order]


def _place_codes(scope: Ints, layer_of: LayerOfScope) -> Ints:
    """One code for scopes that are the same place of the same layer in different steps."""
    codes: dict[tuple[int, str], int] = {}
    used = pd.unique(scope)
    lookup = np.zeros(int(used.max()) + 1 if len(used) else 1, dtype=np.int64)
    for s in used.tolist():
        lookup[s] = codes.setdefault((int(layer_of.row[s]), layer_of.inside[s]), len(codes))
    return lookup[scope]


def _by_occurrence(ops: PlacedOps, rows: Ints, step: Ints, where: Ints) -> tuple[Ints, Ints]:
    place_and_name = (where * len(ops.names) + ops.name[rows]) * len(ops.op_kinds) + ops.op_kind[rows]
    group, _ = pd.factorize(place_and_name)
    groups = int(group.max()) + 1 if len(group) else 1
    key = step * groups + group
    order = np.lexsort((ops.start[rows], key))
    first = np.flatnonzero(np.r_[True, key[order][1:] != key[order][:-1]]) if len(rows) else np.empty(0, np.int64)
    occurrence = np.empty(len(rows), dtype=np.int64)
    occurrence[order] = np.arange(len(rows)) - np.repeat(first, np.diff(np.r_[first, len(rows)]))
    codes, unique = pd.factorize(occurrence * groups + group)
    return codes.astype(np.int64), np.asarray(unique)
