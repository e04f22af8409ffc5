"""From the places where layers begin to a layer for every op of one step: what `anchor` and `period` share.

A stretch runs from one beginning to the next. Stretches that occur at least twice are the *kinds* of layer; the others
are held against them. What is certain gets a layer, what is certainly before or after all layers gets that, and what
may belong to one layer or the next stays unknown.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

_DIGITS = re.compile(r"\d+")
#: A tile in a name (64x32) marks a GEMM: its neighbours by digits are other matrices, not variants of one kernel.
_TILE = re.compile(r"\d+x\d+")
#: Stretches longer than this are compared for equality only; no layer of a model launches as much.
_MAX_COMPARED = 4096


def shared_length(first: Sequence[int], second: Sequence[int]) -> int:
    """The length of the longest common subsequence, by bit-parallel rows: one big-integer step an element.

    Stretches of more than `_MAX_COMPARED` ops share nothing unless they are equal.
    """
    if first == second:
        return len(first)
    if max(len(first), len(second)) > _MAX_COMPARED:
        return 0
    positions: dict[int, int] = {}
    for index, code in enumerate(first):
        positions[code] = positions.get(code, 0) | 1 << index
    full = (1 << len(first)) - 1
    row = full
    for code in second:
        hits = row & positions.get(code, 0)
        row = ((row + hits) | (row - hits)) & full
    return len(first) - row.bit_count()


def similarity(first: Sequence[int], second: Sequence[int]) -> float:
    """Shared ops over the longer stretch's ops, from 0 to 1."""
    longer = max(len(first), len(second))
    return shared_length(first, second) / longer if longer else 1.0


def last_matched(stretch: Sequence[int], kind: Sequence[int]) -> tuple[int, int]:
    """Where a longest common subsequence that ends earliest in `stretch` ends.

    Returns:
        how many ops of `stretch` and how many of `kind` it takes; (0, 0) where they share nothing.
    """
    shared = shared_length(stretch, kind)
    if not shared:
        return 0, 0
    ops = _shortest_prefix(stretch, kind, shared)
    slots = _shortest_prefix(kind, stretch[:ops], shared)
    return ops, slots


def _shortest_prefix(stretch: Sequence[int], other: Sequence[int], shared: int) -> int:
    low, high = shared, len(stretch)
    while low < high:
        middle = (low + high) // 2
        if shared_length(stretch[:middle], other) >= shared:
            high = middle
        else:
            low = middle + 1
    return low


def is_variant(first: str, second: str) -> bool:
    """Whether two canonical names are one kernel template with other numbers or flags in it.

    A first layer's norm without the residual is such a variant of the other layers' norm. Names without template
    arguments number stages of one algorithm, which are different kernels.
    """
    if first == second:
        return True
    if not all("<" in name or name.startswith("_Z") for name in (first, second)):
        return False
    if _TILE.search(first) or _TILE.search(second):
        return False
    return _DIGITS.sub("", first) == _DIGITS.sub("", second)


#: The op codes of a stretch, in order.
Stretch = tuple[int, ...]

#: Above this similarity a stretch is a layer of a known kind that gained or lost a kernel: one edit in a layer of four
#: launches, the fewest of any recorded workload, leaves 3/4.
SAME_KIND = 0.75
#: Above this one it may be a layer of another kind (a dense layer among mixture-of-experts layers shares its
#: attention part); below, it has little to do with a layer.
RELATED = 0.3
#: Fewer ops in a row than this are common by chance: norm and GEMM begin half of all blocks.
_LEAST_RUN = 3


def repeated_kinds(stretches: Sequence[Stretch], *, given: bool = False) -> list[Stretch]:
    """The kinds of layer: stretches that occur at least twice, the last one not counted, of which nobody knows the end.

    The heaviest such stretch is one of layers. What has little to do with any kind, or is a part of one, is none. What
    has a kind in it and more, time and again, is the layer of which that kind is a part: then there are no kinds.

    Args:
        given: every stretch is a layer because the user says so, so kinds need have nothing to do with each other.
    """
    counts = Counter(stretches[:-1])
    kept: list[Stretch] = []
    for kind in sorted((s for s, n in counts.items() if n >= 2), key=lambda s: -len(s) * counts[s]):
        if any(holds(kind, k) for k in kept):
            return []
        if not kept or any((given or similarity(kind, k) >= RELATED) and not holds(k, kind) for k in kept):
            kept.append(kind)
    return kept


@dataclass(frozen=True)
class Fit:
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


def fit(stretch: Stretch, kinds: Sequence[Stretch], variant: Callable[[int, int], bool]) -> Fit | None:
    whole = max((k for k in kinds if stretch[: len(k)] == k), key=len, default=None)
    if whole is not None:
        return Fit(whole, len(whole), exact=True)
    nearest = max(kinds, key=lambda k: _fit_quality(stretch, k))
    # What lies behind the layer must not count against it, so the stretch is cut where the kind stops matching.
    ops, slots = last_matched(stretch, nearest)
    rest, missing = stretch[ops:], nearest[slots:]
    shared = shared_length(stretch[:ops], nearest)
    if missing and len(rest) == len(missing) and all(map(variant, rest, missing)):
        return Fit(nearest, len(stretch), edits=ops + len(nearest) - 2 * shared - len(missing))
    if shared / max(ops, len(nearest)) >= SAME_KIND:
        return Fit(nearest, ops, missing=missing, edits=ops + len(nearest) - 2 * shared)
    if not is_own_kind(stretch, kinds):
        return None
    return Fit(stretch, len(stretch), own=True, edits=len(stretch) - shared_length(stretch, nearest))


