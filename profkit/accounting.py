"""Takes the census of a trace, for every kind of step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from profkit import names as kernel_names
from profkit.attribution.by_repetition import add_layers
from profkit.attribution.ledger import attribute
from profkit.attribution.sequence import CaptureTrace
from profkit.census_layers import layer_of_scope, layer_sums
from profkit.census_model import Census, KindCensus
from profkit.census_ops import PlacedOps
from profkit.census_outside import ledger_and_beyond, outside_layers
from profkit.census_slots import launch_slots
from profkit.errors import NothingSelectedError, ProfkitError
from profkit.integrity import eager_launches_without_ops, overlapping_ops, refuse, silent_nodes
from profkit.layers import place
from profkit.selection import Selection, Wanted
from profkit.step_finding import find_steps
from profkit.steps import StepKind
from profkit.timeline import busy_and_span
from profkit.trace import Diagnostic, Trace
from profkit.wording import counted


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
    ops = PlacedOps(trace, attribution, steps, places, in_layer, canonical)
    wanted = Wanted(selection)
    kinds = [_kind_census(ops, index, kind, wanted) for index, kind in enumerate(steps.kinds)]
    ledger, beyond = ledger_and_beyond(ops)
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


def _kind_census(ops: PlacedOps, index: int, kind: StepKind, wanted: Wanted) -> KindCensus:
    of_kind = np.flatnonzero(ops.steps.kind == index)
    local = np.full(len(ops.steps.kind) + 1, -1, dtype=np.int64)  # the last element stands for "no step"
    local[of_kind] = np.arange(len(of_kind))
    step = local[ops.steps.step]
    rows = np.flatnonzero(step >= 0)
    inside = ops.in_layer[rows]
    layered, layered_step = rows[inside], step[rows[inside]]
    layer_of = layer_of_scope(ops, layered)
    slots, slot_ns = launch_slots(ops, layered, layered_step, kind, layer_of, wanted)
    layers = layer_sums(ops, layered, layered_step, slots, layer_of)
    outside, outside_ns = outside_layers(ops, rows[~inside], step[rows[~inside]], kind.steps)
    _, step_span_ns = busy_and_span(ops.start[rows], ops.end[rows], step[rows])
    one_run = np.zeros(kind.steps, dtype=np.int64)
    return KindCensus(
        kind, layers, slots, slot_ns, outside, outside_ns, step_span_ns, one_run, one_run, np.ones(kind.steps)
    )


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
