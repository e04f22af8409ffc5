"""A step divided into layers: which op is in which, and how far the division can be trusted."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from profkit.attribution.fits import Fit, Stretch
from profkit.attribution.similarity import last_matched, shared_length

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