def as_given(fit: Fit | None, stretch: Stretch, kinds: Sequence[Stretch], *, is_last: bool) -> Fit:
    """The fit of a stretch that is a layer because the user says so; only where the last one ends is open."""
    if fit is not None and not (is_last and fit.own):
        return fit
    if not is_last:
        return Fit(stretch, len(stretch), own=True)
    shared, kind = max(((_common_start(stretch, k), k) for k in kinds), key=lambda pair: pair[0])
    return Fit(kind, shared, missing=kind[shared:])


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


Ints = npt.NDArray[np.int64]

#: Stand for an op that belongs to no layer (the first three) or is not known to (the last).
PROLOGUE, EPILOGUE, BETWEEN, UNKNOWN = -1, -2, -3, -4

#: So much of a layer behind the last one, from its beginning on, may be one more that lost its end.
_BEGUN = 1 / 3
#: What a first layer with an op too many weighs where a layer's op follows the last one: most likely that op ends the
#: last layer, and its twin ends the prologue.
_TURNED = 2


@dataclass(frozen=True)
class Division:
    """One way to divide a step.

    Args:
        sequence: the step's op codes.
        edges: where each layer's stretch begins, and where the last one ends.
        fits: of each stretch.
        kinds: the kinds of layer.
        beyond: what ops behind the last stretch are.
        given: the user says where layers begin.
        variant: whether two codes are variants of one kernel.
    """

    sequence: Stretch
    edges: Sequence[int]
    fits: Sequence[Fit]
    kinds: Sequence[Stretch]
    beyond: int
    given: bool
    variant: Callable[[int, int], bool]

    @cached_property
    def layer(self) -> Ints:
        """For each op its layer, or one of the constants above."""
        layer = self._drawn.copy()
        layer[self._loose_ends(layer)] = UNKNOWN
        if self.given and _resembles(self._before, self.kinds):
            layer[: self.edges[0]] = UNKNOWN
        if _resembles(self._behind, self.kinds) or self._begun[0]:
            layer[layer == EPILOGUE] = UNKNOWN
        if self._begun[0] and not self.given:
            self._leave_ambiguous(layer)
        return layer

    @cached_property
    def unexplained(self) -> int:
        """Edits of irregular layers, and ops outside that are like ops of layers."""
        outside = Counter(self.sequence[i] for i in np.flatnonzero(self._drawn < 0).tolist())
        count = sum(fit.edits for fit in self.fits) - self._begun[1]
        count += sum(n for code, n in outside.items() if self._is_layers(code))
        first = (self.fits[0].kind[0], *self._first_layer[1:])
        turned = self._is_layers(*self._behind[:1]) and bool(_lacks(self.fits[0].kind, first))
        return count + _TURNED * (turned and not self.given)

    @cached_property
    def doubt(self) -> str:
        """Why the numbering of the layers may be wrong, as a clause; "" for no doubt."""
        if self.given:
            return ""
        if _resembles(self._before, self.kinds):
            return "what precedes the first layer looks like a part of one more"
        if _lacks(self._first_layer, self.fits[0].kind) & set(self.sequence[: self.edges[0]]):
            return "the first layer lacks a kernel that precedes it"
        for number, (fit, (start, stop)) in enumerate(zip(self.fits, itertools.pairwise(self.edges), strict=True)):
            if number < len(self.fits) - 1 and _resembles(self.sequence[start + fit.ops : stop], self.kinds):
                return f"what lies between layers {number} and {number + 1} looks like a part of one more"
        if _resembles(self._behind, self.kinds) and not self._begun[0]:
            return "what follows the last layer looks like a part of one more"
        both = self._is_layers(*self._before[-1:]) and self._is_layers(*self._behind[:1])
        if both and self.unexplained > _TURNED + len(self._begun[0]):
            return "parts of a layer lie before the first and behind the last one"
        return ""

    @cached_property
    def _drawn(self) -> Ints:
        """The layers as the fits have them, before anything is taken back."""
        layer: Ints = np.full(len(self.sequence), PROLOGUE, dtype=np.int64)
        for number, (fit, (start, stop)) in enumerate(zip(self.fits, itertools.pairwise(self.edges), strict=True)):
            layer[start : start + fit.ops] = number
            layer[start + fit.ops : stop] = UNKNOWN
        if not self.fits[-1].missing:
            layer[self._end :] = EPILOGUE
        layer[self.edges[-1] :] = self.beyond
        return layer

    @property
    def _end(self) -> int:
        return self.edges[-2] + self.fits[-1].ops

    @property
    def _longest(self) -> int:
        return max(map(len, self.kinds))

    @property
    def _before(self) -> Stretch:
        return self.sequence[: self.edges[0]][-self._longest :]

    @property
    def _behind(self) -> Stretch:
        return self.sequence[self._end :][: self._longest]

    @property
    def _first_layer(self) -> Stretch:
        return self.sequence[self.edges[0] :][: self.fits[0].ops]

    def _is_layers(self, *codes: int) -> bool:
        """Whether layers have the kernel, or a variant of it; false without a code."""
        return any(self.variant(code, known) for code in codes for known in self._codes_of_layers)

    @cached_property
    def _codes_of_layers(self) -> frozenset[int]:
        return frozenset(itertools.chain(*self.kinds))

    def _loose_ends(self, layer: Ints) -> list[int]:
        """Ops right behind the last layer that also follow some layer in the middle: they may end a longer kind."""
        loose = {self.sequence[i] for i in np.flatnonzero(layer[: self.edges[-2]] == UNKNOWN).tolist()}
        tail = np.flatnonzero(layer == EPILOGUE).tolist()
        return list(itertools.takewhile(lambda i: self.sequence[i] in loose, tail))

    @cached_property
    def _begun(self) -> tuple[Stretch, int]:
        """How a layer at the end begins that lacks its end: the last layer or, where a part of one follows, that part.

        Returns:
            the slots that it has, and by how much a layer there explains more ops than it lacks slots.
        """
        tail = self.sequence[self.edges[-1] :][: self._longest]
        for kind in self.kinds:
            shared = shared_length(tail, kind)
            if shared >= max(2, len(kind) * _BEGUN):
                return kind[: last_matched(tail, kind)[1]], 2 * shared - len(kind)
        last = self.fits[-1]
        return last.kind[: len(last.kind) - len(last.missing)] if last.missing else (), 0

    def _leave_ambiguous(self, layer: Ints) -> None:
        """Forget what follows, in every layer, the part with which the last one begins: that might as well come first
        in every layer but the first."""
        known: dict[Stretch, int] = {}
        for start, end in itertools.pairwise(self.edges):
            stretch = self.sequence[start:end]
            if stretch not in known:
                known[stretch] = last_matched(stretch, self._begun[0])[0]
            layer[start + known[stretch] : end] = UNKNOWN
        layer[max(self.edges[0] - self._longest, 0) : self.edges[0]] = UNKNOWN


