"""Takes the census of a trace: for every kind of step launches and time per layer, and everything outside layers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit.attribution import Attribution, attribute, attribute_in_steps
from profkit.attribution.method import CaptureTrace, Lender
from profkit.counting.integrity import (
    eager_launches_without_ops,
    overlapping_ops,
    refuse,
    silent_nodes,
    unreached_ranges,
)
from profkit.counting.steps import between_steps, find_steps
from profkit.errors import NothingSelectedError, ProfkitError
from profkit.model import names as kernel_names
from profkit.model.census import (
    EAGER,
    EXTENTS,
    IN_GRAPH,
    SHAPE,
    UNATTRIBUTED,
    VARIES,
    WARM_UP,
    Census,
    Ints,
    KindCensus,
    Ledger,
    held_by_layer,
)
from profkit.model.scope import Place, place
from profkit.model.selection import Selection, Wanted, short_kind
from profkit.model.steps import StepKind, Steps
from profkit.model.trace import NONE, Diagnostic, Trace
from profkit.model.wording import counted, listed


def take_census(
    trace: Trace,
    selection: Selection | None = None,
    capture_traces: Sequence[CaptureTrace] = (),
    lenders: Sequence[Lender] = (),
) -> Census:
    """Count `trace`.

    Args:
        capture_traces: what `selection.capture_trace` names, read.
        lenders: what `selection.layers_from` names, read.

    Raises:
        ProfkitError: the selection matches nothing, or a regular expression is wrong.
    """
    selection = selection or Selection()
    attribution = attribute(trace, capture_traces, lenders)
    steps = find_steps(trace, attribution, selection.steps)
    attribution = attribute_in_steps(attribution, steps, selection.hints)
    ops = _PlacedOps(trace, attribution, steps)
    wanted = Wanted(selection)
    between = between_steps(trace, attribution, steps)
    kinds = [_kind_census(ops, index, kind, wanted, between[index]) for index, kind in enumerate(steps.kinds)]
    ledger, beyond = _ledger_and_beyond(ops)
    refusal = refuse(trace, attribution, steps)
    default = _default_kind(kinds, selection)
    silent = silent_nodes(trace, attribution)
    times = [sum(int(k.layers[column].sum()) for k in kinds) for column in ("kernel_ns", "busy_ns")]
    overlap = overlapping_ops(trace, *times)
    silent_note = []
    if silent.count:
        nodes = f"{counted(silent.count, 'node')} of the replayed graphs, {silent.in_layers} of them in layers,"
        message = f"{nodes} never ran an op: host or empty nodes, or lost ops."
        silent_note.append(Diagnostic("nodes-without-ops", message))
    lost = eager_launches_without_ops(trace, attribution)
    census = Census(
        info=trace.info,
        selection=selection,
        methods=attribution.counts(),
        ledger=ledger,
        kinds=kinds,
        default=default,
        beyond_steps=beyond,
        step_method=steps.method,
        diagnostics=(
            *(*trace.info.diagnostics, *attribution.problems, *steps.diagnostics, *silent_note, *lost, *overlap),
            *unreached_ranges(trace, attribution),
        ),
        refusal=refusal,
        silent_nodes=silent,
        phase=attribution.phase,
    )
    if refusal is None and kinds:
        _require_match(census)
    return census


def _kind_census(
    ops: _PlacedOps, index: int, kind: StepKind, wanted: Wanted, behind: Mapping[tuple[int, int], tuple[int, float]]
) -> KindCensus:
    of_kind = np.flatnonzero(ops.steps.kind == index)
    local = np.full(len(ops.steps.kind) + 1, -1, dtype=np.int64)  # the last element stands for "no step"
    local[of_kind] = np.arange(len(of_kind))
    step = local[ops.steps.step]
    rows = np.flatnonzero(step >= 0)
    inside = ops.in_layer[rows]
    layered, layered_step = rows[inside], step[rows[inside]]
    layer_of = _layer_of_scope(ops, layered)
    slots, slot_ns = _launch_slots(ops, layered, layered_step, kind, layer_of, wanted)
    layers = _with_kinds(_layer_sums(ops, layered, layered_step, slots, layer_of), slots)
    outside, outside_ns = _outside_layers(ops, rows[~inside], step[rows[~inside]], kind.steps)
    _, step_span_ns = busy_and_span(ops.start[rows], ops.end[rows], step[rows])
    between: Counter[tuple[str, str]] = Counter()
    for (name, op_kind), (number, _) in behind.items():
        between[ops.canonical[ops.names[name]], ops.op_kinds[op_kind]] += number
    return KindCensus(
        kind=kind,
        layers=layers,
        slots=slots,
        slot_ns=slot_ns,
        outside=outside,
        outside_ns=outside_ns,
        step_span_ns=step_span_ns,
        job_of_step=np.zeros(kind.steps, dtype=np.int64),
        step_weight=np.ones(kind.steps),
        between=between,
        between_ns=round(sum(number * ns for number, ns in behind.values())),
    )


def _default_kind(kinds: Sequence[KindCensus], selection: Selection) -> int:
    if selection.graph is None:
        with_layers = [i for i, k in enumerate(kinds) if len(k.layers)]
        # Of the longest: an eager one only where nothing is replayed.
        return next((i for i in with_layers if kinds[i].kind.replayed), next(iter(with_layers), 0))
    for index, census in enumerate(kinds):
        kind = census.kind
        if selection.graph in (kind.id, kind.id.split()[-1], kind.batch, kind.name):
            return index
    shown = ", ".join(k.kind.name for k in kinds) or "none"
    raise ProfkitError(f"--graph {selection.graph!r} names no kind of step. There are: {shown}.")


def _require_match(census: Census) -> None:
    chosen, selection = census.chosen, census.selection
    if not len(chosen.layers):
        return
    if not chosen.selected_layers:
        asked = {"--layers": selection.layers, "--layer-kind": selection.layer_kind}
        given = " with ".join(f"{option} {value!r}" for option, value in asked.items() if value is not None)
        shown = listed(sorted(set(chosen.layers["module"])), 12)
        raise NothingSelectedError(f"{given} matches no layer. Kinds of layer in the trace: {shown}.")
    if selection.scope is not None and not len(chosen.selected_slots):
        shown = listed(sorted({s for s in chosen.slots["inside"] if s}), 12) or "none"
        raise NothingSelectedError(
            f"--scope {selection.scope!r} matches nothing inside the layers. Scopes there: {shown}."
        )


class _PlacedOps:
    """The ops of a trace as columns, in its order.

    `places` is for each scope what it says of layers, `in_layer` for each op whether it is in one, `canonical` leads
    from recorded to canonical names.
    """

    def __init__(self, trace: Trace, attribution: Attribution, steps: Steps) -> None:
        self.trace, self.attribution, self.steps = trace, attribution, steps
        self.places: Sequence[Place] = [place(path) for path in attribution.paths]
        names_layer = np.array([p.layer is not None for p in self.places], dtype=bool)
        self.in_layer = names_layer[attribution.scope] & (attribution.method > 0)
        self.canonical = {n: kernel_names.canonical(n) for n in trace.ops["name"].cat.categories}
        self.start, self.end = trace.ops["start"].to_numpy(), trace.ops["end"].to_numpy()
        self.name = trace.ops["name"].cat.codes.to_numpy().astype(np.int64)
        self.names: list[str] = trace.ops["name"].cat.categories.tolist()
        self.op_kind = trace.ops["kind"].cat.codes.to_numpy()
        self.op_kinds: list[str] = trace.ops["kind"].cat.categories.tolist()
        self.shape = {name: _shape_column(trace.ops, name) for name in SHAPE}

    def named(self, rows: Ints) -> pd.DataFrame:
        """Name, canonical name and kind of the ops at `rows`."""
        names = [self.names[c] for c in self.name[rows]]
        return pd.DataFrame(
            {
                "name": pd.Series(names, dtype=object),
                "canonical": pd.Series([self.canonical[n] for n in names], dtype=object),
                "op_kind": pd.Series([self.op_kinds[k] for k in self.op_kind[rows]], dtype=object),
            }
        )


def _shape_column(ops: pd.DataFrame, name: str) -> tuple[Ints | None, Sequence[str] | None]:
    """A column of `SHAPE` by op: the values, or codes and their texts; no values where the recording has none."""
    axes = [f"{name}_{axis}" for axis in "xyz"]
    if name in ops:
        return ops[name].to_numpy().astype(np.int64), None
    if name not in ("grid", "block"):
        return None, None
    if axes[0] not in ops:
        return None, ()
    x, y, z = (ops[axis].to_numpy().astype(np.int64) for axis in axes)
    # One number for each: x has 31 bits, y and z have 16 on every GPU.
    codes, unique = pd.factorize(np.where(x == NONE, NONE, (x << 32) | ((y & 0xFFFF) << 16) | (z & 0xFFFF)))
    texts = ["" if key == NONE else f"{key >> 32}x{(key >> 16) & 0xFFFF}x{key & 0xFFFF}" for key in unique.tolist()]
    return codes.astype(np.int64), texts


def _first_of(codes: npt.NDArray[np.int64], count: int) -> Ints:
    """The position at which each code occurs first."""
    first = np.empty(count, dtype=np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return first


def busy_and_span(start_ns: Ints, end_ns: Ints, group: Ints) -> tuple[Ints, Ints]:
    """Union and extent of each group's intervals.

    Args:
        start_ns, end_ns: intervals, in any order.
        group: each interval's group, integers from 0; groups may be missing.

    Returns:
        for groups 0 … max(group): nanoseconds in which at least one interval is open, and nanoseconds from the first
        start to the last end; 0 for a missing group.
    """
    if not len(group):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    order = np.lexsort((start_ns, group))
    group, start, end = group[order], start_ns[order], end_ns[order]
    first = np.flatnonzero(np.r_[True, group[1:] != group[:-1]])
    length = np.diff(np.r_[first, len(group)])
    # Shift every group onto a stretch of its own, so that one running maximum serves all of them.
    origin = np.repeat(start[first], length)
    extent = np.maximum.reduceat(end, first) - start[first]
    base = np.repeat(np.r_[0, np.cumsum(extent[:-1] + 1)], length)
    start, end = start - origin + base, end - origin + base
    covered = np.r_[base[:1], np.maximum.accumulate(end)[:-1]]
    gain = np.maximum(end - np.maximum(start, np.maximum(covered, base)), 0)
    count = int(group[-1]) + 1
    busy, span = np.zeros(count, np.int64), np.zeros(count, np.int64)
    busy[group[first]] = np.add.reduceat(gain, first)
    span[group[first]] = extent
    return busy, span


@dataclass(frozen=True)
class _LayerOfScope:
    """The layers of one kind of step.

    Args:
        row: for each scope its layer, -1 for scopes outside layers.
        inside: for each scope the path inside its layer.
        layers: one a layer: stack, number, module, scope.
    """

    row: Ints
    inside: Sequence[str]
    layers: pd.DataFrame


def _layer_of_scope(ops: _PlacedOps, rows: Ints) -> _LayerOfScope:
    """Which scopes are one layer: those of one stack and number, whatever ranges are around and inside."""
    used = [
        (s, key) for s in pd.unique(ops.attribution.scope[rows]).tolist() if (key := ops.places[s].layer) is not None
    ]
    order = {key: row for row, key in enumerate(sorted({(key.stack, key.number) for _, key in used}))}
    row = np.full(len(ops.places), -1, dtype=np.int64)
    inside = [""] * len(ops.places)
    kinds: dict[int, dict[str, str]] = {}
    for s, key in used:
        row[s] = order[key.stack, key.number]
        kinds.setdefault(int(row[s]), {}).setdefault(ops.places[s].kind, ops.places[s].path)
    for s, _ in used:
        parts = [ops.places[s].inside]
        if len(kinds[int(row[s])]) > 1:
            parts.insert(0, short_kind(ops.places[s].kind))
        inside[s] = "/".join(p for p in parts if p)
    layers = pd.DataFrame(
        {
            "rank": 0,
            "stack": pd.Series([stack for stack, _ in order], dtype=object),
            "number": pd.Series([number for _, number in order], dtype="int64"),
            "module": pd.Series([" + ".join(kinds[r]) for r in order.values()], dtype=object),
            "scope": pd.Series([" + ".join(kinds[r].values()) for r in order.values()], dtype=object),
        }
    )
    return _LayerOfScope(row, inside, layers)


def _layer_sums(ops: _PlacedOps, rows: Ints, step: Ints, slots: pd.DataFrame, layer_of: _LayerOfScope) -> pd.DataFrame:
    """`KindCensus.layers`.

    Args:
        rows: the ops in layers, in the steps `step`.
        slots: from `_launch_slots`.
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


