"""What is said about layers that rest on repetition: method, coverage, convention, kinds, and what contradicts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from profkit.attribution.division import EPILOGUE, PROLOGUE, UNKNOWN, Ints
from profkit.attribution.segments import Layering, kind_letter
from profkit.model import names as kernel_names
from profkit.model.trace import Diagnostic

#: Kinds of step that are reported one by one; a server records hundreds of graphs.
TOLD = 4
_LONGEST = 60


def told_layers(
    method: str,
    step_kind: str,
    steps: int,
    layering: Layering,
    layer: Ints,
    problems: Sequence[str],
    names: Mapping[int, str],
) -> list[Diagnostic]:
    """The diagnostics of one kind of step.

    Args:
        layer: of every op of all its steps.
        problems: what contradicts the layers, one clause each.
        names: code to canonical name.
    """
    display = kernel_names.display_names(names[c] for kind in layering.kinds for c in kind)
    total = len(layer)
    inside = int(np.count_nonzero(layer >= 0))
    around = [f"{_per_step(layer == code, steps)} {text}" for code, text in _AROUND if (layer == code).any()]
    parts = [
        f"{step_kind}: {layering.count} layers by {method}, holding {inside} of {total} ops "
        f"({100 * inside / total:.1f} %{''.join(f', {a} a step' for a in around)})."
    ]
    first = short(display[names[layering.kinds[0][0]]])
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
    told: list[str] = []
    for index, kind in enumerate(layering.kinds):
        own = list(dict.fromkeys(display[names[c]] for c in kind if c not in shared))
        only = f", with {', '.join(map(short, own[:3]))}{', …' if len(own) > 3 else ''}" if own else ""
        told.append(f"{kind_letter(index)} {counts[index]} layers of {len(kind)} launches{only}")
    return told


def short(name: str) -> str:
    """`name`, cut in the middle where it is too long for a sentence (mangled names run to a thousand characters)."""
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST // 2]}…{name[-_LONGEST // 2 :]}"


def told_misfits(method: str, misfits: Sequence[tuple[str, str]]) -> list[Diagnostic]:
    """Why kinds of step got no layers, one diagnostic for each of the first few.

    Args:
        misfits: kind of step, and the reason as one clause.
    """
    notes = [
        Diagnostic(f"{method}-does-not-fit", f"{step_kind}: no layers by {method}: {reason}.")
        for step_kind, reason in misfits[:TOLD]
    ]
    if len(misfits) > TOLD:
        message = f"{len(misfits) - TOLD} more kinds of step have no layers by {method} either."
        notes.append(Diagnostic(f"{method}-does-not-fit", message))
    return notes


def told_more(method: str, kinds: int) -> list[Diagnostic]:
    """That there are kinds of step with layers beyond those that were told."""
    if kinds <= TOLD:
        return []
    return [Diagnostic(f"layers-by-{method}", f"{kinds - TOLD} more kinds of step have layers by {method}.")]
