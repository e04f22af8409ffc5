"""The repeating motif of an op sequence: where, by the sequence alone, the layers of a step begin.

Every kernel that occurs often enough is tried as the one that occurs once a layer. The sequence is cut before each of
its occurrences; the cut is good if the stretches repeat, and if neighbours are alike, as layers are and as the halves
of a layer are not. The finest good cut gives the layers. Its phase is a convention: layers begin at the first op of the
step that the repetition explains, so that a layer's leading norm is its own and not its predecessor's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from profkit.attribution.segments import RELATED, SAME_KIND, Ints, Misfit, Stretch, holds, repeated_kinds
from profkit.attribution.similarity import similarity

#: Two equal stretches can be chance; three in a step are taken for layers.
MIN_LAYERS = 3
#: Of neighbouring stretches, so many must be alike. Halves of layers alternate and never are; of the layers of a hybrid
#: model with one full-attention layer in four, half are.
_ALIKE_NEIGHBOURS = 0.25
#: Stretches of regular kinds among all; below, the cut explains too little to be worth a closer look.
_REGULAR_SHARE = 0.5
#: Kernels tried as the one that occurs once a layer: a layer of the recorded models has at most 40 different ones.
_CANDIDATES = 64
#: Kinds of layer in one step beyond which a cut is noise; models have up to four.
_MAX_KINDS = 16


@dataclass(frozen=True)
class Motif:
    """Where layers begin.

    Args:
        bounds: index of each layer's first op.
        ambiguous: two stretches alternate, alike enough to be two kinds of layer; taken together as one layer.
    """

    bounds: Sequence[int]
    ambiguous: bool


@dataclass(frozen=True)
class _Cut:
    positions: Ints
    kinds: Sequence[Stretch]
    score: tuple[int, int, int]


def find(codes: Ints, variant: Callable[[int, int], bool], start: int | None = None) -> Motif | Misfit:
    """Find the motif of a sequence.

    Args:
        codes: the ops' names as integers, shape [ops].
        variant: whether two codes are variants of one kernel.
        start: the code with which layers shall begin; None decides it by the convention above.
    """
    best: _Cut | None = None
    ambiguous = False
    for token in _candidates(codes) if start is None else iter([start]):
        cut = _cut(codes, np.flatnonzero(codes == token))
        if isinstance(cut, _Cut):
            if best is None or cut.score > best.score:
                best = cut
        else:
            ambiguous |= cut
    if best is None:
        return Misfit(f"no sequence of kernels repeats {MIN_LAYERS} times or more, as layers do")
    bounds = best.positions.tolist() if start is not None else _shifted(codes, best, variant)
    return Motif(bounds, ambiguous)


def _candidates(codes: Ints) -> Iterator[int]:
    """Codes that occur often enough; of those that occur equally often, the earliest few."""
    unique, first, counts = np.unique(codes, return_index=True, return_counts=True)
    often = np.flatnonzero(counts >= MIN_LAYERS)
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
    if len(positions) < MIN_LAYERS:
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
    regular = sum(i >= 0 for i in of)
    if regular < _REGULAR_SHARE * len(of):
        return False
    alike = {(i, j): similarity(kinds[i], kinds[j]) for i, j in set(itertools.pairwise(of)) if min(i, j) >= 0}
    neighbours = [alike[pair] for pair in itertools.pairwise(of) if pair in alike]
    if not neighbours or any(
        value < RELATED or (i != j and (holds(kinds[i], kinds[j]) or holds(kinds[j], kinds[i])))
        for (i, j), value in alike.items()
    ):
        return False
    if sum(value >= SAME_KIND for value in neighbours) < _ALIKE_NEIGHBOURS * len(neighbours):
        return min(neighbours) >= (RELATED + SAME_KIND) / 2
    # How the last stretch ends depends on where in the layer the cut is, so it counts for none and against none.
    near = sum(
        i < 0 and max(similarity(stretch, kind) for kind in kinds) >= SAME_KIND
        for i, stretch in zip(of[:-1], stretches[:-1], strict=True)
    )
    whole = sum(i >= 0 for i in of[:-1])
    odd = len(of) - 1 - whole
    return _Cut(positions, kinds, (whole + near, near - odd, -odd))


def _shifted(codes: Ints, cut: _Cut, variant: Callable[[int, int], bool]) -> list[int]:
    """Move every beginning back over the ops that end all kinds, as far as the ops before the first one allow."""
    shared = _common_ending(cut.kinds)
    positions = cut.positions
    first = int(positions[0])
    back = 0
    while back < len(shared) and back < first and variant(int(codes[first - 1 - back]), shared[-1 - back]):
        back += 1
    bounds = [first - back]
    for position in positions[1:].tolist():
        own = 0
        while own < back and int(codes[position - 1 - own]) == shared[-1 - own]:
            own += 1
        bounds.append(position - own)
    return bounds


def _common_ending(kinds: Sequence[Stretch]) -> Stretch:
    shortest = min(kinds, key=len)
    length = 0
    while length < len(shortest) - 1 and all(k[-1 - length] == shortest[-1 - length] for k in kinds):
        length += 1
    return shortest[len(shortest) - length :]


def once_in_each(kinds: Sequence[Stretch]) -> list[int]:
    """The codes that occur exactly once in every kind, in the order of the first kind."""
    return [code for code in kinds[0] if all(kind.count(code) == 1 for kind in kinds)]
