"""Anchor: the user names a kernel that runs once a layer; layers are the stretches from one such launch to the next."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from profkit.attribution import period
from profkit.attribution.layering import BETWEEN, EPILOGUE, PROLOGUE, Ints, Layering, Misfit, is_variant, label
from profkit.attribution.method import Context, Placement
from profkit.attribution.repetition import open_steps, place_layers
from profkit.errors import ProfkitError
from profkit.model import names as kernel_names
from profkit.model.trace import Diagnostic


@dataclass(frozen=True)
class Anchor:
    """The op codes that begin a layer, and those that end one (none: the next beginning ends it)."""

    begin: frozenset[int]
    end: frozenset[int]


def attribute(context: Context) -> Placement:
    """Place the ops of steps that have no layer yet, if the user named an anchor.

    Raises:
        ProfkitError: it is no regular expression, or names no kernel of a step.
    """
    hints = context.hints
    if hints.anchor is None:
        return Placement.nothing(context)
    unplaced = open_steps(context)
    if unplaced is None:
        message = (
            f"--anchor {hints.anchor!r} was not needed, or had no step to divide: it applies to graph replays and to "
            "ranges that are steps (--steps) in which no better method finds a layer."
        )
        return Placement.nothing(context, Diagnostic("anchor-not-used", message))
    names = unplaced.codes.names
    present = np.unique(unplaced.codes.code[np.isin(unplaced.of_kind, unplaced.kinds)])
    anchor = _compiled(hints.anchor, hints.anchor_end, {c: names[c] for c in present.tolist()})

    def find(sequence: Ints, _main: bool) -> tuple[Layering, bool] | Misfit:
        if not np.isin(sequence, list(anchor.begin)).any():
            # A side stream without the anchor still shows layers if it repeats as often as the anchor does.
            return period.layers(sequence, names)
        found = _layers(sequence, anchor, names)
        return found if isinstance(found, Misfit) else (found, False)

    return place_layers(context, unplaced, "anchor", find)[0]


def _compiled(begin: str, end: str | None, names: Mapping[int, str]) -> Anchor:
    """Find the kernels that the patterns name.

    Args:
        begin, end: regular expressions, searched in canonical and display names.
        names: code to canonical name, of the ops that are in steps.

    Raises:
        ProfkitError: a pattern is no regular expression, or names no kernel.
    """
    return Anchor(
        _matching("--anchor", begin, names), frozenset() if end is None else _matching("--anchor-end", end, names)
    )


def _matching(option: str, pattern: str, names: Mapping[int, str]) -> frozenset[int]:
    try:
        regex = re.compile(pattern)
    except re.error as error:
        raise ProfkitError(f"{option} {pattern!r} is not a regular expression: {error}.") from None
    display = {name: kernel_names.display(name) for name in names.values()}
    found = frozenset(code for code, name in names.items() if regex.search(name) or regex.search(display[name]))
    if not found:
        shown = ", ".join(sorted(set(display.values()))[:20]) or "none"
        raise ProfkitError(f"{option} {pattern!r} matches no kernel of a step. Kernels there: {shown}.")
    return found


def _layers(codes: Ints, anchor: Anchor, names: Mapping[int, str]) -> Layering | Misfit:
    """The layers of one step's op sequence.

    Without an end the last layer ends where it stops matching its kind; with one, a layer is what lies from its
    beginning to the first end, and ops between layers are known to be in none.
    """
    begins = np.flatnonzero(np.isin(codes, list(anchor.begin)))
    if not len(begins):
        return Misfit("the anchor does not occur")
    if not anchor.end:
        found = label(codes, begins.tolist(), lambda a, b: is_variant(names[a], names[b]), given=True)
        return (
            Misfit(f"{found.reason}, so that the last layer has no known end") if isinstance(found, Misfit) else found
        )
    return _ended(codes, begins, np.flatnonzero(np.isin(codes, list(anchor.end))))


def _ended(codes: Ints, begins: Ints, ends: Ints) -> Layering | Misfit:
    edges = np.r_[begins, len(codes)]
    position = np.searchsorted(ends, begins)
    stop = np.r_[ends, len(codes)][position] + 1
    endless = np.flatnonzero(stop > edges[1:])
    if len(endless):
        return Misfit(f"{len(endless)} of {len(begins)} layers have no --anchor-end before the next --anchor")
    layer: Ints = np.full(len(codes), BETWEEN, dtype=np.int64)
    layer[: begins[0]] = PROLOGUE
    layer[stop[-1] :] = EPILOGUE
    order: dict[tuple[int, ...], int] = {}
    kind: list[int] = []
    for number, (a, b) in enumerate(zip(begins.tolist(), stop.tolist(), strict=True)):
        layer[a:b] = number
        kind.append(order.setdefault(tuple(codes[a:b].tolist()), len(order)))
    return Layering(layer, tuple(order), tuple(kind))
