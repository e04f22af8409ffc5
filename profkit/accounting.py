"""The census: launches and time per layer and per kernel, with everything outside layers in rows of its own.

Built for every kind of step. Counts and nanoseconds are integers summed over the steps of a kind; "per layer per step"
is such a sum over (layers × steps). Every op of the trace is in exactly one place, and `Ledger` says in which.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit import names as kernel_names
from profkit.attribution.by_repetition import add_layers
from profkit.attribution.ledger import Attribution, attribute
from profkit.attribution.period import Phase
from profkit.attribution.sequence import CaptureTrace
from profkit.errors import CannotTellError, NothingSelectedError, ProfkitError
from profkit.integrity import Refusal, SilentNodes, eager_launches_without_ops, overlapping_ops, refuse, silent_nodes
from profkit.layers import LayerKey, Place, place
from profkit.selection import Selection as Selection
from profkit.selection import Wanted, short_kind
from profkit.step_finding import find_steps
from profkit.steps import StepKind, Steps
from profkit.timeline import busy_and_span
from profkit.trace import NONE, Diagnostic, Info, Trace

Ints = npt.NDArray[np.int64]

_NUMBER = re.compile(r"\d+")

#: `where` of an op that no range covers.
IN_GRAPH = "(in the graph, outside every range)"
EAGER = "(outside graphs and ranges)"
UNATTRIBUTED = "(unattributed)"
WARM_UP = "(warm-up: layer ranges outside every step)"


@dataclass(frozen=True)
class Ledger:
    """A partition of all ops: the first line is the sum of the next five. Counts, and nanoseconds beside them.

    `in_ranges` holds, among others, `warm_up` ops: in a layer's range, in no step. `set_aside` rows are in no sum.
    """

    ops: int
    in_layers: int
    in_ranges: int
    in_graph_outside_layers: int
    outside_graphs: int
    unattributed: int
    warm_up: int
    set_aside: int
    ns: Mapping[str, int]


@dataclass(frozen=True)
class KindCensus:
    """The census of one kind of step.

    Args:
        kind: which.
        layers: one row a layer: family, number, kind, scope, selected, launches, kernel_ns, busy_ns, span_ns (sums over
            the steps).
        slots: one row a launch slot of a layer, in order: layer (row of `layers`), inside, name, canonical, op_kind,
            occurrence, launches, ns, in_layers (`Selection.layers` matches), selected (`Selection.scope` too).
        slot_ns: the same slots by step: nanoseconds, shape [slots, steps].
        outside: one row a kernel outside layers: where, name, canonical, op_kind, launches, ns.
        outside_ns: shape [outside rows, steps].
        step_span_ns: first start to last end of each step, shape [steps]; under a profiler, so longer than it runs.
        run_of_step: which of several merged runs each step comes from, shape [steps].
        job_of_step: which of several independent jobs, whose ranks are runs, shape [steps].
        step_weight: what the by-step times of each step were multiplied by, so that every run counts once.
    """

    kind: StepKind
    layers: pd.DataFrame
    slots: pd.DataFrame
    slot_ns: Ints
    outside: pd.DataFrame
    outside_ns: Ints
    step_span_ns: Ints
    run_of_step: Ints
    job_of_step: Ints
    step_weight: npt.NDArray[np.float64]

    @cached_property
    def selected_slots(self) -> pd.DataFrame:
        """The slots that the selection asks about."""
        return self.slots[self.slots["selected"]]

    @property
    def selected_layers(self) -> int:
        """How many layers the selection asks about."""
        return int(self.layers["selected"].sum())


@dataclass(frozen=True)
class Census:
    """What a trace holds, counted. `default` indexes `kinds`.

    Args:
        info: the trace's provenance.
        selection: the question.
        methods: ops placed by each attribution method.
        ledger: where every op went.
        kinds: one a kind of step, most GPU time first.
        beyond_steps: ops in no step: where, name, canonical, op_kind, launches, ns (whole recording).
        step_method: how steps were found.
        diagnostics: what the reader, the attribution and the steps have to say.
        refusal: why the trace cannot answer per-layer questions; None where it can.
        phase: where layers begin, if period found them.
    """

    info: Info
    selection: Selection
    methods: Mapping[str, int]
    ledger: Ledger
    kinds: Sequence[KindCensus]
    default: int
    beyond_steps: pd.DataFrame
    step_method: str
    diagnostics: Sequence[Diagnostic]
    refusal: Refusal | None = None
    display: Mapping[str, str] = field(default_factory=dict)
    silent_nodes: SilentNodes = field(default=SilentNodes(0))
    processes_with_ops: int = 0
    phase: Phase | None = None

    @property
    def chosen(self) -> KindCensus:
        """The kind of step that the selection asks about.

        Raises:
            CannotTellError: the trace has no step.
        """
        if not self.kinds:
            raise CannotTellError("no-steps", f"{self.info.source} has no step: {self.info.profiler} recorded no ops.")
        return self.kinds[self.default]

    def to_pandas(self) -> pd.DataFrame:
        """One row a launch slot of the chosen kind of step, launches and microseconds per step.

        Columns: layer, kind, scope, inside, name, op_kind, launches, us (NaN where the recorder did not time).
        """
        chosen = self.chosen
        layers = chosen.layers.iloc[chosen.slots["layer"].to_numpy()]
        steps = chosen.kind.steps
        us = chosen.slots["ns"] / steps / 1e3 if self.info.timed else np.nan
        return pd.DataFrame(
            {
                "layer": layers["number"].to_numpy(),
                "kind": layers["kind"].to_numpy(),
                "scope": layers["scope"].to_numpy(),
                "inside": chosen.slots["inside"],
                "name": chosen.slots["name"],
                "op_kind": chosen.slots["op_kind"],
                "launches": chosen.slots["launches"] / steps,
                "us": us,
            }
        )


def take_census(
    trace: Trace, selection: Selection | None = None, capture_traces: Sequence[CaptureTrace] = ()
) -> Census:
    """Count `trace`.

    Args:
        capture_traces: what `selection.capture_trace` names, read.

    Raises:
        ProfkitError: the selection matches nothing, or a regular expression is wrong.
    """
    selection = selection or Selection()
    attribution = attribute(trace, capture_traces)
    steps = find_steps(trace, attribution, selection.steps)
    attribution, phase = add_layers(trace, attribution, steps, selection.hints)
    places = [place(path) for path in attribution.paths]
    in_layer = np.array([p.layer is not None for p in places], dtype=bool)[attribution.scope] & (attribution.method > 0)
    canonical = {n: kernel_names.canonical(n) for n in trace.ops["name"].cat.categories}
    builder = _Builder(trace, attribution, steps, places, in_layer, selection, canonical)
    kinds = [builder.kind(index, kind) for index, kind in enumerate(steps.kinds)]
    ledger, beyond = builder.ledger_and_beyond()
    refusal = refuse(trace, attribution, steps)
    default = _default_kind(kinds, selection)
    silent = silent_nodes(trace, attribution)
    times = [sum(int(k.layers[column].sum()) for k in kinds) for column in ("kernel_ns", "busy_ns")]
    overlap = overlapping_ops(trace, *times)
    silent_note = []
    if silent.count:
        where = f", {silent.in_layers} of them in layers"
        message = (
            f"{silent.count} nodes of the replayed graphs{where} never ran an op: host or empty nodes, or lost ops."
        )
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
        diagnostics=(*trace.info.diagnostics, *attribution.problems, *steps.diagnostics, *silent_note, *lost, *overlap),
        refusal=refusal,
        display=kernel_names.display_names(canonical.values()),
        silent_nodes=silent,
        processes_with_ops=int(trace.ops["process"].nunique()),
        phase=phase,
    )
    if refusal is None and kinds:
        _require_match(census)
    return census


def _default_kind(kinds: Sequence[KindCensus], selection: Selection) -> int:
    if selection.graph is None:
        return next((i for i, k in enumerate(kinds) if len(k.layers)), 0)
    for index, census in enumerate(kinds):
        if selection.graph in (census.kind.id, census.kind.id.split()[-1]):
            return index
    shown = ", ".join(k.kind.id for k in kinds) or "none"
    raise ProfkitError(f"--graph {selection.graph!r} names no kind of step. There are: {shown}.")


def _require_match(census: Census) -> None:
    chosen, selection = census.chosen, census.selection
    if not len(chosen.layers):
        return
    if not chosen.selected_layers:
        asked = {"--layers": selection.layers, "--layer-kind": selection.layer_kind}
        given = " with ".join(f"{option} {value!r}" for option, value in asked.items() if value is not None)
        shown = ", ".join(sorted(set(chosen.layers["kind"]))[:12])
        raise NothingSelectedError(f"{given} matches no layer. Kinds of layer in the trace: {shown}.")
    if selection.scope is not None and not len(chosen.selected_slots):
        shown = ", ".join(sorted({s for s in chosen.slots["inside"] if s})[:12]) or "none"
        raise NothingSelectedError(
            f"--scope {selection.scope!r} matches nothing inside the layers. Scopes there: {shown}."
        )


@dataclass(frozen=True)
class _LayerOfScope:
    """The layers of one kind of step.

    Args:
        row: for each scope its layer, -1 for scopes outside layers.
        inside: for each scope the path inside its layer.
        layers: one a layer: family, number, kind, scope.
    """

    row: Ints
    inside: Sequence[str]
    layers: pd.DataFrame


class _Builder:
    def __init__(
        self,
        trace: Trace,
        attribution: Attribution,
        steps: Steps,
        places: Sequence[Place],
        in_layer: npt.NDArray[np.bool_],
        selection: Selection,
        canonical: Mapping[str, str],
    ) -> None:
        self.trace, self.attribution, self.steps, self.places = trace, attribution, steps, places
        self.in_layer, self.canonical = in_layer, canonical
        self.wanted = Wanted(selection)
        self.start, self.end = trace.ops["start"].to_numpy(), trace.ops["end"].to_numpy()
        self.name = trace.ops["name"].cat.codes.to_numpy().astype(np.int64)
        self.names: list[str] = trace.ops["name"].cat.categories.tolist()
        self.op_kind = trace.ops["kind"].cat.codes.to_numpy()
        self.op_kinds: list[str] = trace.ops["kind"].cat.categories.tolist()

    # -- one kind of step ---------------------------------------------------------------------------------------------

    def kind(self, index: int, kind: StepKind) -> KindCensus:
        of_kind = np.flatnonzero(self.steps.kind == index)
        local = np.full(len(self.steps.kind) + 1, -1, dtype=np.int64)  # the last element stands for "no step"
        local[of_kind] = np.arange(len(of_kind))
        step = local[self.steps.step]
        rows = np.flatnonzero(step >= 0)
        inside = self.in_layer[rows]
        layered, layered_step = rows[inside], step[rows[inside]]
        layer_of = self._layer_of_scope(layered)
        slots, slot_ns = self._slots(layered, layered_step, kind, layer_of)
        layers = self._layers(layered, layered_step, slots, layer_of)
        outside, outside_ns = self._outside(rows[~inside], step[rows[~inside]], kind.steps)
        _, step_span_ns = busy_and_span(self.start[rows], self.end[rows], step[rows])
        one_run = np.zeros(kind.steps, dtype=np.int64)
        return KindCensus(
            kind, layers, slots, slot_ns, outside, outside_ns, step_span_ns, one_run, one_run, np.ones(kind.steps)
        )

    def _layer_of_scope(self, rows: Ints) -> _LayerOfScope:
        """Which scopes are one layer. Two scopes that name layer 3 under different outer ranges are one layer (the
        graph's capture and the step around eager work, say), unless one method found several such: then they are
        layers of different models."""
        scope, method = self.attribution.scope[rows].astype(np.int64), self.attribution.method[rows]
        pairs = pd.unique(scope * 256 + method)
        seen: dict[tuple[LayerKey, int], set[str]] = {}
        for pair in pairs.tolist():
            layer = self.places[pair >> 8].layer
            if layer is not None:
                seen.setdefault((layer, pair & 255), set()).add(self.places[pair >> 8].outer)
        apart = {layer.family for (layer, _), outers in seen.items() if len(outers) > 1}
        used = [s for s in dict.fromkeys((pairs >> 8).tolist()) if self.places[s].layer is not None]
        identity: dict[int, tuple[str, str, int]] = {}
        for s in used:
            layer = self.places[s].layer
            assert layer is not None  # by the line that made `used`
            identity[s] = (self.places[s].outer if layer.family in apart else "", layer.family, layer.number)
        order = {key: row for row, key in enumerate(sorted(set(identity.values())))}
        row = np.full(len(self.places), -1, dtype=np.int64)
        inside = [""] * len(self.places)
        kinds: dict[int, dict[str, str]] = {}
        for s in used:
            row[s] = order[identity[s]]
            kinds.setdefault(order[identity[s]], {}).setdefault(self.places[s].kind, self.places[s].path)
        for s in used:
            parts = [self.places[s].inside]
            if len(kinds[int(row[s])]) > 1:
                parts.insert(0, short_kind(self.places[s].kind))
            inside[s] = "/".join(p for p in parts if p)
        layers = pd.DataFrame(
            {
                "family": pd.Series(["/".join(p for p in key[:2] if p) for key in order], dtype=object),
                "number": pd.Series([key[2] for key in order], dtype="int64"),
                "kind": pd.Series([" + ".join(kinds[r]) for r in order.values()], dtype=object),
                "scope": pd.Series([" + ".join(kinds[r].values()) for r in order.values()], dtype=object),
            }
        )
        return _LayerOfScope(row, inside, layers)

    def _slots(self, rows: Ints, step: Ints, kind: StepKind, layer_of: _LayerOfScope) -> tuple[pd.DataFrame, Ints]:
        """Launch slots: ops of different steps are one slot if they are one node of the step's only graph or, without
        that, if they have the same place and name and are the same occurrence of it in the layer."""
        scope = self.attribution.scope[rows].astype(np.int64)
        node, steps = self.trace.ops["node"].to_numpy()[rows], kind.steps
        if len(rows) and kind.one_graph and (node != NONE).all():
            codes, unique = pd.factorize(node)
        else:
            codes, unique = self._by_occurrence(rows, step, self._place_codes(scope, layer_of))
        count = len(unique)
        first = _first_of(codes, count)
        ns = np.bincount(codes * steps + step, weights=self.end[rows] - self.start[rows], minlength=count * steps)
        slot_ns = ns.astype(np.int64).reshape(count, steps)
        launches = np.bincount(codes, minlength=count)
        step_start = np.full(steps, np.iinfo(np.int64).max)
        np.minimum.at(step_start, step, self.start[rows])
        offset = np.bincount(codes, weights=self.start[rows] - step_start[step], minlength=count) / launches
        layer = layer_of.row[scope[first]]
        order = np.lexsort((offset, layer))
        ordered = scope[first][order]
        slots = self._named(rows[first][order])
        slots.insert(0, "inside", pd.Series([layer_of.inside[s] for s in ordered], dtype=object))
        slots.insert(0, "layer", layer[order])
        slots["occurrence"] = slots.groupby(["layer", "inside", "canonical", "op_kind"], sort=False).cumcount()
        slots["launches"] = launches[order]
        slots["ns"] = slot_ns[order].sum(axis=1)
        wanted = [self.wanted.layer(self.places[s]) for s in ordered]
        slots["in_layers"] = np.array(wanted, dtype=bool)
        within = [self.wanted.scope(inside) for inside in slots["inside"]]
        slots["selected"] = slots["in_layers"] & np.array(within, dtype=bool)
        return slots, slot_ns[order]

    @staticmethod
    def _place_codes(scope: Ints, layer_of: _LayerOfScope) -> Ints:
        """One code for scopes that are the same place of the same layer in different steps."""
        codes: dict[tuple[int, str], int] = {}
        used = pd.unique(scope)
        lookup = np.zeros(int(used.max()) + 1 if len(used) else 1, dtype=np.int64)
        for s in used.tolist():
            lookup[s] = codes.setdefault((int(layer_of.row[s]), layer_of.inside[s]), len(codes))
        return lookup[scope]

    def _by_occurrence(self, rows: Ints, step: Ints, where: Ints) -> tuple[Ints, Ints]:
        place_and_name = (where * len(self.names) + self.name[rows]) * len(self.op_kinds) + self.op_kind[rows]
        group, _ = pd.factorize(place_and_name)
        groups = int(group.max()) + 1 if len(group) else 1
        key = step * groups + group
        order = np.lexsort((self.start[rows], key))
        first = np.flatnonzero(np.r_[True, key[order][1:] != key[order][:-1]]) if len(rows) else np.empty(0, np.int64)
        occurrence = np.empty(len(rows), dtype=np.int64)
        occurrence[order] = np.arange(len(rows)) - np.repeat(first, np.diff(np.r_[first, len(rows)]))
        codes, unique = pd.factorize(occurrence * groups + group)
        return codes.astype(np.int64), np.asarray(unique)

    def _layers(self, rows: Ints, step: Ints, slots: pd.DataFrame, layer_of: _LayerOfScope) -> pd.DataFrame:
        layers = layer_of.layers
        count = max(len(layers), 1)
        layer = layer_of.row[self.attribution.scope[rows]]
        busy, span = busy_and_span(self.start[rows], self.end[rows], step * count + layer)
        group = np.arange(len(busy)) % count
        sums = slots.groupby("layer")[["launches", "ns"]].sum().reindex(range(len(layers)), fill_value=0)
        return layers.assign(
            selected=np.isin(np.arange(len(layers)), slots["layer"][slots["in_layers"]].to_numpy()),
            launches=sums["launches"].to_numpy(),
            kernel_ns=sums["ns"].to_numpy(),
            busy_ns=_summed(busy, group, len(layers)),
            span_ns=_summed(span, group, len(layers)),
        )

    def _outside(self, rows: Ints, step: Ints, steps: int) -> tuple[pd.DataFrame, Ints]:
        table, codes = self._by_place(rows)
        weights = self.end[rows] - self.start[rows]
        ns = np.bincount(codes * steps + step, weights=weights, minlength=len(table) * steps).astype(np.int64)
        return table, ns.reshape(len(table), steps)

    # -- the rest -----------------------------------------------------------------------------------------------------

    def ledger_and_beyond(self) -> tuple[Ledger, pd.DataFrame]:
        in_step = self.steps.step >= 0
        scope, placed = self.attribution.scope, self.attribution.method > 0
        by_graph = self.attribution.joined.by_graph
        warm_up = self.in_layer & ~in_step
        in_layers = self.in_layer & in_step
        in_ranges = ~in_layers & placed & ~np.isin(scope, [0, *self.attribution.outside])
        rest = ~in_layers & ~in_ranges
        # A graph op that a method placed under no range is known to be outside layers; one that none placed is not.
        masks = {
            "in_layers": in_layers,
            "in_ranges": in_ranges,
            "in_graph_outside_layers": rest & by_graph & placed,
            "outside_graphs": rest & ~by_graph & placed,
            "unattributed": rest & ~placed,
        }
        duration = self.end - self.start
        ns = {name: int(duration[mask].sum()) for name, mask in masks.items()}
        ns |= {"ops": int(duration.sum()), "warm_up": int(duration[warm_up].sum())}
        counts = {name: int(mask.sum()) for name, mask in masks.items()}
        ledger = Ledger(
            ops=len(duration), **counts, warm_up=int(warm_up.sum()), set_aside=len(self.trace.set_aside), ns=ns
        )
        beyond, _ = self._by_place(np.flatnonzero(~in_step), warm_up=True)
        return ledger, beyond

    def _by_place(self, rows: Ints, *, warm_up: bool = False) -> tuple[pd.DataFrame, Ints]:
        """Ops outside layers, grouped by where they are and by name, in order of first appearance. Ranges that differ
        only in their numbers (one a step, say) are one place."""
        scope, method = self.attribution.scope[rows].astype(np.int64), self.attribution.method[rows]
        by_graph = self.attribution.joined.by_graph[rows]
        fixed = [UNATTRIBUTED, IN_GRAPH, EAGER, WARM_UP]
        where = np.where(method == 0, 0, np.where(by_graph, 1, 2))
        named, labels = self._outside_labels(scope)
        where = np.where(scope != 0, named + len(fixed), where)
        if warm_up:
            where = np.where(self.in_layer[rows], fixed.index(WARM_UP), where)
        key = (where * len(self.names) + self.name[rows]) * len(self.op_kinds) + self.op_kind[rows]
        codes, unique = pd.factorize(key)
        first = _first_of(codes, len(unique))
        table = self._named(rows[first])
        table.insert(0, "where", pd.Series([[*fixed, *labels][w] for w in where[first]], dtype=object))
        table["launches"] = np.bincount(codes, minlength=len(unique))
        weights = self.end[rows] - self.start[rows]
        table["ns"] = np.bincount(codes, weights=weights, minlength=len(unique)).astype(np.int64)
        return table, codes.astype(np.int64)

    def _outside_labels(self, scope: Ints) -> tuple[Ints, list[str]]:
        """For each scope a label's index; the label is the path, with ``#`` for numbers where several share it."""
        used = pd.unique(scope).tolist()
        shapes: dict[str, list[int]] = {}
        for s in used:
            shapes.setdefault(_NUMBER.sub("#", self.places[s].path), []).append(s)
        lookup = np.zeros(max(used, default=0) + 1, dtype=np.int64)
        labels: list[str] = []
        for shape, members in shapes.items():
            lookup[members] = len(labels)
            labels.append(shape if len(members) > 1 else self.places[members[0]].path)
        return lookup[scope], labels

    def _named(self, rows: Ints) -> pd.DataFrame:
        names = [self.names[c] for c in self.name[rows]]
        return pd.DataFrame(
            {
                "name": pd.Series(names, dtype=object),
                "canonical": pd.Series([self.canonical[n] for n in names], dtype=object),
                "op_kind": pd.Series([self.op_kinds[k] for k in self.op_kind[rows]], dtype=object),
            }
        )


def _first_of(codes: npt.NDArray[np.int64], count: int) -> Ints:
    """The position at which each code occurs first."""
    first = np.empty(count, dtype=np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return first


def _summed(values: Ints, group: Ints, count: int) -> Ints:
    return np.bincount(group, weights=values, minlength=count).astype(np.int64)[:count]