#: A lone layer that differs from a larger kind in at most this share of its launches is an exception of that kind.
_EXCEPTION_SHARE = 0.1


def _with_kinds(layers: pd.DataFrame, slots: pd.DataFrame) -> pd.DataFrame:
    """`layers` with kind and exception.

    Layers of a kind have the same launches, whatever their order: launches of two streams may pass each other.
    """
    held = held_by_layer(slots, len(layers), "inside", "canonical", "op_kind")
    numbers: dict[object, int] = {}
    kinds = [
        numbers.setdefault((stack, frozenset(launches.items())), len(numbers))
        for stack, launches in zip(layers["stack"], held, strict=True)
    ]
    members = Counter(kinds)
    stack_of = dict(zip(kinds, layers["stack"], strict=True))
    example = {kind: held[kinds.index(kind)] for kind in members}
    larger = [kind for kind, count in members.most_common() if count > 1]
    found = {}
    for kind, count in members.items():
        like = [
            (_unlike(example[kind], example[other]) / example[kind].total(), other)
            for other in larger
            if count == 1 and stack_of[other] == stack_of[kind]
        ]
        share, nearest = min(like, default=(1.0, kind))
        found[kind] = nearest if share <= _EXCEPTION_SHARE else kind
    renumbered = {kind: index for index, kind in enumerate(dict.fromkeys(found[kind] for kind in kinds))}
    return layers.assign(
        kind=pd.Series([renumbered[found[kind]] for kind in kinds], dtype="int64"),
        exception=pd.Series([found[kind] != kind for kind in kinds], dtype=bool),
    )


