"""Layers for steps in which no better method found any: by the user's anchor, or by the period of the ops themselves.

One step of each kind is looked at and its answer given to all steps that run the same ops in the same order. Where
streams overlap, each is a sequence of its own; the one that carries most ops decides, and the others must show as many
layers, at the same times. Ops that may belong to one layer or the next stay unattributed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from profkit.attribution.layering import (
    BETWEEN,
    EPILOGUE,
    PROLOGUE,
    UNKNOWN,
    Ints,
    Layering,
    Misfit,
    kind_letter,
    layer_texts,
)
from profkit.attribution.method import Context, Placement
from profkit.attribution.op_order import Lane, OpCodes, lanes_of, op_codes
from profkit.model import names as kernel_names
from profkit.model.names import shortened
from profkit.model.scope import place
from profkit.model.steps import WHOLE_RECORDING, Steps
from profkit.model.trace import Diagnostic

#: Finds the layers of one op sequence, and whether twice as many would have been as plausible; told whether the
#: sequence is that of the stream that carries most ops.
Find = Callable[[Ints, bool], tuple[Layering, bool] | Misfit]

#: Where ops of a step go that are known to be in no layer.
_OUTSIDE = {PROLOGUE: "(prologue)", EPILOGUE: "(epilogue)", BETWEEN: "(between layers)"}
#: Kinds of step that are reported one by one; a server records hundreds of graphs.
_REPORTED = 4


@dataclass(frozen=True)
class OpenSteps:
    """The kinds of step none of whose ops lies in a layer.

    Args:
        steps: all steps.
        kinds: indices into `steps.kinds`, at least one.
        of_kind: for each op the kind of its step, -1 for none.
        codes: what each op is.
    """

    steps: Steps
    kinds: Sequence[int]
    of_kind: Ints
    codes: OpCodes


def open_steps(context: Context) -> OpenSteps | None:
    """The steps that have no layer yet; None where there are none, or nothing divides the recording into steps."""
    steps = context.steps
    if steps is None or steps.method == WHOLE_RECORDING:
        return None
    of_kind = np.where(steps.step >= 0, steps.kind[steps.step] if len(steps.kind) else -1, -1)
    in_layer = np.array([place(path).layer is not None for path in context.scopes.paths], dtype=np.bool_)
    known = np.bincount(of_kind[in_layer[context.scope] & (of_kind >= 0)], minlength=len(steps.kinds))
    kinds: list[int] = np.flatnonzero(known[: len(steps.kinds)] == 0).tolist()
    return OpenSteps(steps, kinds, of_kind, op_codes(context.trace)) if kinds else None


def place_layers(context: Context, unplaced: OpenSteps, method: str, find: Find) -> tuple[Placement, Layering | None]:
    """Place the ops of steps that have no layer yet.

    Args:
        method: what reports call it.

    Returns:
        the placement, and the layers of the kind of step with the most GPU time that has some.
    """
    order = np.argsort(unplaced.of_kind, kind="stable")
    edges = np.searchsorted(unplaced.of_kind[order], np.arange(len(unplaced.steps.kinds) + 1))
    count = len(context.trace.ops)
    scope, taken, placed = np.zeros(count, np.int32), np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    outside = {code: context.scopes.intern((text,)) for code, text in _OUTSIDE.items()}
    notes: list[Diagnostic] = []
    misfits: list[tuple[str, str]] = []
    layerings: list[Layering] = []
    for index in unplaced.kinds:
        kind = unplaced.steps.kinds[index]
        rows = order[edges[index] : edges[index + 1]]
        rows = rows[~np.isin(context.scope[rows], list(context.overhead))]
        found = _layers_of_kind(context, unplaced, rows, find)
        if isinstance(found, Misfit):
            misfits.append((kind.id, found.reason))
            continue
        taken[rows] = True
        placed[rows] = found.layer != UNKNOWN
        scope[rows] = _scopes_of(context, rows, found, outside)
        layerings.append(found.layering)
        if len(layerings) <= _REPORTED:
            notes += _layer_notes(method, kind.id, kind.steps, found, unplaced.codes.names)
    notes += _misfit_notes(method, misfits)
    if len(layerings) > _REPORTED:
        message = f"{len(layerings) - _REPORTED} more kinds of step have layers by {method}."
        notes.append(Diagnostic(f"layers-by-{method}", message))
    placement = Placement(placed, scope, notes, taken, outside=frozenset(outside.values()))
    return placement, layerings[0] if layerings else None


@dataclass(frozen=True)
class _Found:
    """The layers of one kind of step.

    Args:
        layer: of each op of its steps.
        layering: of its main stream.
        problems: what contradicts the layers, one clause each.
    """

    layer: Ints
    layering: Layering
    problems: Sequence[str]


def _layers_of_kind(context: Context, unplaced: OpenSteps, rows: Ints, find: Find) -> _Found | Misfit:
    lanes = lanes_of(context.trace, unplaced.codes.code, rows, unplaced.steps.step[rows].astype(np.int64))
    answers: list[tuple[Lane, Layering]] = []
    reasons: list[str] = []
    problems: list[str] = []
    for lane in lanes:
        found = find(lane.codes, not answers)
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
    position = np.full(len(context.trace.ops), UNKNOWN, dtype=np.int64)
    for lane, layering in answers:
        position[lane.members] = layering.layer[None, :]
        if lane.deviating:
            problems.append(f"{lane.deviating} steps run other ops than the rest of their kind")
    return _Found(position[rows], answers[0][1], problems)


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


def _scopes_of(context: Context, rows: Ints, found: _Found, outside: Mapping[int, int]) -> Ints:
    """The scope of each of `rows`: its layer and, inside, what the capture's ranges say; 0 where nothing is known."""
    texts = layer_texts(found.layering)
    inner, paths = _inner(context, rows)
    values, codes = np.unique(found.layer * len(paths) + inner, return_inverse=True)
    scope = np.zeros(len(values), dtype=np.int64)
    for position, value in enumerate(values.tolist()):
        layer, path = divmod(value, len(paths))
        if layer >= 0:
            scope[position] = context.scopes.intern((texts[layer], *paths[path]))
        elif layer != UNKNOWN:
            scope[position] = outside[layer]
    of_row: Ints = scope[codes.reshape(-1)]
    return of_row


