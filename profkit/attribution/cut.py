"""Cut: layers as the stretches between occurrences of a launch that runs once in each, told from the ops alone.

`stretches` finds that launch and where the layers begin and end; ``--anchor`` names it instead. All that lies between
two cuts is the layer's, also what only one layer has.

The stream that holds most of the step is cut; an op of another stream belongs to the layer that it runs beside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from profkit.attribution.method import Context, Placement
from profkit.attribution.op_order import Lane, OpCodes, lanes_of, op_codes
from profkit.attribution.stretches import Cut, Misfit, layers_of
from profkit.errors import ProfkitError
from profkit.model.names import display, shortened
from profkit.model.scope import place
from profkit.model.selection import Hints, Phase, compiled
from profkit.model.steps import WHOLE_RECORDING, StepKind, Steps
from profkit.model.trace import Diagnostic
from profkit.model.wording import listed

Ints = npt.NDArray[np.int64]

#: Where ops of a step go that are known to be in no layer.
_PROLOGUE, _EPILOGUE, _UNKNOWN = -1, -2, -3
_OUTSIDE = {_PROLOGUE: "(prologue)", _EPILOGUE: "(epilogue)"}
#: Kinds of step that are reported one by one; a server records hundreds of graphs.
_REPORTED = 4


def attribute(context: Context) -> Placement:
    """Place the ops of steps in which ranges name no layer, or less than half of what lies in layers.

    Raises:
        ProfkitError: an anchor is no regular expression, or names no kernel of a step.
    """
    steps, hints = context.steps, context.hints
    open_kinds = _open_kinds(context)
    if steps is None or not open_kinds:
        return Placement.nothing(context, *_unused(hints))
    codes = op_codes(context.trace)
    of_kind = _kind_of_ops(steps)
    anchor = None
    if hints.anchor is not None:
        present = np.unique(codes.code[np.isin(of_kind, list(open_kinds))])
        anchor = _matching(hints.anchor, {c: codes.names[c] for c in present.tolist()})
    order = np.argsort(of_kind, kind="stable")
    edges = np.searchsorted(of_kind[order], np.arange(len(steps.kinds) + 1))
    writer = _Writer(context, codes)
    for index, named in open_kinds.items():
        rows = order[edges[index] : edges[index + 1]]
        rows = rows[~np.isin(context.scope[rows], list(context.overhead))]
        lanes = lanes_of(context.trace, codes.code, rows, steps.step[rows].astype(np.int64))
        found = layers_of(lanes[0].codes if lanes else np.empty(0, np.int64), codes.names, hints, anchor)
        writer.write(steps.kinds[index], rows, named, lanes, found)
    return writer.placement()


def _kind_of_ops(steps: Steps) -> Ints:
    """For each op the kind of its step, -1 for none."""
    return np.where(steps.step >= 0, steps.kind[steps.step] if len(steps.kinds) else -1, -1).astype(np.int64)


def _open_kinds(context: Context) -> Mapping[int, int]:
    """The kinds of step that ranges do not divide: fewer than half of their ops are in a layer. Index to how many."""
    steps = context.steps
    if steps is None or steps.method == WHOLE_RECORDING:
        return {}
    of_kind = _kind_of_ops(steps)
    in_layer = np.array([place(path).layer is not None for path in context.scopes.paths], dtype=np.bool_)[context.scope]
    ops = np.bincount(of_kind[of_kind >= 0], minlength=len(steps.kinds))
    named = np.bincount(of_kind[in_layer & (of_kind >= 0)], minlength=len(steps.kinds))
    least = np.minimum(ops, 1) if context.hints.ranges else ops / 2
    return {index: int(named[index]) for index in range(len(steps.kinds)) if named[index] < least[index]}


def _unused(hints: Hints) -> list[Diagnostic]:
    if hints.anchor is None:
        return []
    message = (
        f"--anchor {hints.anchor!r} was not needed, or had no step to divide: it applies to graph replays and to "
        "ranges that are steps (--steps) in which ranges do not name the layers."
    )
    return [Diagnostic("anchor-not-used", message)]


def _matching(pattern: str, names: Mapping[int, str]) -> frozenset[int]:
    """The codes of the kernels that `pattern` names, by their canonical or their display names.

    Raises:
        ProfkitError: it is no regular expression, or names no kernel.
    """
    regex = compiled("--anchor", pattern)
    shown_as = {code: display(name) for code, name in names.items()}
    found = frozenset(code for code, name in names.items() if regex.search(name) or regex.search(shown_as[code]))
    if not found:
        shown = listed(sorted(set(shown_as.values())), 12) or "none"
        raise ProfkitError(f"--anchor {pattern!r} matches no kernel of a step. Kernels there: {shown}.")
    return found


class _Writer:
    """Collects the scopes of ops and what there is to say about them, a kind of step at a time."""

    def __init__(self, context: Context, codes: OpCodes) -> None:
        self.context, self.codes = context, codes
        count = len(context.trace.ops)
        self.scope = np.zeros(count, np.int32)
        self.taken, self.placed = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        self.outside = {code: context.scopes.intern((text,)) for code, text in _OUTSIDE.items()}
        self.notes: list[Diagnostic] = []
        self.cut, self.misfits = 0, 0
        self.phase: Phase | None = None

    def write(self, kind: StepKind, rows: Ints, named: int, lanes: Sequence[Lane], found: Cut | Misfit) -> None:
        """Place the ops at `rows`, of which ranges put `named` into layers."""
        if isinstance(found, Misfit):
            if not named:
                self.misfits += 1
                if self.misfits <= _REPORTED:
                    message = f"{kind.name}: no layers by cut: {found.reason}."
                    self.notes.append(Diagnostic("cut-does-not-fit", message))
            return
        layer = np.full(len(self.placed), _UNKNOWN, dtype=np.int64)
        for lane in lanes:
            layer[lane.members] = _layer_of_ops(self.context, lanes[0], lane, found)
        if 2 * named >= np.count_nonzero(layer[rows] >= 0):
            return
        self.taken[rows] = True
        self.placed[rows] = layer[rows] != _UNKNOWN
        self.scope[rows] = self._scopes(rows, layer[rows], found.kinds)
        self.phase = self.phase or found.phase
        self.cut += 1
        if self.cut <= _REPORTED:
            self._tell(kind, rows, layer[rows], named, lanes, found)

    def placement(self) -> Placement:
        """All that was written."""
        for many, what in ((self.cut, "have"), (self.misfits, "have no")):
            if many > _REPORTED:
                code = "layers-by-cut" if what == "have" else "cut-does-not-fit"
                self.notes.append(Diagnostic(code, f"{many - _REPORTED} more kinds of step {what} layers by cut."))
        outside = frozenset(self.outside.values()) if self.cut else frozenset()
        return Placement(self.placed, self.scope, self.notes, self.taken, outside=outside, phase=self.phase)

    def _scopes(self, rows: Ints, layer: Ints, kinds: Sequence[int]) -> Ints:
        """The scope of each of `rows`: its layer and, inside, what ranges say; 0 where nothing is known."""
        inner, paths = _inner(self.context, rows)
        stack, first = _named(layer, inner, paths)
        several = len(set(kinds)) > 1
        values, codes = np.unique(layer * len(paths) + inner, return_inverse=True)
        scope = np.zeros(len(values), dtype=np.int64)
        for position, value in enumerate(values.tolist()):
            number, path = divmod(value, len(paths))
            if number >= 0:
                letter = f".{_letter(kinds[number])}" if several else ""
                scope[position] = self.context.scopes.intern((f"{stack}{first + number}{letter}", *paths[path]))
            elif number != _UNKNOWN:
                scope[position] = self.outside[number]
        of_row: Ints = scope[codes.reshape(-1)]
        return of_row

    def _tell(self, kind: StepKind, rows: Ints, layer: Ints, named: int, lanes: Sequence[Lane], found: Cut) -> None:
        inside, total, steps = int(np.count_nonzero(layer >= 0)), len(rows), kind.steps
        around = [
            f", {np.count_nonzero(layer == code) / steps:.4g} {where} a step"
            for code, where in ((_PROLOGUE, "before them"), (_EPILOGUE, "behind them"))
            if (layer == code).any()
        ]
        start = shortened(display(self.codes.names[int(lanes[0].codes[found.starts[0]])]))
        message = (
            f"{kind.name}: {len(found.starts)} layers by cut, holding {inside} of {total} ops "
            f"({100 * inside / total:.1f} %{''.join(around)}). That a layer begins with {start} is a convention; "
            "its length and content are not."
        )
        if named:
            message += f" Ranges name layers for {named} ops only, parts of them."
        self.notes.append(Diagnostic("layers-by-cut", message))
        deviating = sum(lane.deviating for lane in lanes)
        if deviating:
            message = (
                f"{kind.name}: {deviating} steps run other ops than the rest of their kind; these are in no layer."
            )
            self.notes.append(Diagnostic("cut-leaves-ops", message))
        self.notes.extend(Diagnostic("cut-doubtful", f"{kind.name}: {doubt}.") for doubt in found.doubts)


def _layer_of_ops(context: Context, main: Lane, lane: Lane, found: Cut) -> Ints:
    """The layer of each op of `lane`: on the main stream by position, on another by the layer that it starts beside."""
    position = np.arange(len(main.codes))
    layer = np.searchsorted(found.starts, position, side="right") - 1
    layer[found.end :] = _EPILOGUE
    if lane is main:
        return layer
    start = context.trace.ops["start"].to_numpy()
    edges = np.r_[found.starts, found.end] if found.end < len(main.codes) else found.starts
    _, of_main, of_lane = np.intersect1d(main.steps, lane.steps, return_indices=True)
    if not len(of_main):
        return np.full(len(lane.codes), _UNKNOWN)
    beside = np.empty((len(of_main), len(lane.codes)), dtype=np.int64)
    for row, (ours, theirs) in enumerate(zip(main.members[of_main], lane.members[of_lane], strict=True)):
        beside[row] = np.searchsorted(start[ours[edges]], start[theirs], side="right") - 1
    # Replays jitter; an op belongs where it is in most of them.
    usual: Ints = np.median(beside, axis=0).astype(np.int64)
    return np.where(usual == len(found.starts), _EPILOGUE, usual)


def _inner(context: Context, rows: Ints) -> tuple[Ints, list[tuple[str, ...]]]:
    """What the ranges around the capture say about where an op lies, less what they say about all ops of the step."""
    captured = np.where(context.from_capture[rows], context.scope[rows], 0)
    values, codes = np.unique(captured, return_inverse=True)
    paths = [tuple(context.scopes.paths[v]) for v in values.tolist()]
    common = 0
    while all(len(p) > common and p[common] == paths[0][common] for p in paths):
        common += 1
    return codes.reshape(-1).astype(np.int64), [p[common:] for p in paths]


def _named(layer: Ints, inner: Ints, paths: Sequence[tuple[str, ...]]) -> tuple[str, int]:
    """The stack and the first layer's number by the ranges that name some layers, if these agree."""
    seen = np.unique(np.stack([layer, inner])[:, layer >= 0], axis=1)
    keys = [(place(paths[path]).layer, number) for number, path in seen.T.tolist()]
    said = {(key.stack, key.number - number) for key, number in keys if key is not None}
    stack, first = said.pop() if len(said) == 1 else ("layers.", 0)
    return (stack, first) if first >= 0 else ("layers.", 0)


def _letter(kind: int) -> str:
    """A, B, …, Z, AA, AB, …"""
    letters = ""
    kind += 1
    while kind:
        kind, rest = divmod(kind - 1, 26)
        letters = chr(ord("A") + rest) + letters
    return letters
