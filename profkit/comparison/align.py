"""Pairing: which launch of the one side is which of the other. First by name, where the two spell it in different ways;
then by scope and layer; then slot by slot within a layer, so that one extra kernel does not shift the rest."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit.comparison.model import Reason
from profkit.model.census import KindCensus
from profkit.model.names import canonical, demangled
from profkit.model.wording import listed

#: A shorter text is a prefix of too much: ``void at::`` begins thousands of names.
_SHORTEST_CUT = 24
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_OPENING, _CLOSING = "<([{", ">)]}"
#: A reason lists at most this many names; a whole report of them helps nobody.
_LISTED = 3


@dataclass(frozen=True)
class Pairing:
    """Which names of the after side stand for names of the before side.

    Args:
        renamed: after's recorded name to before's.
        ambiguous: a name of either side to the several of the other side that it may stand for.
    """

    renamed: Mapping[str, str]
    ambiguous: Mapping[str, tuple[str, ...]]


def pair(before: Iterable[str], after: Iterable[str]) -> Pairing:
    """Pair the recorded names that have no partner of the same canonical name."""
    names = [{canonical(name): name for name in dict.fromkeys(side)} for side in (before, after)]
    left, right = ([own[c] for c in own if c not in other] for own, other in (names, names[::-1]))
    fits: dict[str, list[str]] = defaultdict(list)
    fits_back: dict[str, list[str]] = defaultdict(list)
    for one in left:
        for other in right:
            if may_be_one_kernel(one, other):
                fits[one].append(other)
                fits_back[other].append(one)
    renamed = {o[0]: b for b, o in fits.items() if len(o) == 1 and len(fits_back[o[0]]) == 1}
    several = {n: tuple(o) for side in (fits, fits_back) for n, o in side.items() if len(o) > 1}
    return Pairing(renamed, several)


def may_be_one_kernel(one: str, other: str) -> bool:
    """Whether one name may be a cut or bare spelling of the other."""
    one, other = demangled(one), demangled(other)
    short, long = sorted((one, other), key=len)
    if len(short) >= _SHORTEST_CUT and long.startswith(short) and _is_open(short):
        return True
    forms = {_form(one), _form(other)}
    return len(forms) == 2 and "cut" not in forms and _agree(_path(one), _path(other))


def _is_open(name: str) -> bool:
    """Whether a bracket was never closed, or the name ends in the middle of a qualification."""
    depth = sum((c in _OPENING) - (c in _CLOSING) for c in name.replace("->", "").replace("operator<", ""))
    return depth > 0 or name.endswith(":")


def _form(name: str) -> str:
    if _IDENTIFIER.fullmatch(name):
        return "bare"
    return "cut" if _is_open(name) else "demangled"


def _path(name: str) -> tuple[str, ...]:
    """The function's name behind its namespaces, without template arguments: ``("at", "native", "fill")``."""
    head = re.split(r"[<(]", name.replace("(anonymous namespace)::", ""), maxsplit=1)[0]
    return tuple(_IDENTIFIER.findall(head.split(" ")[-1]))


