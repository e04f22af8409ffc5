"""The rows of a comparison: one launch slot of alike layers, before and after, summed over these layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit.comparison.align import ABSENT, scope_column
from profkit.comparison.model import Group, Launch, Row
from profkit.model.census import EXTENT, EXTENTS, SHAPE, KindCensus, held_by_layer
from profkit.model.names import display
from profkit.model.trace import NONE

Ints = npt.NDArray[np.int64]


def group_layers(before: KindCensus, after: KindCensus, pairs: Sequence[tuple[int, int]]) -> list[Group]:
    """Pairs of layers by what they hold on both sides: of a group's layers every number is the same in each.

    Args:
        pairs: rows of `layers` on either side.
    """
    held = [held_by_layer(c.slots[c.slots["selected"]], len(c.layers), "canonical", "op_kind") for c in (before, after)]
    groups: dict[object, list[tuple[int, int]]] = {}
    for pair in pairs:
        key = tuple(frozenset(side[row].items()) for side, row in zip(held, pair, strict=True))
        stack = before.layers["stack"].iat[pair[0]]
        groups.setdefault((bool(before.layers["selected"].iat[pair[0]]), stack, key), []).append(pair)
    found = []
    for index, members in enumerate(groups.values()):
        first = members[0]
        found.append(
            Group(
                index=index,
                selected=bool(before.layers["selected"].iat[first[0]]),
                stack=str(before.layers["stack"].iat[first[0]]),
                pairs=tuple(members),
                names=tuple(layer_name(before, b) for b, _ in members),
                ranks=before.layers["rank"].iloc[[b for b, _ in members]].tolist(),
                before={(name, kind): launches for (name, kind), launches in held[0][first[0]].items()},
                after={(name, kind): launches for (name, kind), launches in held[1][first[1]].items()},
            )
        )
    return found


def layer_name(census: KindCensus, row: int) -> str:
    """A layer's number, with its rank and its module where there are several."""
    layers = census.layers
    name = str(layers["number"].iat[row])
    if layers["stack"].nunique() > 1:
        name = str(layers["module"].iat[row]).replace("#", name)
    return f"{name} of rank {layers['rank'].iat[row]}" if census.ranks > 1 else name


_TOLD = ("inside", "name", "canonical", "op_kind", "selected")


def layer_rows(before: KindCensus, after: KindCensus, slots: pd.DataFrame, groups: Sequence[Group]) -> list[Row]:
    """Sum aligned slots over the layers of a group.

    Args:
        slots: from `align.align`.

    Returns:
        the rows, group by group, in order of appearance.
    """
    sides = (before, after)
    group_of = np.full(len(before.layers), -1, dtype=np.int64)
    group_of_after = np.full(len(after.layers), -1, dtype=np.int64)
    for group in groups:
        group_of[[b for b, _ in group.pairs]] = group.index
        group_of_after[[a for _, a in group.pairs]] = group.index
    index = [slots["before"].to_numpy(), slots["after"].to_numpy()]
    present = [rows != ABSENT for rows in index]
    # A label says all that makes two aligned pairs of slots one row; absent sides have a label of their own.
    labels = [_label_codes(c, rows, there) for c, rows, there in zip(sides, index, present, strict=True)]
    layer = [c.slots["layer"].to_numpy() for c in sides]
    group = np.where(present[0], group_of[layer[0][index[0]]], group_of_after[layer[1][index[1]]])
    keys = np.stack([group, *labels])
    _, first, codes = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    codes = codes.reshape(-1)
    count = len(first)
    order = np.argsort(codes, kind="stable")
    edges = np.searchsorted(codes[order], np.arange(count + 1))
    places = [_positions(c) for c in sides]
    lanes = [_lanes(c) for c in sides]
    reshaped = _reshaped(sides, index, present)
    sums = [_side_sums(rows, there, codes, c, count) for c, rows, there in zip(sides, index, present, strict=True)]
    known_as = [c.slots[[*_TOLD, *SHAPE]].to_dict("records") for c in sides]
    rows: list[Row] = []
    for code in sorted(range(count), key=lambda code: (int(group[first[code]]), int(first[code]))):
        members = order[edges[code] : edges[code + 1]]
        other_shape = members[reshaped[members]]
        # Where a launch has another shape in some layers only, these stand for the row.
        at = int(other_shape[0] if len(other_shape) else first[code])
        slot_before, slot_after = (
            own[int(r[at])] if there[at] else None for own, r, there in zip(known_as, index, present, strict=True)
        )
        slot = slot_before if slot_after is None else slot_after
        assert slot is not None  # a pair has at least one side
        known = slot if slot_before is None else slot_before
        renamed = slot["canonical"] != known["canonical"]
        shapes = [{} if own is None else {name: str(own[name]) for name in SHAPE} for own in (slot_before, slot_after)]
        rows.append(
            Row(
                where=str(slot["inside"]),
                name=display(str(slot["canonical"])),
                name_before=display(str(known["canonical"])) if renamed else None,
                recorded=str((slot if renamed else known)["name"]),
                recorded_before=str(known["name"]) if renamed else None,
                canonical=str(known["canonical"]),
                op_kind=str(slot["op_kind"]),
                layers_before=int(sums[0][0][code]),
                layers_after=int(sums[1][0][code]),
                launches_before=int(sums[0][1][code]),
                launches_after=int(sums[1][1][code]),
                ns_before=int(sums[0][2][code].sum()),
                ns_after=int(sums[1][2][code].sum()),
                step_ns_before=sums[0][2][code],
                step_ns_after=sums[1][2][code],
                selected=bool(known["selected"]),
                group=int(group[at]),
                shape_before=shapes[0],
                shape_after=shapes[1],
                layers_reshaped=len(other_shape),
                lane=int(lanes[0][index[0][at]] if present[0][at] else lanes[1][index[1][at]]),
                position_before=places[0][int(index[0][at])] if present[0][at] else None,
                position_after=places[1][int(index[1][at])] if present[1][at] else None,
                slots=(index[0][members], index[1][members]),
            )
        )
    return rows


