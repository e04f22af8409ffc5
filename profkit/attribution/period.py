"""Period: the layers of a step from the repetition in its own op sequence, without a hint."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from profkit.attribution import motif
from profkit.attribution.division import Ints
from profkit.attribution.segments import Layering, Misfit, label
from profkit.attribution.similarity import is_variant
from profkit.model.census import Phase

#: Below this share of its ops in layers, a sequence repeats something, but not the layers of a model.
_LEAST_COVERAGE = 0.5
#: A layer more is worth less than one op that it leaves unexplained, so that a piece of the prologue makes no layer;
#: and more than nothing, so that of divisions that explain as much the finest counts.
_WORTH_OF_LAYER = 0.5


def layers(codes: Ints, names: Mapping[int, str], start: str | None = None) -> tuple[Layering, bool] | Misfit:
    """Find the layers of one op sequence.

    Args:
        codes: shape [ops].
        names: code to canonical name.
        start: canonical name of the kernel with which layers shall begin.

    Returns:
        the layers, and whether twice as many would have been as plausible.
    """

    def variant(first: int, second: int) -> bool:
        return is_variant(names[first], names[second])

    wanted = None
    if start is not None:
        wanted = next((c for c in dict.fromkeys(codes.tolist()) if names[c] == start), None)
        if wanted is None:
            return Misfit(f"the kernel with which layers begin on the other side, {start}, does not occur")
    search = motif.Search(codes, variant, wanted)
    layerings: list[Layering] = []
    reasons: list[str] = []
    for bounds in search.divisions():
        answer = label(codes, bounds, variant)
        if isinstance(answer, Misfit):
            reasons.append(answer.reason)
            continue
        layerings.append(answer)
        if not answer.unexplained and not answer.doubt and answer.count > search.most:
            break
    if not layerings:
        return Misfit(reasons[0] if reasons else motif.NOTHING_REPEATS)
    least = min(map(_cost, layerings))
    equal = [a for a in layerings if _cost(a) == least]
    # Of equally good phases the convention takes the earliest; one that is doubtful makes all of them so.
    best = min(equal, key=lambda a: (not a.doubt, int(np.argmax(a.layer >= 0))))
    if best.doubt:
        return Misfit(best.doubt)
    if best.count < motif.MIN_LAYERS:
        return Misfit(f"only {best.count} stretches are like a layer")
    covered = np.count_nonzero(best.layer >= 0)
    if covered < _LEAST_COVERAGE * len(codes):
        return Misfit(f"the repetition covers {covered} of {len(codes)} ops, too few to be a model's layers")
    return best, search.ambiguous


def _cost(found: Layering) -> float:
    """What a division leaves unexplained, less what the layers that it finds are worth."""
    return found.unexplained - _WORTH_OF_LAYER * found.alike


def phase(found: Layering, names: Mapping[int, str]) -> Phase:
    """The phase of layers that `layers` found."""
    return Phase(names[found.kinds[0][0]], tuple(names[c] for c in motif.once_in_each(found.kinds)))


def common_start(before: Phase, after: Phase) -> str | None:
    """The kernel with which the layers of both sides shall begin, None where they already agree or share none.

    They agree if the kernels that both run once a layer come first in the same order: a kernel that was removed from a
    layer's beginning does not turn the layer.
    """
    shared = [name for name in before.once if name in after.once]
    if not shared or shared[0] == next(name for name in after.once if name in before.once):
        return None
    return shared[0]
