"""The rows of a comparison: one launch slot of the layer, before and after, summed over the layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit.comparison.align import ABSENT, scope_column
from profkit.comparison.model import Row
from profkit.model.census import KindCensus
from profkit.model.names import display

Ints = npt.NDArray[np.int64]


def layer_rows(before: KindCensus, after: KindCensus, pairs: pd.DataFrame) -> list[Row]:
    """Sum aligned slots over the layers.

    Args:
        pairs: from `align.align`.

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
        known = slot if slot_before is None else slot_before
        renamed = slot["canonical"] != known["canonical"]
        rows.append(
            Row(
                where=str(slot["inside"]),
                name=display(str(slot["canonical"])),
                name_before=display(str(known["canonical"])) if renamed else None,
                recorded=str((slot if renamed else known)["name"]),
                recorded_before=str(known["name"]) if renamed else None,
                canonical=str(known["canonical"]),
                op_kind=str(slot["op_kind"]),
                layers_before=int(sums[0][0][index]),
                layers_after=int(sums[1][0][index]),
                launches_before=int(sums[0][1][index]),
                launches_after=int(sums[1][1][index]),
                ns_before=int(sums[0][2][index].sum()),
                ns_after=int(sums[1][2][index].sum()),
                step_ns_before=sums[0][2][index],
                step_ns_after=sums[1][2][index],
                selected=bool(known["selected"]),
            )
        )
    return rows


def _label(slot: int, slots: pd.DataFrame) -> tuple[object, ...] | None:
    if slot == ABSENT:
        return None
    return tuple(slots[c].iat[slot] for c in (scope_column(slots), "canonical", "op_kind", "occurrence", "selected"))


def _side_sums(slot: Ints, codes: npt.NDArray[np.intp], census: KindCensus, count: int) -> tuple[Ints, Ints, Ints]:
    """Layers, launches and nanoseconds by step of each row on one side."""
    present = slot != ABSENT
    layers = np.bincount(codes[present], minlength=count)
    weights = census.slots["launches"].to_numpy()[slot[present]]
    launches = np.bincount(codes[present], weights=weights, minlength=count).astype(np.int64)
    ns = np.zeros((count, census.kind.steps), dtype=np.int64)
    np.add.at(ns, codes[present], census.slot_ns[slot[present]])
    return layers, launches, ns


def unpaired_rows(before: KindCensus, after: KindCensus, loose: tuple[list[int], list[int]]) -> list[Row]:
    """The launches of layers without a partner, paired by name alone and added up over those layers.

    Args:
        loose: rows of `layers` on either side.
    """
    sides = [
        _named_sums(c.slots[c.slots["layer"].isin(rows)], c.slot_ns, "inside")
        for c, rows in zip((before, after), loose, strict=True)
    ]
    return _rows_by_name(sides, (before.kind.steps, after.kind.steps), outside=False)


def outside_rows(before: KindCensus, after: KindCensus) -> list[Row]:
    """Once-a-step work, paired by name alone: a launch that leaves its range's name behind is still the same work."""
    sides = [_named_sums(c.outside, c.outside_ns, "where") for c in (before, after)]
    return _rows_by_name(sides, (before.kind.steps, after.kind.steps), outside=True)


@dataclass(frozen=True)
class _NamedSum:
    """What has one name on one side."""

    where: tuple[str, ...]
    recorded: str
    launches: int
    step_ns: Ints


def _named_sums(table: pd.DataFrame, by_step: Ints, where: str) -> dict[tuple[str, str], _NamedSum]:
    found: dict[tuple[str, str], _NamedSum] = {}
    for (canonical, op_kind), group in table.groupby(["canonical", "op_kind"], sort=False):
        found[str(canonical), str(op_kind)] = _NamedSum(
            where=tuple(dict.fromkeys(group[where])),
            recorded=str(group["name"].iloc[0]),
            launches=int(group["launches"].sum()),
            step_ns=by_step[group.index.to_numpy()].sum(axis=0).astype(np.int64),
        )
    return found


def _rows_by_name(
    sides: Sequence[Mapping[tuple[str, str], _NamedSum]],
    steps: tuple[int, int],
    *,
    outside: bool,
) -> list[Row]:
    absent = [_NamedSum((), "", 0, np.zeros(n, dtype=np.int64)) for n in steps]
    rows: list[Row] = []
    for key in dict.fromkeys([*sides[0], *sides[1]]):
        b, a = sides[0].get(key, absent[0]), sides[1].get(key, absent[1])
        rows.append(
            Row(
                where=", ".join(dict.fromkeys([*b.where, *a.where])),
                name=display(key[0]),
                name_before=None,
                recorded=b.recorded or a.recorded,
                recorded_before=None,
                canonical=key[0],
                op_kind=key[1],
                layers_before=0,
                layers_after=0,
                launches_before=b.launches,
                launches_after=a.launches,
                ns_before=int(b.step_ns.sum()),
                ns_after=int(a.step_ns.sum()),
                step_ns_before=b.step_ns,
                step_ns_after=a.step_ns,
                selected=False,
                outside=outside,
            )
        )
    return rows
