"""Alignment: which launch slot of the one run is which of the other, layer by layer, so that one extra kernel does not
shift the rest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from difflib import SequenceMatcher

import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit.model.census import KindCensus

Ints = npt.NDArray[np.int64]
#: What makes two slots the same launch: where it is in its layer, its canonical name, its kind.
SlotKey = tuple[str, str, str]
Pair = tuple[int, int]

#: Stands for "no slot on this side" in a pair.
ABSENT = -1
#: A column of `slots` that, where it is there, stands for `inside` when slots are paired.
PAIRING_SCOPE = "pairing_scope"


def align(before: KindCensus, after: KindCensus, layers: Sequence[tuple[int, int]]) -> pd.DataFrame:
    """Pair the slots of the two censuses.

    Args:
        layers: pairs of layer rows that stand for one layer of the model.

    Returns:
        columns before, after (rows of `slots`, `ABSENT` where a side has none) and replaced (paired by place, under
        another name), in the order of the layers and within a layer of the before side.
    """
    keys = [_keys_by_layer(before), _keys_by_layer(after)]
    known: dict[tuple[tuple[SlotKey, ...], tuple[SlotKey, ...]], list[tuple[int, int, bool]]] = {}
    rows: list[tuple[int, int, bool]] = []
    for layer_before, layer_after in layers:
        slots_before, keys_before = keys[0].get(layer_before, ((), ()))
        slots_after, keys_after = keys[1].get(layer_after, ((), ()))
        shape = (keys_before, keys_after)
        if shape not in known:
            known[shape] = _align_one(keys_before, keys_after)
        for b, a, replaced in known[shape]:
            rows.append((slots_before[b] if b >= 0 else ABSENT, slots_after[a] if a >= 0 else ABSENT, replaced))
    return pd.DataFrame(rows, columns=["before", "after", "replaced"]).astype(
        {"before": "int64", "after": "int64", "replaced": "bool"}
    )


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


def _align_one(before: tuple[SlotKey, ...], after: tuple[SlotKey, ...]) -> list[tuple[int, int, bool]]:
    matched = _in_order(before, after)
    matched |= _same_key_elsewhere(before, after, matched)
    matched |= _same_name_elsewhere(before, after, matched)
    replaced = _same_place(before, after, matched)
    to_after = {**matched, **replaced}
    rows = [(b, to_after.get(b, ABSENT), b in replaced) for b in range(len(before))]
    # An added slot stands before the next paired one: behind what was removed from the same gap.
    ahead: dict[int, list[int]] = defaultdict(list)
    before_of = {a: b for b, a in to_after.items()}
    anchor = len(before)
    for a in range(len(after) - 1, -1, -1):
        if a in before_of:
            anchor = before_of[a]
        else:
            ahead[anchor].insert(0, a)
    placed: list[tuple[int, int, bool]] = []
    for b in range(len(before) + 1):
        placed += [(ABSENT, a, False) for a in ahead[b]]
        placed += rows[b : b + 1]
    return placed


def _in_order(before: Sequence[SlotKey], after: Sequence[SlotKey]) -> dict[int, int]:
    blocks = SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    return {b + i: a + i for b, a, size in blocks for i in range(size)}


def _same_key_elsewhere(before: Sequence[SlotKey], after: Sequence[SlotKey], matched: dict[int, int]) -> dict[int, int]:
    """Slots left over on both sides with one key: launches that only changed their order."""
    free: dict[SlotKey, list[int]] = defaultdict(list)
    taken = set(matched.values())
    for a, key in enumerate(after):
        if a not in taken:
            free[key].append(a)
    return {b: free[key].pop(0) for b, key in enumerate(before) if b not in matched and free[key]}


def _same_name_elsewhere(
    before: Sequence[SlotKey], after: Sequence[SlotKey], matched: dict[int, int]
) -> dict[int, int]:
    """Slots left over on both sides with one name and kind: the same launch in a range of another name."""
    free: dict[tuple[str, str], list[int]] = defaultdict(list)
    taken = set(matched.values())
    for a, (_, name, op_kind) in enumerate(after):
        if a not in taken:
            free[name, op_kind].append(a)
    pairs: dict[int, int] = {}
    for b, (_, name, op_kind) in enumerate(before):
        if b not in matched and free[name, op_kind]:
            pairs[b] = free[name, op_kind].pop(0)
    return pairs


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
