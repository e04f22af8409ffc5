"""Compares two sides of runs: what the command line and the Python interface both call."""

from __future__ import annotations

from collections.abc import Sequence

from profkit.comparison.compare import compare
from profkit.comparison.model import Comparison, Gates, Input, Reason
from profkit.model.selection import Selection
from profkit.runs import sides
from profkit.runs.sides import Counted, Side


def compare_sides(both: tuple[Side, Side], selection: Selection, gates: Gates, specs: Sequence[str] = ()) -> Comparison:
    """Count both sides and compare them, without the runs that their captures set aside.

    Args:
        specs: what named the sides, for what is missing of repeated captures.

    Raises:
        ProfkitError: bad input, or every run of a side was set aside.
    """
    before, after = (sides.recorded_well(side) for side in both)
    said = [note for spec in specs for note in sides.not_recorded(spec)]
    said += [note for side in both for note in sides.stalled(side)]
    counted = sides.count_sides(before, after, selection)
    first, second = (_input(side.label, runs) for side, runs in zip((before, after), counted, strict=True))
    return compare(first, second, gates, notes=[Reason(note.code, note.message) for note in said])


def _input(label: str, runs: Sequence[Counted]) -> Input:
    first, *more = (Input(run.label, run.census, run.record, run.identity) for run in runs)
    own = first.label if more else None
    return Input(label, first.census, first.record, first.identity, tuple(more), own)