def _unlike(one: Counter[tuple[str, ...]], other: Counter[tuple[str, ...]]) -> int:
    """How many launches two layers do not share, the larger of either's surplus."""
    return max((one - other).total(), (other - one).total())


def _summed(values: Ints, group: Ints, count: int) -> Ints:
    return np.bincount(group, weights=values, minlength=count).astype(np.int64)[:count]


def _launch_slots(
    ops: _PlacedOps, rows: Ints, step: Ints, kind: StepKind, layer_of: _LayerOfScope, wanted: Wanted
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
    first = _first_of(codes, count)
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
    slots["stream"] = ops.trace.ops["stream"].to_numpy()[rows[first][order]].astype(np.int64)
    slots["launches"] = launches[order]
    slots["ns"] = slot_ns[order].sum(axis=1)
    slots = slots.assign(**_shapes(ops, rows, codes, first, order))
    in_layers = [wanted.layer(ops.places[s]) for s in ordered]
    slots["in_layers"] = np.array(in_layers, dtype=bool)
    within = [wanted.scope(inside) for inside in slots["inside"]]
    slots["selected"] = slots["in_layers"] & np.array(within, dtype=bool)
    return slots, slot_ns[order]


def _shapes(ops: _PlacedOps, rows: Ints, codes: Ints, first: Ints, order: Ints) -> dict[str, Any]:
    """`SHAPE` of groups of ops.

    Args:
        rows: the ops.
        codes: the group of each.
        first: the position in `rows` of each group's first op.
        order: the groups, as they are to be listed.
    """
    columns: dict[str, Any] = {}
    for name in SHAPE:
        values, labels = ops.shape[name]
        if values is None:
            columns[name] = "" if labels is not None else NONE
            continue
        of_first = values[rows[first]]
        alike = np.ones(len(first), dtype=bool)
        np.logical_and.at(alike, codes, values[rows] == of_first[codes])
        shown = np.where(alike, of_first, NONE)[order]
        columns[name] = shown if labels is None else np.array([*labels, VARIES], dtype=object)[shown]
    return columns


def _place_codes(scope: Ints, layer_of: _LayerOfScope) -> Ints:
    """One code for scopes that are the same place of the same layer in different steps."""
    codes: dict[tuple[int, str], int] = {}
    used = pd.unique(scope)
    lookup = np.zeros(int(used.max()) + 1 if len(used) else 1, dtype=np.int64)
    for s in used.tolist():
        lookup[s] = codes.setdefault((int(layer_of.row[s]), layer_of.inside[s]), len(codes))
    return lookup[scope]


def _by_occurrence(ops: _PlacedOps, rows: Ints, step: Ints, where: Ints) -> tuple[Ints, Ints]:
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


_NUMBER = re.compile(r"\d+")


def _outside_layers(ops: _PlacedOps, rows: Ints, step: Ints, steps: int) -> tuple[pd.DataFrame, Ints]:
    """`KindCensus.outside` and `KindCensus.outside_ns` of the ops at `rows`, in the steps `step`."""
    table, codes = _by_place(ops, rows, steps)
    weights = ops.end[rows] - ops.start[rows]
    ns = np.bincount(codes * steps + step, weights=weights, minlength=len(table) * steps).astype(np.int64)
    return table, ns.reshape(len(table), steps)


def _ledger_and_beyond(ops: _PlacedOps) -> tuple[Ledger, pd.DataFrame]:
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
    beyond, _ = _by_place(ops, np.flatnonzero(~in_step), 1, warm_up=True)
    return ledger, beyond


def _extents(ops: _PlacedOps, rows: Ints, codes: Ints, groups: int, name: str, steps: int) -> list[str]:
    """Of each group of ops all that they have in a column of `SHAPE`, and how often a step: ``64x1x1 × 2``. "" where
    the recording does not say of one."""
    values, labels = ops.shape[name]
    if values is None or not len(rows):
        return [""] * groups
    distinct, value = np.unique(values[rows], return_inverse=True)
    pair, number = np.unique(codes * len(distinct) + value.reshape(-1), return_counts=True)
    found: list[list[str] | None] = [[] for _ in range(groups)]
    for key, count in zip(pair.tolist(), number.tolist(), strict=True):
        group, own = divmod(key, len(distinct))
        told = str(distinct[own]) if labels is None else labels[int(distinct[own])]
        parts = found[group]
        if parts is not None:
            found[group] = None if told in ("", str(NONE)) else [*parts, f"{told} × {count / steps:g}"]
    return ["" if parts is None else ", ".join(sorted(parts)) for parts in found]


def _by_place(ops: _PlacedOps, rows: Ints, steps: int, *, warm_up: bool = False) -> tuple[pd.DataFrame, Ints]:
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
    first = _first_of(codes, len(unique))
    table = ops.named(rows[first])
    table.insert(0, "where", pd.Series([[*fixed, *labels][w] for w in where[first]], dtype=object))
    table["launches"] = np.bincount(codes, minlength=len(unique))
    for column, name in EXTENTS.items():
        table[column] = pd.Series(_extents(ops, rows, codes, len(unique), name, steps), dtype=object)
    weights = ops.end[rows] - ops.start[rows]
    table["ns"] = np.bincount(codes, weights=weights, minlength=len(unique)).astype(np.int64)
    return table, codes.astype(np.int64)


def _outside_labels(ops: _PlacedOps, scope: Ints) -> tuple[Ints, list[str]]:
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
