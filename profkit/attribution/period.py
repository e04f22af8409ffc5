"""Period: the layers of a step from the repetition in its own op sequence, without a hint.

Every kernel that occurs often enough is tried as the one that occurs once a layer. The sequence is cut before each of
its occurrences; the cut is good if the stretches repeat, and if neighbours are alike, as layers are and as the halves
of a layer are not. The finest good cut gives the layers. Its phase is a convention: layers begin at the first op of the
step that the repetition explains, so that a layer's leading norm is its own and not its predecessor's.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from profkit.attribution.layering import (
    RELATED,
    SAME_KIND,
    Ints,
    Layering,
    Misfit,
    Stretch,
    is_variant,
    label,
    repeated_kinds,
    shared_run,
    similarity,
)
from profkit.attribution.method import Context, Placement
from profkit.attribution.repetition import open_steps, place_layers
from profkit.model.census import Phase

#: Below this share of its ops in layers, a sequence repeats something, but not the layers of a model.
_LEAST_COVERAGE = 0.5
#: A layer more is worth less than one op that it leaves unexplained, so that a piece of the prologue makes no layer;
#: and more than nothing, so that of divisions that explain as much the finest counts.
_WORTH_OF_LAYER = 0.5


def attribute(context: Context) -> Placement:
    """Place the ops of steps that have no layer yet, unless the user named an anchor."""
    hints = context.hints
    unplaced = open_steps(context) if hints.anchor is None else None
    if unplaced is None:
        return Placement.nothing(context)
    names = unplaced.codes.names

    def find(sequence: Ints, main: bool) -> tuple[Layering, bool] | Misfit:
        return layers(sequence, names, hints.start if main else None)

    placement, first = place_layers(context, unplaced, "period", find)
    return placement if first is None else replace(placement, phase=_phase(first, names))


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
    search = _Search(codes, variant, wanted)
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
        return Misfit(reasons[0] if reasons else _NOTHING_REPEATS)
    least = min(map(_cost, layerings))
    equal = [a for a in layerings if _cost(a) == least]
    # Of equally good phases the convention takes the earliest; one that is doubtful makes all of them so.
    best = min(equal, key=lambda a: (not a.doubt, int(np.argmax(a.layer >= 0))))
    if best.doubt:
        return Misfit(best.doubt)
    if best.count < _MIN_LAYERS:
        return Misfit(f"only {best.count} stretches are like a layer")
    covered = np.count_nonzero(best.layer >= 0)
    if covered < _LEAST_COVERAGE * len(codes):
        return Misfit(f"the repetition covers {covered} of {len(codes)} ops, too few to be a model's layers")
    return best, search.ambiguous


def _cost(found: Layering) -> float:
    """What a division leaves unexplained, less what the layers that it finds are worth."""
    return found.unexplained - _WORTH_OF_LAYER * found.alike


def _phase(found: Layering, names: Mapping[int, str]) -> Phase:
    """The phase of layers that `layers` found."""
    return Phase(names[found.kinds[0][0]], tuple(names[c] for c in _once_in_each(found.kinds)))


def common_start(before: Phase, after: Phase) -> str | None:
    """The kernel with which the layers of both sides shall begin, None where they already agree or share none.

    They agree if the kernels that both run once a layer come first in the same order: a kernel that was removed from a
    layer's beginning does not turn the layer.
    """
    shared = [name for name in before.once if name in after.once]
    if not shared or shared[0] == next(name for name in after.once if name in before.once):
        return None
    return shared[0]


#: Two equal stretches can be chance; three in a step are taken for layers.
_MIN_LAYERS = 3
_NOTHING_REPEATS = f"no sequence of kernels repeats {_MIN_LAYERS} times or more, as layers do"
#: Of neighbouring stretches, so many must be alike. Halves of layers alternate and never are; of the layers of a hybrid
#: model with one full-attention layer in four, half are.
_ALIKE_NEIGHBOURS = 0.25
#: Neighbours that begin or end with so many ops in common are two kinds of layer (a dense one and one of experts with
#: the same attention), although they alternate: halves of a layer share a norm, a GEMM and an all-reduce.
_SIBLING_RUN = 6
#: Above this similarity, halves that alternate could be two kinds of layer after all, and the user should know.
_AMBIGUOUS = 0.4
#: Stretches that are like a kind, among all; below, the cut explains too little to be worth a closer look.
_REGULAR_SHARE = 0.5
#: Kernels tried as the one that occurs once a layer: a layer of the recorded models has at most 40 different ones.
_CANDIDATES = 64
#: A first layer's beginning is looked for behind at most so many ops that other layers do not have there.
_MOST_BACK = 8
#: Divisions that are looked at; a clean step has one for each kernel that its layers share, and they converge.
_MOST_DIVISIONS = 128
#: Layers that may lack the kernel to which all beginnings are moved.
_UNLIKE_SHARE = 0.25
#: Kinds of layer in one step beyond which a cut is noise; models have up to four.
_MAX_KINDS = 16


@dataclass(frozen=True)
class _Cut:
    """A good cut: where, and how many of its stretches are like others."""

    positions: Ints
    score: int


class _Search:
    """Where the layers of a sequence may begin.

    Args:
        codes: the ops' names as integers, shape [ops].
        variant: whether two codes are variants of one kernel.
        start: the code with which layers shall begin; None decides it by the convention above.
    """

    def __init__(self, codes: Ints, variant: Callable[[int, int], bool], start: int | None = None) -> None:
        self.codes, self.variant, self.start = codes, variant, start
        #: Layers of the finest division so far.
        self.most = 0
        #: Two stretches alternate, alike enough to be two kinds of layer; taken together as one layer.
        self.ambiguous = False

    def divisions(self) -> Iterator[tuple[int, ...]]:
        """The index of each layer's first op, for every division that may explain the sequence; the finest first."""
        seen: set[tuple[int, ...]] = set()
        for token in _candidates(self.codes) if self.start is None else iter([self.start]):
            cut = _cut(self.codes, np.flatnonzero(self.codes == token))
            if not isinstance(cut, _Cut):
                self.ambiguous |= cut
                continue
            self.most = max(self.most, cut.score)
            # A cut may lack the layer that lost its kernel, and have another one whole.
            if cut.score >= self.most - 1:
                yield from self._in_all_phases(cut.positions, seen)

    def _in_all_phases(self, positions: Ints, seen: set[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
        """A division, and the same one with all beginnings moved back to an op that comes before each of them."""
        waiting = [tuple(positions.tolist())]
        while waiting and len(seen) < _MOST_DIVISIONS:
            bounds = waiting.pop(0)
            if bounds in seen:
                continue
            seen.add(bounds)
            yield bounds
            if self.start is not None:
                return
            first = bounds[0]
            for back in range(1, min(first, _MOST_BACK) + 1):
                moved = _moved(self.codes, np.array(bounds, dtype=np.int64), first - back, self.variant)
                if moved is not None and isinstance(_cut(self.codes, moved), _Cut):
                    waiting.append(tuple(moved.tolist()))


def _candidates(codes: Ints) -> Iterator[int]:
    """Codes that occur often enough; of those that occur equally often, the earliest few."""
    unique, first, counts = np.unique(codes, return_index=True, return_counts=True)
    often = np.flatnonzero(counts >= _MIN_LAYERS)
    often = often[np.lexsort((first[often], -counts[often]))]
    sizes, groups = np.unique(counts[often], return_counts=True)
    each = max(2, _CANDIDATES // max(len(sizes), 1))
    rank = np.arange(len(often)) - np.repeat(np.cumsum(groups[::-1]) - groups[::-1], groups[::-1])
    return iter(unique[often[rank < each]][:_CANDIDATES].tolist())


def _cut(codes: Ints, positions: Ints) -> _Cut | bool:
    """Judge the cut before each of `positions`.

    Returns:
        the cut; or, where it is no good, whether its stretches alternate and are nearly alike.
    """
    if len(positions) < _MIN_LAYERS:
        return False
    sequence = tuple(codes.tolist())
    edges = [*positions.tolist(), len(sequence)]
    stretches = [sequence[a:b] for a, b in itertools.pairwise(edges)]
    kinds = repeated_kinds(stretches)
    if not kinds or len(kinds) > _MAX_KINDS or max(map(len, kinds)) < 2:
        return False
    index = {kind: i for i, kind in enumerate(kinds)}
    of = [index.get(stretch, -1) for stretch in stretches]
    if of[-1] < 0:
        begun = max((k for k in kinds if stretches[-1][: len(k)] == k), key=len, default=None)
        of[-1] = -1 if begun is None else index[begun]
    nearest = [i if i >= 0 else _nearest(stretch, kinds) for i, stretch in zip(of, stretches, strict=True)]
    if sum(i >= 0 for i in nearest) < _REGULAR_SHARE * len(of):
        return False
    pairs = [(i, j) for i, j in itertools.pairwise(nearest) if min(i, j) >= 0]
    alike = {(i, j): similarity(kinds[i], kinds[j]) for i, j in set(pairs)}
    if not pairs or min(alike.values()) < RELATED:
        return False
    siblings = {(i, j) for i, j in alike if alike[i, j] >= SAME_KIND or shared_run(kinds[i], kinds[j]) >= _SIBLING_RUN}
    if sum(pair in siblings for pair in pairs) < _ALIKE_NEIGHBOURS * len(pairs):
        return min(alike.values()) >= _AMBIGUOUS
    # How the last stretch ends depends on where in the layer the cut is, so it does not count.
    return _Cut(positions, sum(i >= 0 for i in nearest[:-1]))


def _nearest(stretch: Stretch, kinds: Sequence[Stretch]) -> int:
    """The kind of which `stretch` is an irregular layer, -1 for none."""
    best = max(range(len(kinds)), key=lambda i: similarity(stretch, kinds[i]))
    return best if similarity(stretch, kinds[best]) >= SAME_KIND else -1


def _moved(codes: Ints, positions: Ints, to: int, variant: Callable[[int, int], bool]) -> Ints | None:
    """The first beginning moved to op `to`, each to the last op of that name before it.

    None where too many layers have no such op, or the first has a later one. A layer that lost it keeps its beginning.
    """
    before = int(codes[to])
    if before in codes[to + 1 : positions[0]]:
        return None
    at = np.flatnonzero(codes == before)
    at = at[np.minimum(np.searchsorted(at, positions), len(at)) - 1]
    inside = np.r_[True, at[1:] > positions[:-1]]
    at[0] = to
    # A layer that lost its own such op may have one of its predecessor's: then what follows it is like no other's.
    heads = [tuple(codes[a:b].tolist()) for a, b in zip(at.tolist(), positions.tolist(), strict=True)]
    counts = Counter(heads)
    inside[1:] &= np.array([counts[head] > 1 for head in heads[1:]], dtype=np.bool_)
    if np.count_nonzero(~inside) <= _UNLIKE_SHARE * len(positions):
        return np.where(inside, at, positions)
    ahead = codes[positions[1:] - 1]
    usual = int(np.bincount(ahead).argmax())
    same = np.r_[True, ahead == usual]
    if to == positions[0] - 1 and np.count_nonzero(~same) <= _UNLIKE_SHARE * len(positions) and variant(before, usual):
        moved = np.where(same, positions - 1, positions)
        return moved if (np.diff(moved) > 0).all() else None
    return None


def _once_in_each(kinds: Sequence[Stretch]) -> list[int]:
    """The codes that occur exactly once in every kind, in the order of the first kind."""
    return [code for code in kinds[0] if all(kind.count(code) == 1 for kind in kinds)]
