"""What became of each row's launch: removed, added, changed, moved out of the layers, or unchanged."""

from __future__ import annotations

from collections.abc import Sequence

from profkit.comparison.model import Status
from profkit.comparison.rows import Row
from profkit.model.census import UNATTRIBUTED

#: A launch outside the layers that lasts less than this share of the one that is gone does other work.
_SAME_WORK = 0.5


def statuses_of(rows: Sequence[Row], notable: Sequence[bool], steps: tuple[int, int], layers: int) -> list[Status]:
    """The status of each row.

    Args:
        notable: whether each row's time differs.
        steps: of either side.
        layers: how many are selected.
    """
    statuses = [_status(row, differs, steps) for row, differs in zip(rows, notable, strict=True)]
    _mark_partial(rows, statuses)
    _mark_moved(rows, statuses, steps, layers)
    return statuses


def _status(row: Row, notable: bool, steps: tuple[int, int]) -> Status:
    if row.launches_before and not row.launches_after:
        return "removed"
    if row.launches_after and not row.launches_before:
        return "added"
    per_step = row.launches_before * steps[1] != row.launches_after * steps[0]
    return "changed" if notable or per_step or row.name_before is not None else "unchanged"


def _mark_partial(rows: Sequence[Row], statuses: list[Status]) -> None:
    """A launch that is gone from some layers and stays in others is changed, not removed."""
    judged = list(zip(rows, statuses, strict=True))
    kept = {_identity(r) for r, s in judged if s in ("changed", "unchanged")}
    most: dict[bool, int] = {}
    for row in rows:
        most[row.selected] = max(most.get(row.selected, 0), row.layers_before)
    for index, (row, status) in enumerate(judged):
        if status == "removed" and row.layers_before < most[row.selected] and _identity(row) in kept:
            statuses[index] = "changed"


def _identity(row: Row) -> tuple[bool, str, str, str]:
    return row.selected, row.where, row.canonical, row.op_kind


def _mark_moved(rows: Sequence[Row], statuses: list[Status], steps: tuple[int, int], layers: int) -> None:
    """A launch removed from the layers is moved if the same kernel now runs outside them, each step, as it did not."""
    room: dict[tuple[str, str], int] = {}
    lasts: dict[tuple[str, str], float] = {}
    for row, status in zip(rows, statuses, strict=True):
        # What no method placed may still belong to a layer, so it is no proof that a launch left one.
        if row.outside and status in ("added", "changed") and UNATTRIBUTED not in row.where:
            key = row.canonical, row.op_kind
            room[key] = row.launches_after // steps[1] - row.launches_before // steps[0]
            lasts[key] = row.ns_after / row.launches_after if row.launches_after else 0.0
    for index, row in enumerate(rows):
        key = row.canonical, row.op_kind
        here = (
            room.get(key, 0) if lasts.get(key, 0.0) >= _SAME_WORK * row.ns_before / max(row.launches_before, 1) else 0
        )
        # As many launches outside as were in several layers is no hoisting: the same work, in other ranges. Of one
        # layer, a launch that now runs once a step is moved.
        most = row.launches_before / steps[0]
        if statuses[index] == "removed" and row.selected and (0 < here < most or here == most == layers == 1):
            statuses[index] = "moved"
            room[key] -= 1
