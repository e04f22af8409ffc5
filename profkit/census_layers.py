"""Which scopes are one layer, and the sums of each layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from profkit.census_model import Ints
from profkit.census_ops import PlacedOps
from profkit.layers import LayerKey
from profkit.selection import short_kind
from profkit.timeline import busy_and_span


@dataclass(frozen=True)
class LayerOfScope:
    """The layers of one kind of step.

    Args:
        row: for each scope its layer, -1 for scopes outside layers.
        inside: for each scope the path inside its layer.
        layers: one a layer: family, number, kind, scope.
    """

    row: Ints
    inside: Sequence[str]
    layers: pd.DataFrame


def layer_of_scope(ops: PlacedOps, rows: Ints) -> LayerOfScope:
    """Which scopes are one layer. Two scopes that name layer 3 under different outer ranges are one layer (the
    graph's capture and the step around eager work, say), unless one method found several such: then they are
    layers of different models."""
    scope, method = ops.attribution.scope[rows].astype(np.int64), ops.attribution.method[rows]
    pairs = pd.unique(scope * 256 + method)
    seen: dict[tuple[LayerKey, int], set[str]] = {}
    for pair in pairs.tolist():
        layer = ops.places[pair >> 8].layer
        if layer is not None:
            seen.setdefault((layer, pair & 255), set()).add(ops.places[pair >> 8].outer)
    apart = {layer.family for (layer, _), outers in seen.items() if len(outers) > 1}
    used = [s for s in dict.fromkeys((pairs >> 8).tolist()) if ops.places[s].layer is not None]
    identity: dict[int, tuple[str, str, int]] = {}
    for s in used:
        layer = ops.places[s].layer
        assert layer is not None  # by the line that made `used`
        identity[s] = (ops.places[s].outer if layer.family in apart else "", layer.family, layer.number)
    order = {key: row for row, key in enumerate(sorted(set(identity.values())))}
    row = np.full(len(ops.places), -1, dtype=np.int64)
    inside = [""] * len(ops.places)
    kinds: dict[int, dict[str, str]] = {}
    for s in used:
        row[s] = order[identity[s]]
        kinds.setdefault(order[identity[s]], {}).setdefault(ops.places[s].kind, ops.places[s].path)
    for s in used:
        parts = [ops.places[s].inside]
        if len(kinds[int(row[s])]) > 1:
            parts.insert(0, short_kind(ops.places[s].kind))
        inside[s] = "/".join(p for p in parts if p)
    layers = pd.DataFrame(
        {
            "family": pd.Series(["/".join(p for p in key[:2] if p) for key in order], dtype=object),
            "number": pd.Series([key[2] for key in order], dtype="int64"),
            "kind": pd.Series([" + ".join(kinds[r]) for r in order.values()], dtype=object),
            "scope": pd.Series([" + ".join(kinds[r].values()) for r in order.values()], dtype=object),
        }
    )
    return LayerOfScope(row, inside, layers)


def layer_sums(ops: PlacedOps, rows: Ints, step: Ints, slots: pd.DataFrame, layer_of: LayerOfScope) -> pd.DataFrame:
    """`KindCensus.layers`.

    Args:
        rows: the ops in layers, in the steps `step`.
        slots: from `census_slots.launch_slots`.
    """
    layers = layer_of.layers
    count = max(len(layers), 1)
    layer = layer_of.row[ops.attribution.scope[rows]]
    busy, span = busy_and_span(ops.start[rows], ops.end[rows], step * count + layer)
    group = np.arange(len(busy)) % count
    sums = slots.groupby("layer")[["launches", "ns"]].sum().reindex(range(len(layers)), fill_value=0)
    return layers.assign(
        selected=np.isin(np.arange(len(layers)), slots["layer"][slots["in_layers"]].to_numpy()),
        launches=sums["launches"].to_numpy(),
        kernel_ns=sums["ns"].to_numpy(),
        busy_ns=_summed(busy, group, len(layers)),
        span_ns=_summed(span, group, len(layers)),
    )


def _summed(values: Ints, group: Ints, count: int) -> Ints:
    return np.bincount(group, weights=values, minlength=count).astype(np.int64)[:count]