def _lacks(ops: Stretch, other: Stretch) -> set[int]:
    """What `ops` have not, or not as often, as `other`."""
    return set(Counter(other) - Counter(ops))


def _resembles(stretch: Stretch, kinds: Sequence[Stretch]) -> bool:
    return any(shared_length(stretch, kind) >= len(kind) / 2 for kind in kinds)


@dataclass(frozen=True)
class Layering:
    """The layers of one step's op sequence.

    Args:
        layer: for each op its layer from 0, or `PROLOGUE` or its like in `division`.
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
    kinds = repeated_kinds(stretches, given=given) or (list(dict.fromkeys(stretches[:-1])) if given else [])
    if not kinds:
        return Misfit("no stretch between two beginnings occurs twice")
    distinct = {stretch: fit(stretch, kinds, variant) for stretch in dict.fromkeys(stretches)}
    fits = [distinct[stretch] for stretch in stretches]
    if given:
        fits = [as_given(fits[i], s, kinds, is_last=i == len(fits) - 1) for i, s in enumerate(stretches)]
    # A last stretch like no kind has no known end: nothing says where its layer would stop.
    last = max((i for i, f in enumerate(fits) if f is not None and not f.own), default=-1) + 1
    first = 0
    while first < last and fits[first] is None:
        first += 1
    kept: list[Fit] = []
    for position in range(first, last):
        found = fits[position]
        if found is None:
            return Misfit(f"the stretch of {len(stretches[position])} ops at op {edges[position]} is like no layer")
        kept.append(found)
    if not kept:
        return Misfit("no stretch is like a layer")
    beyond = EPILOGUE if all(f is None for f in fits[last:]) else UNKNOWN
    division = Division(sequence, edges[first : last + 1], kept, kinds, beyond, given, variant)
    order = {kind: index for index, kind in enumerate(dict.fromkeys(f.kind for f in kept))}
    return Layering(
        division.layer,
        tuple(order),
        tuple(order[f.kind] for f in kept),
        tuple(number for number, f in enumerate(kept) if not f.exact),
        alike=sum(not f.own for f in kept),
        unexplained=division.unexplained,
        doubt=division.doubt,
    )


def layer_texts(layering: Layering) -> list[str]:
    """What each layer is called: ``layers.3``, and with its kind where there are several, ``layers.3.B``."""
    if len(layering.kinds) == 1:
        return [f"layers.{number}" for number in range(layering.count)]
    return [f"layers.{number}.{kind_letter(kind)}" for number, kind in enumerate(layering.kind)]


def kind_letter(kind: int) -> str:
    """A for the kind of the first layer, B for the next one, and so on; A1 behind Z."""
    turn, letter = divmod(kind, 26)
    return chr(ord("A") + letter) + (str(turn) if turn else "")
