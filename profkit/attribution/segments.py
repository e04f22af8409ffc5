"""From the places where layers begin to a layer for every op of one step: the part that `anchor` and `period` share.

A stretch runs from one beginning to the next. Stretches that occur at least twice are the *kinds* of layer; the others
are held against them. What is certain gets a layer, what is certainly before or after all layers gets that, and what
may belong to one layer or the next stays unknown.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from profkit.attribution.similarity import last_matched, shared_length, similarity

Ints = npt.NDArray[np.int64]
Stretch = tuple[int, ...]

#: Stand in `Layering.layer` for an op that belongs to no layer (the first three) or is not known to (the last).
PROLOGUE, EPILOGUE, BETWEEN, UNKNOWN = -1, -2, -3, -4

#: Above this similarity a stretch is a layer of a known kind that gained or lost a kernel: one edit in a layer of four
#: launches, the fewest of any recorded workload, leaves 3/4.
SAME_KIND = 0.75
#: Above this one it may be a layer of another kind (a dense layer among mixture-of-experts layers shares its
#: attention part); below, it has little to do with a layer.
RELATED = 0.3
#: So much of a layer behind the last one, from its beginning on, may be one more that lost its end.
_BEGUN = 1 / 3
#: What a first layer with an op too many weighs where a layer's op follows the last one: most likely that op ends the
#: last layer, and its twin ends the prologue.
_TURNED = 2
#: Fewer ops in a row than this are common by chance: norm and GEMM begin half of all blocks.
_LEAST_RUN = 3


@dataclass(frozen=True)
class Layering:
    """The layers of one step's op sequence.

    Args:
        layer: for each op its layer from 0, or one of the constants above.
        kinds: the op codes of each kind, in order of the kinds' first layers.
        kind: for each layer an index into `kinds`.
        irregular: layers that differ from their kind.
        alike: layers of a kind that others are of, too.
        doubt: why the whole division may be wrong; "" for no doubt.
        unexplained: ops that are in no layer for sure, in one and not in its kind, or in a kind of one layer only; and
            slots of a layer's kind that it lacks.
    """

    layer: Ints
    kinds: Sequence[Stretch]
    kind: Sequence[int]
    irregular: Sequence[int] = ()
    alike: int = 0
    unexplained: int = 0
    doubt: str = ""

    @property
    def count(self) -> int:
        """How many layers there are."""
        return len(self.kind)


@dataclass(frozen=True)
class Misfit:
    """Why a sequence has no layers: one clause, without a full stop."""

    reason: str


def label(
    codes: Ints,
    bounds: Sequence[int],
    variant: Callable[[int, int], bool],
    *,
    given: bool = False,
) -> Layering | Misfit:
    """Place every op of a sequence.

    Args:
        codes: the ops' names as integers, shape [ops].
        bounds: where layers begin, increasing.
        variant: whether two codes are variants of one kernel.
        given: the user says that layers begin there, so that every stretch is one, whatever it looks like. Otherwise
            a first stretch that is like no layer is prologue, and one in the middle contradicts the whole.
    """
    sequence = tuple(codes.tolist())
    edges = [*bounds, len(sequence)]
    stretches = [sequence[a:b] for a, b in itertools.pairwise(edges)]
    usual = Counter(s[0] for s in stretches).most_common(1)[0][0]
    if variant(stretches[0][0], usual):
        # The first layer's own variant of the kernel that begins the others makes it no other kind.
        stretches[0] = (usual, *stretches[0][1:])
    kinds = repeated_kinds(stretches) or (list(dict.fromkeys(stretches[:-1])) if given else [])
    if not kinds:
        return Misfit("no stretch between two beginnings occurs twice")
    distinct = {stretch: _fit(stretch, kinds, variant) for stretch in dict.fromkeys(stretches)}
    fits = [distinct[stretch] for stretch in stretches]
    if given:
        fits = [_as_given(fits[i], s, kinds, is_last=i == len(fits) - 1) for i, s in enumerate(stretches)]
    # A last stretch like no kind has no known end: nothing says where its layer would stop.
    last = max((i for i, fit in enumerate(fits) if fit is not None and not fit.own), default=-1) + 1
    first = 0
    while first < last and fits[first] is None:
        first += 1
    kept: list[_Fit] = []
    for position in range(first, last):
        fit = fits[position]
        if fit is None:
            return Misfit(f"the stretch of {len(stretches[position])} ops at op {edges[position]} is like no layer")
        kept.append(fit)
    if not kept:
        return Misfit("no stretch is like a layer")
    beyond = EPILOGUE if all(fit is None for fit in fits[last:]) else UNKNOWN
    return _labelled(sequence, edges, kept, first, kinds, beyond, given, variant)


def repeated_kinds(stretches: Sequence[Stretch]) -> list[Stretch]:
    """The kinds of layer: stretches that occur at least twice, the last one not counted, of which nobody knows the end.

    The heaviest such stretch is one of layers. What has little to do with any kind, or is a part of one, is none. What
    has a kind in it and more, time and again, is the layer of which that kind is a part: then there are no kinds.
    """
    counts = Counter(stretches[:-1])
    kept: list[Stretch] = []
    for kind in sorted((s for s, n in counts.items() if n >= 2), key=lambda s: -len(s) * counts[s]):
        if any(holds(kind, k) for k in kept):
            return []
        if not kept or any(similarity(kind, k) >= RELATED and not holds(k, kind) for k in kept):
            kept.append(kind)
    return kept


@dataclass(frozen=True)
class _Fit:
    """How a stretch fits: its kind, how many of its ops are the layer's, and how.

    Args:
        exact: the layer's ops are the kind's, one for one.
        missing: the kind's last slots that were not seen; none: ops behind the layer are no part of it.
        own: like no known kind; a kind of its own.
        edits: ops that the kind has not, and slots that the layer has not.
    """

    kind: Stretch
    ops: int
    exact: bool = False
    missing: Stretch = ()
    own: bool = False
    edits: int = 0


def _fit(stretch: Stretch, kinds: Sequence[Stretch], variant: Callable[[int, int], bool]) -> _Fit | None:
    whole = max((k for k in kinds if stretch[: len(k)] == k), key=len, default=None)
    if whole is not None:
        return _Fit(whole, len(whole), exact=True)
    nearest = max(kinds, key=lambda k: _fit_quality(stretch, k))
    # What lies behind the layer must not count against it, so the stretch is cut where the kind stops matching.
    ops, slots = last_matched(stretch, nearest)
    rest, missing = stretch[ops:], nearest[slots:]
    shared = shared_length(stretch[:ops], nearest)
    if missing and len(rest) == len(missing) and all(map(variant, rest, missing)):
        return _Fit(nearest, len(stretch), edits=ops + len(nearest) - 2 * shared - len(missing))
    if shared / max(ops, len(nearest)) >= SAME_KIND:
        return _Fit(nearest, ops, missing=missing, edits=ops + len(nearest) - 2 * shared)
    if not is_own_kind(stretch, kinds):
        return None
    return _Fit(stretch, len(stretch), own=True, edits=len(stretch) - shared_length(stretch, nearest))


def _as_given(fit: _Fit | None, stretch: Stretch, kinds: Sequence[Stretch], *, is_last: bool) -> _Fit:
    """The fit of a stretch that is a layer because the user says so; only where the last one ends is open."""
    if fit is not None and not (is_last and fit.own):
        return fit
    if not is_last:
        return _Fit(stretch, len(stretch), own=True)
    shared, kind = max(((_common_start(stretch, k), k) for k in kinds), key=lambda pair: pair[0])
    return _Fit(kind, shared, missing=kind[shared:])


def _common_start(first: Stretch, second: Stretch) -> int:
    pairs = enumerate(zip(first, second, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(first), len(second)))


def _fit_quality(stretch: Stretch, kind: Stretch) -> float:
    ops, _ = last_matched(stretch, kind)
    return shared_length(stretch[:ops], kind) / max(ops, len(kind))


def is_own_kind(stretch: Stretch, kinds: Sequence[Stretch]) -> bool:
    """Whether `stretch` can be one layer of a kind that occurs once.

    It begins or ends as a kind does, as a dense layer has the attention part of the other layers; and neither is the
    other with more around it, as two layers that lost the border between them would be.
    """
    return any(
        shared_run(stretch, kind) >= max(_LEAST_RUN, RELATED * max(len(stretch), len(kind)))
        and not holds(stretch, kind)
        and not holds(kind, stretch)
        and not _repeats(stretch, kind)
        for kind in kinds
    )


def _repeats(stretch: Stretch, kind: Stretch) -> bool:
    """Whether much of what runs once in the kind runs more often in `stretch`: it is two layers."""
    once = [code for code in kind if kind.count(code) == 1]
    again = sum(stretch.count(code) > 1 for code in once)
    return again >= 2 or 2 * again > len(once)


def shared_run(first: Stretch, second: Stretch) -> int:
    """The ops in a row that both begin with, or both end with, whichever is more."""
    return max(_common_start(first, second), _common_start(first[::-1], second[::-1]))


def holds(longer: Stretch, shorter: Stretch) -> bool:
    """Whether `longer` has most of `shorter` in it and much more: not two kinds of layer, but whole and part."""
    return len(longer) * SAME_KIND > len(shorter) and shared_length(longer, shorter) >= SAME_KIND * len(shorter)


def _labelled(
    sequence: Stretch,
    edges: Sequence[int],
    fits: Sequence[_Fit],
    first: int,
    kinds: Sequence[Stretch],
    beyond: int,
    given: bool,
    variant: Callable[[int, int], bool],
) -> Layering:
    """Write the layers down; `beyond` is what ops of the stretches behind the last layer's are."""
    layer: Ints = np.full(len(sequence), PROLOGUE, dtype=np.int64)
    doubt = ""
    if _resembles(sequence[: edges[first]][-max(map(len, kinds)) :], kinds):
        if given:
            layer[: edges[first]] = UNKNOWN
        else:
            doubt = "what precedes the first layer looks like a part of one more"
    elif not given and _lacks(sequence[edges[first] :][: fits[0].ops], fits[0].kind) & set(sequence[: edges[first]]):
        doubt = "the first layer lacks a kernel that precedes it"
    order: dict[Stretch, int] = {}
    for number, fit in enumerate(fits):
        start, stop = edges[first + number], edges[first + number + 1]
        layer[start : start + fit.ops] = number
        order.setdefault(fit.kind, len(order))
        layer[start + fit.ops : stop] = UNKNOWN
        if not given and number < len(fits) - 1 and _resembles(sequence[start + fit.ops : stop], kinds):
            doubt = f"what lies between layers {number} and {number + 1} looks like a part of one more"
    if not fits[-1].missing:
        layer[edges[first + len(fits) - 1] + fits[-1].ops :] = EPILOGUE
    layer[edges[first + len(fits)] :] = beyond
    longest = max(map(len, kinds))
    begun, spared = _begun(sequence[edges[first + len(fits)] :][:longest], fits[-1], kinds)
    outside = Counter(sequence[i] for i in np.flatnonzero(layer < 0).tolist())
    like_layers = {c for c in outside if any(variant(c, k) for k in set(itertools.chain(*kinds)))}
    unexplained = sum(fit.edits for fit in fits) + sum(outside[c] for c in like_layers) - spared
    behind = edges[first + len(fits) - 1] + fits[-1].ops
    if sequence[behind : behind + 1] and sequence[behind] in like_layers and not given:
        if _lacks(fits[0].kind, (fits[0].kind[0], *sequence[edges[first] + 1 : edges[first] + fits[0].ops])):
            unexplained += _TURNED
        elif edges[first] and sequence[edges[first] - 1] in like_layers and unexplained > len(begun) + _TURNED:
            doubt = "parts of a layer lie before the first and behind the last one"
    tail = np.flatnonzero(layer == EPILOGUE)
    # What follows some layer in the middle may be the end of a longer kind, and then of the last one, too.
    loose = {sequence[i] for i in np.flatnonzero(layer[: edges[first + len(fits) - 1]] == UNKNOWN).tolist()}
    for i in itertools.takewhile(lambda i: sequence[i] in loose, tail.tolist()):
        layer[i] = UNKNOWN
    if len(tail) and _resembles(sequence[tail[0] :][:longest], kinds):
        layer[tail] = UNKNOWN
        doubt = "" if given or begun else "what follows the last layer looks like a part of one more"
    if begun:
        layer[np.flatnonzero(layer == EPILOGUE)] = UNKNOWN
        if not given:
            _leave_ambiguous(sequence, edges[first : first + len(fits) + 1], begun, layer)
            layer[max(edges[first] - longest, 0) : edges[first]] = UNKNOWN
    return Layering(
        layer,
        tuple(order),
        tuple(order[fit.kind] for fit in fits),
        tuple(number for number, fit in enumerate(fits) if not fit.exact),
        alike=sum(not fit.own for fit in fits),
        unexplained=unexplained,
        doubt=doubt,
    )


