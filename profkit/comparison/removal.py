"""What is gone, net: counted over the layers of either side, the rest of the step, and the rest of the recording.

A launch that left the layers for another stream, graph, range or the eager part of the step is not gone. What is gone
from some of alike layers, or from outside them, is outside any claim and is told by name.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, floor

from profkit.comparison.model import Gone, Group, Input, Launch, Row
from profkit.comparison.recordings import most_like
from profkit.model.census import KindCensus
from profkit.model.names import display
from profkit.model.wording import listed

#: Launches of each name, a step of one rank.
PerStep = Mapping[Launch, Fraction]


@dataclass(frozen=True)
class Removal:
    """Launches that are gone, net.

    Args:
        by_group: from each layer of a selected group, without those that are new in it or moved.
        moved: of those of a selected layer, how many run elsewhere in the step now.
        left: those names of which all that are gone from the layers run elsewhere now.
        unexplained: what is gone outside any claim.
    """

    by_group: Sequence[Fraction]
    moved: int
    left: Collection[Launch]
    unexplained: Sequence[Gone]


def removal(
    sides: tuple[Input, Input],
    censuses: tuple[KindCensus, KindCensus],
    groups: Sequence[Group],
    rows: Sequence[Row],
    *,
    work_preserved: bool,
) -> Removal:
    """Count what is gone.

    Args:
        censuses: what is compared of the sides.
        groups: all of them, selected or not.
        rows: all of the comparison.
        work_preserved: outputs of every layer are the same, which explains what is gone from layers not selected.
    """
    ranks, passes = censuses[0].ranks, (censuses[0].passes, censuses[1].passes)
    chosen = [group for group in groups if group.selected]
    steps = (censuses[0].kind.steps, censuses[1].kind.steps)
    changes = [_change(group, steps) for group in chosen]
    gone: dict[Launch, Fraction] = defaultdict(Fraction)
    new: dict[Launch, Fraction] = defaultdict(Fraction)
    for group, change in zip(chosen, changes, strict=True):
        for launch, by in change.items():
            (new if by > 0 else gone)[launch] += abs(by) * Fraction(group.layers, ranks)
    in_step = _in_step(censuses, rows)
    elsewhere = _elsewhere(sides, censuses, in_step)
    layers = Fraction(sum(group.layers for group in chosen), ranks)
    left = {launch: min(by, max(elsewhere.get(launch, Fraction()), Fraction())) for launch, by in gone.items()}
    moved = floor(sum(left.values(), Fraction()) / layers) if layers else 0
    lost_between = {launch for launch, by in _lost_between(sides, passes).items() if by}
    lost_outside = lost_between | {
        (row.canonical, row.op_kind)
        for row in rows
        if row.outside and row.launches_before * passes[1] > row.launches_after * passes[0]
    }
    unexplained = [
        *_partial(chosen, changes, ranks),
        *(
            Gone(
                display(launch[0]),
                "between the steps" if launch in lost_between else "outside the selected layers",
                float(-by - allowed),
            )
            for launch, by in elsewhere.items()
            if -by > (allowed := new.get(launch, Fraction()) + _fused_alike(launch, gone, new, in_step))
            and (launch in lost_outside or not work_preserved)
        ),
        *_in_other_kinds(sides, censuses),
    ]
    lost = [-sum(change.values(), Fraction()) for change in changes]
    whole = {launch for launch, by in gone.items() if by and left[launch] == by} if moved else set()
    by_group = [by - min(Fraction(moved), max(by, Fraction())) for by in lost]
    return Removal(by_group, moved, whole, unexplained)


def _fused_alike(launch: Launch, gone: PerStep, new: PerStep, elsewhere: PerStep) -> Fraction:
    """How many of a launch may be gone outside the layers because what the layers have in its place is new there too: a
    final norm that is fused as those of the layers are."""
    # Of several that are fused in a layer, one may hold a launch more than the mean.
    return Fraction(
        sum(
            ceil(gone.get(launch, Fraction()) / number * elsewhere[other])
            for other, number in new.items()
            if elsewhere.get(other, 0) > 0
        )
    )


def _change(group: Group, steps: tuple[int, int]) -> dict[Launch, Fraction]:
    """After minus before of each name, in one layer of a group and one step."""
    return {
        launch: by
        for launch in {**group.before, **group.after}
        if (by := Fraction(group.after.get(launch, 0), steps[1]) - Fraction(group.before.get(launch, 0), steps[0]))
    }


def _in_step(censuses: tuple[KindCensus, KindCensus], rows: Sequence[Row]) -> dict[Launch, Fraction]:
    """After minus before of each name in the step, outside the selected layers."""
    found: dict[Launch, Fraction] = defaultdict(Fraction)
    for row in rows:
        if not row.selected:
            by = Fraction(row.launches_after, censuses[1].passes) - Fraction(row.launches_before, censuses[0].passes)
            found[row.canonical, row.op_kind] += by
    return found


def _elsewhere(
    sides: tuple[Input, Input], censuses: tuple[KindCensus, KindCensus], in_step: PerStep
) -> dict[Launch, Fraction]:
    """After minus before of each name outside the selected layers: in the step, what there is more of in the rest of
    the recording, and what no longer runs between the steps."""
    passes = (censuses[0].passes, censuses[1].passes)
    found = defaultdict(Fraction, in_step)
    before, after = (side.beyond_steps for side in sides)
    between = [side.between_steps for side in sides]
    for launch in {**before, **after}:
        # A recording of more or fewer steps has other shares of a program's start, and no more of it.
        more = min(
            Fraction(after[launch], passes[1]) - Fraction(before[launch], passes[0]),
            Fraction(after[launch] - before[launch], passes[1]),
        )
        found[launch] += max(more, between[1].get(launch, 0) - between[0].get(launch, 0), Fraction())
    for launch, by in _lost_between(sides, passes).items():
        found[launch] -= by
    return found


def _lost_between(sides: tuple[Input, Input], passes: tuple[int, int]) -> dict[Launch, Fraction]:
    """What ran between the steps, and neither runs there now nor elsewhere outside them: how many a step."""
    found: dict[Launch, Fraction] = {}
    before, after = (side.beyond_steps for side in sides)
    between_before, between_after = (side.between_steps for side in sides)
    for launch, number in between_before.items():
        fewer = Fraction(before[launch], passes[0]) - Fraction(after[launch], passes[1])
        by = min(number - between_after.get(launch, 0), fewer)
        found[launch] = max(by, Fraction())
    return found


def _in_other_kinds(sides: tuple[Input, Input], censuses: tuple[KindCensus, KindCensus]) -> list[Gone]:
    """What replayed steps of other kinds lost, of more launches than the compared ones did: their graphs have the same
    layers for other batches. Kinds that cannot be paired are no evidence."""
    found: list[Gone] = []
    compared = _change_of(censuses[0], censuses[1])
    first, second = (
        replace(side.census, kinds=[k for k in side.census.kinds if k is not side.census.chosen and k.kind.replayed])
        for side in sides
    )
    for before in (kind for kind in first.kinds if len(kind.layers)):
        index, _ = most_like(before, first, second)
        if index is None:
            continue
        after = second.kinds[index]
        change = _change_of(before, after)
        if change.total() < min(compared.total(), 0):
            found += [
                Gone(display(name), f"the steps of {before.kind.name}", float(min(compared[name, kind], 0) - by))
                for (name, kind), by in change.items()
                if by < min(compared[name, kind], 0)
            ]
    return found


def _change_of(before: KindCensus, after: KindCensus) -> Counter[Launch]:
    """After minus before of each name, a step."""
    change = Counter(after.per_step)
    change.subtract(before.per_step)
    return change


def _partial(groups: Sequence[Group], changes: Sequence[Mapping[Launch, Fraction]], ranks: int) -> list[Gone]:
    """Launches that are gone from some of the layers that were alike before, and not from the others."""
    alike: dict[object, list[tuple[Group, Mapping[Launch, Fraction]]]] = {}
    for group, change in zip(groups, changes, strict=True):
        alike.setdefault((group.stack, frozenset(group.before.items())), []).append((group, change))
    found: list[Gone] = []
    for members in alike.values():
        usual = max(members, key=lambda member: member[0].layers)[1]
        for group, change in members:
            for launch in {**usual, **change}:
                by, others = change.get(launch, Fraction()), usual.get(launch, Fraction())
                # Lost here and kept in most, or kept here and lost in most.
                if by != others and min(by, others) < 0:
                    where = (
                        f"layer {listed(group.names, 4)}" if by < others else f"all layers but {listed(group.names, 4)}"
                    )
                    number = sum(g.layers for g, c in members if c.get(launch, Fraction()) < 0)
                    found.append(Gone(display(launch[0]), where, float(abs(min(by, others)) * number / ranks)))
    return found