def _inner(context: Context, rows: Ints) -> tuple[Ints, list[tuple[str, ...]]]:
    """What the ranges around the capture say about where an op lies, less what they say about all ops of the step."""
    captured = np.where(context.from_capture[rows], context.scope[rows], 0)
    values, codes = np.unique(captured, return_inverse=True)
    paths = [tuple(context.scopes.paths[v]) for v in values.tolist()]
    common = 0
    while all(len(p) > common and p[common] == paths[0][common] for p in paths):
        common += 1
    return codes.reshape(-1).astype(np.int64), [p[common:] for p in paths]


def _layer_notes(method: str, step_kind: str, steps: int, found: _Found, names: Mapping[int, str]) -> list[Diagnostic]:
    """What is to be said of one kind of step: method, coverage, convention, kinds, and what contradicts the layers.

    Args:
        names: code to canonical name.
    """
    layering, layer, problems = found.layering, found.layer, found.problems
    display = {names[c]: kernel_names.display(names[c]) for kind in layering.kinds for c in kind}
    total = len(layer)
    inside = int(np.count_nonzero(layer >= 0))
    around = [f"{_per_step(layer == code, steps)} {text}" for code, text in _AROUND if (layer == code).any()]
    parts = [
        f"{step_kind}: {layering.count} layers by {method}, holding {inside} of {total} ops "
        f"({100 * inside / total:.1f} %{''.join(f', {a} a step' for a in around)})."
    ]
    first = shortened(display[names[layering.kinds[0][0]]])
    if method == "period":
        parts.append(f"That a layer begins with {first} is a convention; its length and content are not.")
    if len(layering.kinds) > 1:
        parts.append(f"Kinds of layer: {'; '.join(_kinds(layering, names, display))}.")
    if layering.irregular:
        shown = ", ".join(map(str, layering.irregular[:8])) + (", …" if len(layering.irregular) > 8 else "")
        parts.append(f"Irregular: layer{'s' * (len(layering.irregular) > 1)} {shown}.")
    notes = [Diagnostic(f"layers-by-{method}", " ".join(parts))]
    unknown = int(np.count_nonzero(layer == UNKNOWN))
    if unknown:
        why = "; ".join(dict.fromkeys(problems)) or "they lie where one layer ends and the next begins"
        notes.append(Diagnostic(f"{method}-leaves-ops", f"{step_kind}: {unknown} ops are in no layer for sure: {why}."))
    elif problems:
        notes.append(Diagnostic(f"{method}-doubtful", f"{step_kind}: {'; '.join(dict.fromkeys(problems))}."))
    return notes


_AROUND = ((PROLOGUE, "before them"), (EPILOGUE, "behind them"))


def _per_step(mask: Ints, steps: int) -> str:
    return f"{np.count_nonzero(mask) / steps:.4g}"


def _kinds(layering: Layering, names: Mapping[int, str], display: Mapping[str, str]) -> list[str]:
    counts = Counter(layering.kind)
    shared = set(layering.kinds[0]).intersection(*layering.kinds)
    said: list[str] = []
    for index, kind in enumerate(layering.kinds):
        own = list(dict.fromkeys(display[names[c]] for c in kind if c not in shared))
        only = f", with {', '.join(map(shortened, own[:3]))}{', …' if len(own) > 3 else ''}" if own else ""
        said.append(f"{kind_letter(index)} {counts[index]} layers of {len(kind)} launches{only}")
    return said


def _misfit_notes(method: str, misfits: Sequence[tuple[str, str]]) -> list[Diagnostic]:
    """Why kinds of step got no layers, one diagnostic for each of the first few.

    Args:
        misfits: kind of step, and the reason as one clause.
    """
    notes = [
        Diagnostic(f"{method}-does-not-fit", f"{step_kind}: no layers by {method}: {reason}.")
        for step_kind, reason in misfits[:_REPORTED]
    ]
    if len(misfits) > _REPORTED:
        message = f"{len(misfits) - _REPORTED} more kinds of step have no layers by {method} either."
        notes.append(Diagnostic(f"{method}-does-not-fit", message))
    return notes