def _begun(tail: Stretch, last: _Fit, kinds: Sequence[Stretch]) -> tuple[Stretch, int]:
    """How a layer at the end begins that lacks its end: the last layer or, where half a layer follows it, what follows.

    Returns:
        the slots that it has, and by how much a layer there explains more ops than it lacks slots.
    """
    for kind in kinds:
        shared = shared_length(tail, kind)
        if shared >= max(2, len(kind) * _BEGUN):
            return kind[: last_matched(tail, kind)[1]], 2 * shared - len(kind)
    return last.kind[: len(last.kind) - len(last.missing)] if last.missing else (), 0


def _leave_ambiguous(sequence: Stretch, edges: Sequence[int], begun: Stretch, layer: Ints) -> None:
    """Forget what follows, in every layer, the part with which the last one begins: that might as well come first in
    every layer but the first."""
    known: dict[Stretch, int] = {}
    for start, end in itertools.pairwise(edges):
        stretch = sequence[start:end]
        if stretch not in known:
            known[stretch] = last_matched(stretch, begun)[0]
        layer[start + known[stretch] : end] = UNKNOWN


def _lacks(ops: Stretch, other: Stretch) -> set[int]:
    """What `ops` have not, or not as often, as `other`."""
    return set(Counter(other) - Counter(ops))


def _resembles(stretch: Stretch, kinds: Sequence[Stretch]) -> bool:
    return any(shared_length(stretch, kind) >= len(kind) / 2 for kind in kinds)


def layer_texts(layering: Layering) -> list[str]:
    """What each layer is called: ``layers.3``, and with its kind where there are several, ``layers.3.B``."""
    if len(layering.kinds) == 1:
        return [f"layers.{number}" for number in range(layering.count)]
    return [f"layers.{number}.{kind_letter(kind)}" for number, kind in enumerate(layering.kind)]


def kind_letter(kind: int) -> str:
    """A for the kind of the first layer, B for the next one, and so on; A1 behind Z."""
    turn, letter = divmod(kind, 26)
    return chr(ord("A") + letter) + (str(turn) if turn else "")
