"""The rows of a comparison: one launch slot of the layer, before and after, summed over the layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit.accounting import KindCensus
from profkit.comparison.align import ABSENT

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Row:
    """One line of the comparison. Counts and nanoseconds are sums over a side's steps and layers.

    Args:
        where: path inside the layer, or the place outside layers.
        name: display name (after's where the launch was renamed; `name_before` is then set).
        recorded: the recorded name, before's if it has one.
        op_kind: kernel, memcpy or memset.
        layers_before, layers_after: in how many layers the slot exists.
        launches_before, launches_after: sums over steps and layers.
        ns_before, ns_after: likewise.
        step_ns_before, step_ns_after: by step, summed over layers, shape [steps].
        selected: the question is about this row.
    """

    where: str
    name: str
    name_before: str | None
    recorded: str
    canonical: str
    op_kind: str
    layers_before: int
    layers_after: int
    launches_before: int
    launches_after: int
    ns_before: int
    ns_after: int
    step_ns_before: Ints
    step_ns_after: Ints
    selected: bool


@dataclass(frozen=True)
class _Side:
    census: KindCensus
    display: Mapping[str, str]


def layer_rows(before: KindCensus, after: KindCensus, pairs: pd.DataFrame, display: Mapping[str, str]) -> list[Row]:
    """Sum aligned slots over the layers.

    Args:
        pairs: from `align.align`.
        display: canonical to display name, for both sides.

    Returns:
        the rows in order of appearance.
    """
    slots = (before.slots, after.slots)
    before_slot, after_slot = pairs["before"].to_numpy(), pairs["after"].to_numpy()
    labels = [
        (_label(b, slots[0]), _label(a, slots[1]))
        for b, a in zip(before_slot.tolist(), after_slot.tolist(), strict=True)
    ]
    codes, unique = pd.factorize(pd.Series(labels, dtype=object))
    count = len(unique)
    sums = [_side_sums(before_slot, codes, before, count), _side_sums(after_slot, codes, after, count)]
    rows: list[Row] = []
    for index in range(count):
        first = int(np.flatnonzero(codes == index)[0])
        b, a = int(before_slot[first]), int(after_slot[first])
        slot_before = slots[0].iloc[b] if b != ABSENT else None
        slot_after = slots[1].iloc[a] if a != ABSENT else None
        slot = slot_before if slot_after is None else slot_after
        assert slot is not None  # a pair has at least one side
        old_name = None
        if slot_before is not None and slot_after is not None and slot_before["canonical"] != slot_after["canonical"]:
            old_name = display[str(slot_before["canonical"])]
        recorded = slot if slot_before is None else slot_before
        rows.append(
            Row(
                where=str(slot["inside"]),
                name=display[str(slot["canonical"])],
                name_before=old_name,
                recorded=str(recorded["name"]),
                canonical=str(recorded["canonical"]),
                op_kind=str(slot["op_kind"]),
                layers_before=int(sums[0][0][index]),
                layers_after=int(sums[1][0][index]),
                launches_before=int(sums[0][1][index]),
                launches_after=int(sums[1][1][index]),
                ns_before=int(sums[0][2][index].sum()),
                ns_after=int(sums[1][2][index].sum()),
                step_ns_before=sums[0][2][index],
                step_ns_after=sums[1][2][index],
                selected=bool((slot if slot_before is None else slot_before)["selected"]),
            )
        )
    return rows


def _label(slot: int, slots: pd.DataFrame) -> tuple[object, ...] | None:
    if slot == ABSENT:
        return None
    return tuple(slots[c].iat[slot] for c in ("inside", "canonical", "op_kind", "occurrence", "selected"))


def _side_sums(slot: Ints, codes: npt.NDArray[np.intp], census: KindCensus, count: int) -> tuple[Ints, Ints, Ints]:
    """Layers, launches and nanoseconds by step of each row on one side."""
    present = slot != ABSENT
    layers = np.bincount(codes[present], minlength=count)
    weights = census.slots["launches"].to_numpy()[slot[present]]
    launches = np.bincount(codes[present], weights=weights, minlength=count).astype(np.int64)
    ns = np.zeros((count, census.kind.steps), dtype=np.int64)
    np.add.at(ns, codes[present], census.slot_ns[slot[present]])
    return layers, launches, ns


def outside_rows(before: KindCensus, after: KindCensus, display: Mapping[str, str]) -> list[Row]:
    """Once-a-step work, paired by name alone: a launch that leaves its range's name behind is still the same work."""
    sides: Sequence[tuple[KindCensus, dict[tuple[str, str], list[int]]]] = [(c, {}) for c in (before, after)]
    for census, by_name in sides:
        for row, key in enumerate(zip(census.outside["canonical"], census.outside["op_kind"], strict=True)):
            by_name.setdefault(key, []).append(row)
    rows: list[Row] = []
    for key in dict.fromkeys([*sides[0][1], *sides[1][1]]):
        numbers: list[tuple[int, Ints]] = []
        where: list[str] = []
        recorded: list[str] = []
        for census, by_name in sides:
            members = by_name.get(key, [])
            launches = int(census.outside["launches"].to_numpy()[members].sum())
            numbers.append((launches, census.outside_ns[members].sum(axis=0).astype(np.int64)))
            where += [str(census.outside["where"].iat[m]) for m in members]
            recorded += [str(census.outside["name"].iat[m]) for m in members]
        (launches_before, ns_before), (launches_after, ns_after) = numbers
        rows.append(
            Row(
                where=", ".join(dict.fromkeys(where)),
                name=display[key[0]],
                name_before=None,
                recorded=recorded[0],
                canonical=key[0],
                op_kind=key[1],
                layers_before=0,
                layers_after=0,
                launches_before=launches_before,
                launches_after=launches_after,
                ns_before=int(ns_before.sum()),
                ns_after=int(ns_after.sum()),
                step_ns_before=ns_before,
                step_ns_after=ns_after,
                selected=False,
            )
        )
    return rows