def _positions(census: KindCensus) -> list[tuple[int, int]]:
    """The place of each slot in its layer, from 1, and how many places the layer has."""
    by_layer = census.slots.groupby("layer")["launches"]
    return list(zip((by_layer.cumcount() + 1).tolist(), by_layer.transform("size").tolist(), strict=True))


def _lanes(census: KindCensus) -> Ints:
    """The stream of each slot as its place among those of the layer, by how many launches they have."""
    slots = census.slots[["layer", "stream"]]
    held = slots.groupby(["layer", "stream"], sort=False).size().rename("held").reset_index()
    held = held.sort_values("held", ascending=False, kind="stable")
    held["lane"] = held.groupby("layer").cumcount()
    return slots.merge(held, how="left", on=["layer", "stream"])["lane"].to_numpy().astype(np.int64)


def _reshaped(
    sides: tuple[KindCensus, KindCensus], index: Sequence[Ints], present: Sequence[npt.NDArray[np.bool_]]
) -> npt.NDArray[np.bool_]:
    """Whether the extent of both slots of a pair is known and differs."""
    found = np.zeros(len(index[0]), dtype=np.bool_)
    both = np.flatnonzero(present[0] & present[1])
    for name in EXTENT:
        before, after = (c.slots[name].to_numpy()[rows[both]] for c, rows in zip(sides, index, strict=True))
        unknown = (before == "") | (after == "") | (before == NONE) | (after == NONE)
        found[both] |= (before != after) & ~unknown
    return found


def _label_codes(census: KindCensus, rows: Ints, there: npt.NDArray[np.bool_]) -> Ints:
    slots = census.slots
    columns = [scope_column(slots), "canonical", "op_kind", "occurrence", "selected"]
    codes, _ = pd.factorize(pd.MultiIndex.from_frame(slots[columns]))
    return np.where(there, np.asarray(codes)[rows] if len(codes) else ABSENT, ABSENT)


def _side_sums(
    slot: Ints, there: npt.NDArray[np.bool_], codes: npt.NDArray[np.intp], census: KindCensus, count: int
) -> tuple[Ints, Ints, Ints]:
    """Layers, launches and nanoseconds by step of each row on one side."""
    layers = np.bincount(codes[there], minlength=count)
    weights = census.slots["launches"].to_numpy()[slot[there]]
    launches = np.bincount(codes[there], weights=weights, minlength=count).astype(np.int64)
    ns = np.zeros((count, census.kind.steps), dtype=np.int64)
    np.add.at(ns, codes[there], census.slot_ns[slot[there]])
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
    shape: Mapping[str, str]


def _named_sums(table: pd.DataFrame, by_step: Ints, where: str) -> dict[Launch, _NamedSum]:
    found: dict[Launch, _NamedSum] = {}
    for (canonical, op_kind), group in table.groupby(["canonical", "op_kind"], sort=False):
        found[str(canonical), str(op_kind)] = _NamedSum(
            where=tuple(dict.fromkeys(group[where])),
            recorded=str(group["name"].iloc[0]),
            launches=int(group["launches"].sum()),
            step_ns=by_step[group.index.to_numpy()].sum(axis=0).astype(np.int64),
            shape={name: _extent(group, column, name) for column, name in EXTENTS.items()},
        )
    return found


def _extent(group: pd.DataFrame, column: str, name: str) -> str:
    """All grids, or bytes, of launches of one name; "" where the recording does not say of one."""
    told = [str(value) for value in group[column if column in group else name]]
    return "" if not {"", str(NONE)}.isdisjoint(told) else ", ".join(sorted(told))


def _rows_by_name(sides: Sequence[Mapping[Launch, _NamedSum]], steps: tuple[int, int], *, outside: bool) -> list[Row]:
    absent = [_NamedSum((), "", 0, np.zeros(n, dtype=np.int64), {}) for n in steps]
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
                shape_before=b.shape,
                shape_after=a.shape,
            )
        )
    return rows
