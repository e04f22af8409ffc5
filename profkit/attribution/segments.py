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

from profkit.attribution.similarity import last_matched, shared_length

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
    """

    layer: Ints
    kinds: Sequence[Stretch]
    kind: Sequence[int]
    irregular: Sequence[int]

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
    kinds = repeated_kinds(stretches) or (list(dict.fromkeys(stretches[:-1])) if given else [])
    if not kinds:
        return Misfit("no stretch between two beginnings occurs twice")
    fits = [_fit(stretch, kinds, variant) for stretch in stretches]
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
    if _resembles(sequence[: edges[first]][-max(map(len, kinds)) :], kinds):
        if not given:
            return Misfit("what precedes the first layer looks like a part of one more")
        return _labelled(sequence, edges, kept, first, kinds, (UNKNOWN, beyond))
    return _labelled(sequence, edges, kept, first, kinds, (PROLOGUE, beyond))


def repeated_kinds(stretches: Sequence[Stretch]) -> list[Stretch]:
    """The stretches that occur at least twice; the last one counts where a whole earlier one begins it."""
    counts = Counter(stretches[:-1])
    tail = stretches[-1]
    whole = max((s for s in counts if tail[: len(s)] == s), key=len, default=None)
    if whole is not None:
        counts[whole] += 1
    return [s for s, n in counts.items() if n >= 2]


@dataclass(frozen=True)
class _Fit:
    """How a stretch fits: its kind, how many of its ops are the layer's, and how.

    Args:
        exact: the layer's ops are the kind's, one for one.
        closed: the kind's last slot was seen, so that ops behind the layer are no part of it.
        own: like no known kind; a kind of its own.
    """

    kind: Stretch
    ops: int
    exact: bool = False
    closed: bool = False
    own: bool = False


def _fit(stretch: Stretch, kinds: Sequence[Stretch], variant: Callable[[int, int], bool]) -> _Fit | None:
    whole = max((k for k in kinds if stretch[: len(k)] == k), key=len, default=None)
    if whole is not None:
        return _Fit(whole, len(whole), exact=True, closed=True)
    nearest = max(kinds, key=lambda k: _fit_quality(stretch, k))
    # What lies behind the layer must not count against it, so the stretch is cut where the kind stops matching.
    ops, slots = last_matched(stretch, nearest)
    rest, missing = stretch[ops:], nearest[slots:]
    if missing and len(rest) == len(missing) and all(map(variant, rest, missing)):
        return _Fit(nearest, len(stretch), closed=True)
    alike = shared_length(stretch[:ops], nearest) / max(ops, len(nearest))
    if alike >= SAME_KIND:
        return _Fit(nearest, ops, closed=not missing)
    return _Fit(stretch, len(stretch), own=True) if is_own_kind(stretch, kinds) else None


def _as_given(fit: _Fit | None, stretch: Stretch, kinds: Sequence[Stretch], *, is_last: bool) -> _Fit:
    """The fit of a stretch that is a layer because the user says so; only where the last one ends is open."""
    if fit is not None and not (is_last and fit.own):
        return fit
    if not is_last:
        return _Fit(stretch, len(stretch), own=True)
    shared, kind = max(((_common_start(stretch, k), k) for k in kinds), key=lambda pair: pair[0])
    return _Fit(kind, shared)


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
        _run(stretch, kind) >= max(_LEAST_RUN, RELATED * max(len(stretch), len(kind)))
        and not holds(stretch, kind)
        and not holds(kind, stretch)
        for kind in kinds
    )


def _run(first: Stretch, second: Stretch) -> int:
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
    around: tuple[int, int],
) -> Layering:
    """Write the layers down; `around` is what ops before the first and behind the last stretch are."""
    layer: Ints = np.full(len(sequence), around[0], dtype=np.int64)
    order: dict[Stretch, int] = {}
    for number, fit in enumerate(fits):
        start, stop = edges[first + number], edges[first + number + 1]
        layer[start : start + fit.ops] = number
        order.setdefault(fit.kind, len(order))
        layer[start + fit.ops : stop] = UNKNOWN
    if fits[-1].closed:
        layer[edges[first + len(fits) - 1] + fits[-1].ops :] = EPILOGUE
    layer[edges[first + len(fits)] :] = around[1]
    tail = np.flatnonzero(layer == EPILOGUE)
    if len(tail) and _resembles(sequence[tail[0] :][: max(map(len, kinds))], kinds):
        layer[tail] = UNKNOWN
    irregular = tuple(number for number, fit in enumerate(fits) if not fit.exact)
    return Layering(layer, tuple(order), tuple(order[fit.kind] for fit in fits), irregular)


def _resembles(stretch: Stretch, kinds: Sequence[Stretch]) -> bool:
    return any(shared_length(stretch, kind) >= max(2, len(kind) / 2) for kind in kinds)


def layer_texts(layering: Layering) -> list[str]:
    """What each layer is called: ``layers.3``, and with its kind where there are several, ``layers.3.B``."""
    if len(layering.kinds) == 1:
        return [f"layers.{number}" for number in range(layering.count)]
    return [f"layers.{number}.{kind_letter(kind)}" for number, kind in enumerate(layering.kind)]


def kind_letter(kind: int) -> str:
    """A for the kind of the first layer, B for the next one, and so on; A1 behind Z."""
    turn, letter = divmod(kind, 26)
    return chr(ord("A") + letter) + (str(turn) if turn else "")
