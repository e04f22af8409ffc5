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

from profkit.attribution.division import EPILOGUE, UNKNOWN, Division, Ints
from profkit.attribution.fits import Fit, Stretch, as_given, fit, repeated_kinds


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
