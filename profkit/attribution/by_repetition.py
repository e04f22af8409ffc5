"""Layers for steps in which no better method found any: by the user's anchor, or by the period of the ops themselves.

One step of each kind is looked at and its answer given to all steps that run the same ops in the same order. Where
streams overlap, each is a sequence of its own; the one that carries most ops decides, and the others must show as many
layers, at the same times. Ops that may belong to one layer or the next stay unattributed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from profkit.attribution import anchor as by_anchor
from profkit.attribution import period
from profkit.attribution.division import BETWEEN, EPILOGUE, PROLOGUE, UNKNOWN, Ints
from profkit.attribution.lanes import Lane, lanes_of
from profkit.attribution.ledger import METHODS, Attribution
from profkit.attribution.op_order import OpCodes, op_codes
from profkit.attribution.scopes import ScopeTable
from profkit.attribution.segments import Layering, Misfit, layer_texts
from profkit.attribution.told import TOLD, told_layers, told_misfits, told_more
from profkit.model.census import Phase
from profkit.model.scope import place
from profkit.model.selection import Hints
from profkit.model.steps import WHOLE_RECORDING, Steps
from profkit.model.trace import Diagnostic, Trace

#: Where ops of a step go that are known to be in no layer.
OUTSIDE = {PROLOGUE: "(prologue)", EPILOGUE: "(epilogue)", BETWEEN: "(between layers)"}


@dataclass(frozen=True)
class Found:
    """The layers of one kind of step: of each op of its steps, in the order of `rows`."""

    rows: Ints
    layer: Ints
    layering: Layering
    problems: Sequence[str]


def add_layers(trace: Trace, attribution: Attribution, steps: Steps, hints: Hints) -> tuple[Attribution, Phase | None]:
    """Place the ops of steps that have no layer yet.

    Returns:
        the attribution with these ops placed, and the phase of the layers by period (of the kind of step with the most
        GPU time that has some), None where period found none.

    Raises:
        ProfkitError: an anchor is no regular expression or names no kernel of a step.
    """
    of_kind = np.where(steps.step >= 0, steps.kind[steps.step] if len(steps.kind) else -1, -1)
    open_kinds = [] if steps.method == WHOLE_RECORDING else _without_layers(attribution, of_kind, len(steps.kinds))
    if not open_kinds:
        return _unused(attribution, hints), None
    codes = op_codes(trace)
    chosen: by_anchor.Anchor | None = None
    if hints.anchor is not None:
        present = np.unique(codes.code[np.isin(of_kind, open_kinds)])
        chosen = by_anchor.compiled(hints.anchor, hints.anchor_end, {c: codes.names[c] for c in present.tolist()})
    order = np.argsort(of_kind, kind="stable")
    edges = np.searchsorted(of_kind[order], np.arange(len(steps.kinds) + 1))
    writer = _Writer(attribution, "anchor" if chosen else "period")
    misfits: list[tuple[str, str]] = []
    phase: Phase | None = None
    for index in open_kinds:
        rows = order[edges[index] : edges[index + 1]]
        rows = rows[~np.isin(attribution.scope[rows], list(attribution.overhead))]
        found = _layers_of_kind(trace, codes, rows, steps.step[rows].astype(np.int64), chosen, hints.start)
        if isinstance(found, Misfit):
            misfits.append((steps.kinds[index].id, found.reason))
            continue
        if chosen is None and phase is None:
            phase = period.phase(found.layering, codes.names)
        writer.write(steps.kinds[index].id, steps.kinds[index].steps, found, codes.names)
    notes = [*writer.notes, *told_misfits(writer.method, misfits)]
    return writer.done(notes), phase


def _without_layers(attribution: Attribution, of_kind: Ints, kinds: int) -> list[int]:
    """The kinds of step none of whose ops lies in a layer."""
    in_layer = np.array([place(path).layer is not None for path in attribution.paths], dtype=np.bool_)
    known = np.bincount(of_kind[in_layer[attribution.scope] & (of_kind >= 0)], minlength=kinds)
    return np.flatnonzero(known[:kinds] == 0).tolist()


def _unused(attribution: Attribution, hints: Hints) -> Attribution:
    if hints.anchor is None:
        return attribution
    message = (
        f"--anchor {hints.anchor!r} was not needed, or had no step to divide: it applies to graph replays and to "
        "ranges that are steps (--steps) in which no better method finds a layer."
    )
    return replace(attribution, problems=(*attribution.problems, Diagnostic("anchor-not-used", message)))


def _layers_of_kind(
    trace: Trace, codes: OpCodes, rows: Ints, step: Ints, chosen: by_anchor.Anchor | None, start: str | None
) -> Found | Misfit:
    lanes = lanes_of(trace, codes.code, rows, step)
    answers: list[tuple[Lane, Layering]] = []
    reasons: list[str] = []
    problems: list[str] = []
    for lane in lanes:
        found = _of_sequence(codes, lane.codes, chosen, start if not answers else None)
        if isinstance(found, Misfit):
            reasons.append(found.reason)
            if answers:
                problems.append(f"{len(lane.codes)} ops of another stream: {found.reason}")
            continue
        layering, ambiguous = found
        if answers and not _agrees(answers[0], (lane, layering)):
            problems.append(
                f"{len(lane.codes)} ops of another stream show {layering.count} layers, or at other times than the "
                f"{answers[0][1].count} of the main stream"
            )
            continue
        if ambiguous:
            problems.append(
                "two stretches that alternate were taken for one layer; if each is one, name a kernel that runs once "
                "in each with --anchor"
            )
        answers.append((lane, layering))
    if not answers:
        return Misfit(reasons[0] if reasons else "no op is left in the step")
    position = np.full(len(trace.ops), UNKNOWN, dtype=np.int64)
    for lane, layering in answers:
        position[lane.members] = layering.layer[None, :]
        if lane.others:
            problems.append(f"{lane.others} steps run other ops than the rest of their kind")
    return Found(rows, position[rows], answers[0][1], problems)


def _of_sequence(
    codes: OpCodes, sequence: Ints, chosen: by_anchor.Anchor | None, start: str | None
) -> tuple[Layering, bool] | Misfit:
    if chosen is None:
        return period.layers(sequence, codes.names, start)
    if not np.isin(sequence, list(chosen.begin)).any():
        # A side stream without the anchor still shows layers if it repeats as often as the anchor does.
        return period.layers(sequence, codes.names)
    found = by_anchor.layers(sequence, chosen, codes.names)
    return found if isinstance(found, Misfit) else (found, False)


def _agrees(main: tuple[Lane, Layering], side: tuple[Lane, Layering]) -> bool:
    """Whether a side stream has as many layers, none of which runs before its neighbour's predecessor or after its
    successor on the main stream."""
    (lane, layers), (other, others) = main, side
    if layers.count != others.count:
        return False
    begin = np.array([lane.start_ns[layers.layer == i].min() for i in range(layers.count)])
    end = np.array([lane.end_ns[layers.layer == i].max() for i in range(layers.count)])
    earliest, latest = np.r_[begin[:1], begin[:-1]], np.r_[end[1:], end[-1:]]
    inside = others.layer >= 0
    layer = others.layer[inside]
    # The first layer may begin, and the last one end, on the side stream.
    early = (other.end_ns[inside] < earliest[layer]) & (layer > 0)
    late = (other.start_ns[inside] > latest[layer]) & (layer < layers.count - 1)
    return not (early | late).any()


class _Writer:
    """Collects the new scopes of ops and what there is to say about them."""

    def __init__(self, attribution: Attribution, method: str) -> None:
        self.before, self.method = attribution, method
        self.scope, self.by = attribution.scope.copy(), attribution.method.copy()
        self.scopes = ScopeTable.of(attribution.paths)
        self.outside = {code: self.scopes.intern((text,)) for code, text in OUTSIDE.items()}
        self.notes: list[Diagnostic] = []
        self.told = 0

    def write(self, step_kind: str, steps: int, found: Found, names: Mapping[int, str]) -> None:
        layering, rows = found.layering, found.rows
        texts = layer_texts(layering)
        inner, paths = self._inner(rows)
        known = found.layer != UNKNOWN
        pair = found.layer.astype(np.int64) * len(paths) + inner
        values, codes = np.unique(pair, return_inverse=True)
        scope = np.zeros(len(values), dtype=np.int32)
        for position, value in enumerate(values.tolist()):
            layer, path = divmod(value, len(paths))
            if layer >= 0:
                scope[position] = self.scopes.intern((texts[layer], *paths[path]))
            elif layer != UNKNOWN:
                scope[position] = self.outside[layer]
        self.scope[rows] = scope[codes.reshape(-1)]
        self.by[rows] = np.where(known, METHODS.index(self.method), 0)
        self.told += 1
        if self.told <= TOLD:
            self.notes += told_layers(self.method, step_kind, steps, layering, found.layer, found.problems, names)

    def _inner(self, rows: Ints) -> tuple[Ints, list[tuple[str, ...]]]:
        """What lineage or sequence say about where an op lies, less what they say about all ops of the step."""
        by_capture = np.isin(self.before.method[rows], [METHODS.index("lineage"), METHODS.index("sequence")])
        values, codes = np.unique(np.where(by_capture, self.before.scope[rows], 0), return_inverse=True)
        paths = [tuple(self.before.paths[v]) for v in values.tolist()]
        common = 0
        while all(len(p) > common and p[common] == paths[0][common] for p in paths):
            common += 1
        return codes.reshape(-1).astype(np.int64), [p[common:] for p in paths]

    def done(self, notes: Sequence[Diagnostic]) -> Attribution:
        more = told_more(self.method, self.told)
        outside = self.before.outside | frozenset(self.outside.values())
        return replace(
            self.before,
            scope=self.scope,
            method=self.by,
            paths=self.scopes.paths,
            problems=(*self.before.problems, *notes, *more),
            outside=outside,
        )