def _agree(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether the function is the same as far as both say; a bare name has no namespaces."""
    count = min(len(one), len(other))
    return count > 0 and one[-count:] == other[-count:]


def unify(before: KindCensus, after: KindCensus) -> tuple[KindCensus, tuple[Reason, ...]]:
    """`after` with the canonical names of `before` where `pair` finds one for them, and what is ambiguous."""
    pairing = pair(*(pd.concat([c.slots["name"], c.outside["name"]]).tolist() for c in (before, after)))
    reasons = tuple(
        Reason("ambiguous-name", f"{name} may stand for any of {len(fitting)}: {listed(fitting, _LISTED)}.")
        for name, fitting in pairing.ambiguous.items()
    )
    if not pairing.renamed:
        return after, reasons
    canonicals = {canonical(a): canonical(b) for a, b in pairing.renamed.items()}
    slots, outside = (t.assign(canonical=t["canonical"].replace(canonicals)) for t in (after.slots, after.outside))
    return replace(after, slots=slots, outside=outside), reasons


def comparable_scopes(before: KindCensus, after: KindCensus) -> tuple[KindCensus, KindCensus, list[Reason]]:
    """Both sides without the scopes inside their layers, if they share none: a range that only one side pushed, or
    pushed under another name, must not tear its launches from their partners."""
    scopes = [set(c.slots["inside"]) - {""} for c in (before, after)]
    if scopes[0] & scopes[1] or not scopes[0] | scopes[1]:
        return before, after, []
    message = "The two sides name no scope inside their layers alike, so launches are paired by name and order alone."
    return _without_scopes(before), _without_scopes(after), [Reason("scopes-ignored", message)]


def _without_scopes(census: KindCensus) -> KindCensus:
    slots = census.slots.assign(**{PAIRING_SCOPE: ""})
    slots["occurrence"] = slots.groupby(["layer", "canonical", "op_kind"], sort=False).cumcount()
    return replace(census, slots=slots)


def layer_pairs(before: KindCensus, after: KindCensus) -> tuple[list[tuple[int, int]], tuple[list[int], list[int]]]:
    """Layers in order, selected with selected and, where their numbers agree, the others with the others; and the
    layers of either side that are left without a partner."""
    pairs: list[tuple[int, int]] = []
    loose: tuple[list[int], list[int]] = ([], [])
    for wanted in (True, False):
        sides = [np.flatnonzero(c.layers["selected"].to_numpy() == wanted).tolist() for c in (before, after)]
        if len(sides[0]) == len(sides[1]):
            pairs += list(zip(*sides, strict=True))
        else:
            loose[0].extend(sides[0])
            loose[1].extend(sides[1])
    return sorted(pairs), loose


Ints = npt.NDArray[np.int64]
#: What makes two slots the same launch: where it is in its layer, its canonical name, its kind.
SlotKey = tuple[str, str, str]

#: Stands for "no slot on this side" in a pair.
ABSENT = -1
#: A column of `slots` that, where it is there, stands for `inside` when slots are paired.
PAIRING_SCOPE = "pairing_scope"


def align(before: KindCensus, after: KindCensus, layers: Sequence[tuple[int, int]]) -> pd.DataFrame:
    """Pair the slots of the two censuses.

    Args:
        layers: pairs of layer rows that stand for one layer of the model.

    Returns:
        columns before and after: rows of `slots`, `ABSENT` where a side has none, in the order of the layers and within
        a layer of the before side.
    """
    keys = [_keys_by_layer(before), _keys_by_layer(after)]
    known: dict[tuple[tuple[SlotKey, ...], tuple[SlotKey, ...]], list[tuple[int, int]]] = {}
    rows: list[tuple[int, int]] = []
    for layer_before, layer_after in layers:
        slots_before, keys_before = keys[0].get(layer_before, ((), ()))
        slots_after, keys_after = keys[1].get(layer_after, ((), ()))
        shape = (keys_before, keys_after)
        if shape not in known:
            known[shape] = _align_one(keys_before, keys_after)
        for b, a in known[shape]:
            rows.append((slots_before[b] if b >= 0 else ABSENT, slots_after[a] if a >= 0 else ABSENT))
    return pd.DataFrame(rows, columns=["before", "after"], dtype="int64")


def scope_column(slots: pd.DataFrame) -> str:
    """The column that says where in its layer a slot is, for pairing."""
    return PAIRING_SCOPE if PAIRING_SCOPE in slots else "inside"


def _keys_by_layer(census: KindCensus) -> dict[int, tuple[tuple[int, ...], tuple[SlotKey, ...]]]:
    slots = census.slots
    keys = list(zip(slots[scope_column(slots)], slots["canonical"], slots["op_kind"], strict=True))
    by_layer: dict[int, list[int]] = defaultdict(list)
    for row, layer in enumerate(slots["layer"].tolist()):
        by_layer[layer].append(row)
    return {layer: (tuple(rows), tuple(keys[r] for r in rows)) for layer, rows in by_layer.items()}


def _align_one(before: tuple[SlotKey, ...], after: tuple[SlotKey, ...]) -> list[tuple[int, int]]:
    matched = _in_order(before, after)
    # The same launch that only changed its order; then one that is in a range of another name.
    matched |= _elsewhere(before, after, matched, 0)
    matched |= _elsewhere(before, after, matched, 1)
    to_after = {**matched, **_same_place(before, after, matched)}
    rows = [(b, to_after.get(b, ABSENT)) for b in range(len(before))]
    # An added slot stands before the next paired one: behind what was removed from the same gap.
    ahead: dict[int, list[int]] = defaultdict(list)
    before_of = {a: b for b, a in to_after.items()}
    anchor = len(before)
    for a in range(len(after) - 1, -1, -1):
        if a in before_of:
            anchor = before_of[a]
        else:
            ahead[anchor].insert(0, a)
    placed: list[tuple[int, int]] = []
    for b in range(len(before) + 1):
        placed += [(ABSENT, a) for a in ahead[b]]
        placed += rows[b : b + 1]
    return placed


def _in_order(before: Sequence[SlotKey], after: Sequence[SlotKey]) -> dict[int, int]:
    blocks = SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    return {b + i: a + i for b, a, size in blocks for i in range(size)}


def _elsewhere(
    before: Sequence[SlotKey], after: Sequence[SlotKey], matched: Mapping[int, int], start: int
) -> dict[int, int]:
    """Slots left over on both sides whose keys are the same from `start` on, in order."""
    free: dict[tuple[str, ...], list[int]] = defaultdict(list)
    taken = set(matched.values())
    for a, key in enumerate(after):
        if a not in taken:
            free[key[start:]].append(a)
    return {b: free[key[start:]].pop(0) for b, key in enumerate(before) if b not in matched and free[key[start:]]}


def _same_place(before: Sequence[SlotKey], after: Sequence[SlotKey], matched: dict[int, int]) -> dict[int, int]:
    """One launch left over on either side of one named scope: the same launch under a new name."""
    left: dict[tuple[str, str], list[int]] = defaultdict(list)
    right: dict[tuple[str, str], list[int]] = defaultdict(list)
    taken = set(matched.values())
    for b, (inside, _, op_kind) in enumerate(before):
        if b not in matched and inside:
            left[inside, op_kind].append(b)
    for a, (inside, _, op_kind) in enumerate(after):
        if a not in taken and inside:
            right[inside, op_kind].append(a)
    return {b[0]: right[place][0] for place, b in left.items() if len(b) == 1 and len(right[place]) == 1}
