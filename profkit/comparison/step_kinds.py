"""Which kind of step of the one side is which of the other, where a side replays several graphs."""

from __future__ import annotations

import dataclasses
from collections import Counter

from profkit.comparison.model import Input, Reason
from profkit.model.census import Census, KindCensus

#: Two kinds whose likeness to the other side differs by less are not told apart by their kernels.
_TELLING = 0.02


def matched(before: Input, after: Input) -> tuple[Input, list[Reason], list[Reason]]:
    """`after` with the kind of step that is most like the one chosen for `before`.

    Without ``--graph`` each side would report its longest kind, and the longest need not be the same graph twice.

    Returns:
        after; notes; and what forbids the comparison.
    """
    if any(r.census.selection.graph is not None or r.census.refusal is not None for r in (*before.runs, *after.runs)):
        return after, [], []
    if not before.census.kinds or all(len(_with_layers(run.census)) < 2 for run in (*before.runs, *after.runs)):
        return after, [], []
    wanted = before.census.chosen
    notes: list[Reason] = []
    runs: list[Input] = []
    for run in after.runs:
        index, reason = _most_like(wanted, before.census, run.census)
        if index is None:
            return after, notes, [] if reason is None else [reason]
        if reason is not None:
            notes.append(reason)
        runs.append(dataclasses.replace(run, census=dataclasses.replace(run.census, default=index), more=()))
    return dataclasses.replace(runs[0], label=after.label, more=tuple(runs[1:]), own=after.own), notes[:1], []


def _most_like(wanted: KindCensus, before: Census, after: Census) -> tuple[int | None, Reason | None]:
    candidates = _with_layers(after)
    if not candidates:
        return None, None
    likeness = {index: _likeness(wanted, after.kinds[index]) for index in candidates}
    best = max(likeness.values())
    alike = [index for index in candidates if best - likeness[index] < _TELLING]
    if len(alike) == 1:
        return alike[0], None
    peers = [i for i in _with_layers(before) if _likeness(wanted, before.kinds[i]) > 1 - _TELLING]
    if len(peers) == len(alike):
        # The same number of graphs with the same kernels on both sides: batch sizes, captured in one order.
        position = _by_id(before, peers).index(before.default)
        index = _by_id(after, alike)[position]
        message = (
            f"{len(alike)} kinds of step run the same kernels; {before.kinds[before.default].kind.id} is compared with "
            f"{after.kinds[index].kind.id} by the order of their capture. Choose with --graph."
        )
        return index, Reason("step-kind-by-order", message)
    shown = ", ".join(after.kinds[i].kind.id for i in alike)
    message = (
        f"Which kind of step is the same on both sides cannot be told ({shown} run the same kernels). Use --graph."
    )
    return None, Reason("other-step-kind", message)


def _with_layers(census: Census) -> list[int]:
    return [index for index, kind in enumerate(census.kinds) if len(kind.layers)]


def _by_id(census: Census, indices: list[int]) -> list[int]:
    def number(index: int) -> tuple[str, int]:
        word, _, rest = census.kinds[index].kind.id.partition(" ")
        digits = rest.split(" ")[0]
        return word, int(digits) if digits.isdigit() else index

    return sorted(indices, key=number)


def _likeness(one: KindCensus, other: KindCensus) -> float:
    """Shared launches per step over all launches per step, by name."""
    first, second = _launches(one), _launches(other)
    union = sum((first | second).values())
    return sum((first & second).values()) / union if union else 0.0


def _launches(kind: KindCensus) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for table in (kind.slots, kind.outside):
        for canonical, op_kind, launches in zip(table["canonical"], table["op_kind"], table["launches"], strict=True):
            found[canonical, op_kind] += round(launches / kind.kind.steps)
    return found
