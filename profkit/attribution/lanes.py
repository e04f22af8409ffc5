"""The op sequences of a kind of step: one, or one a stream where streams overlap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from profkit.attribution.op_order import Groups, Ints, grouped
from profkit.model.trace import Trace, joint_key


@dataclass(frozen=True)
class Lane:
    """One sequence, and the steps that run it.

    Args:
        codes: the ops' codes in order, shape [ops].
        members: the rows of these ops in each step that runs them so, shape [steps, ops].
        start_ns, end_ns: of the first such step, shape [ops].
        others: steps that run other ops here.
    """

    codes: Ints
    members: Ints
    start_ns: Ints
    end_ns: Ints
    others: int


def lanes_of(trace: Trace, codes: Ints, rows: Ints, step: Ints) -> list[Lane]:
    """Divide the ops of one kind of step.

    Streams are kept apart where ops of two of them run at once, or where the steps run them in different orders: then
    the order in which they started says nothing.

    Args:
        codes: of all ops.
        rows: the ops of the steps.
        step: the step of each of them.

    Returns:
        one lane, or one a stream, the longest first.
    """
    if not len(rows):
        return []
    start, end = trace.ops["start"].to_numpy(), trace.ops["end"].to_numpy()
    stream = pd.factorize(
        joint_key(trace.ops["device"].to_numpy()[rows], trace.ops["stream"].to_numpy()[rows].astype(np.int64))
    )[0]
    together = grouped(rows, step, start, codes)
    of_row = np.zeros(len(trace.ops), dtype=np.int64)
    of_row[rows] = stream
    if stream.max() == 0 or (together.shape.max() == 0 and not overlapping(together, of_row, start, end)):
        return [_lane(together, codes, start, end)]
    lanes = [
        _lane(grouped(rows[stream == s], step[stream == s], start, codes), codes, start, end)
        for s in range(int(stream.max()) + 1)
    ]
    return sorted(lanes, key=lambda lane: -len(lane.codes))


def overlapping(groups: Groups, stream: Ints, start: Ints, end: Ints) -> bool:
    """Whether an op starts before its predecessor on another stream has ended."""
    before, after = groups.rows[:-1], groups.rows[1:]
    same_step = np.ones(len(before), dtype=np.bool_)
    same_step[groups.first[1:-1] - 1] = False
    return bool((same_step & (stream[before] != stream[after]) & (start[after] < end[before])).any())


def _lane(groups: Groups, codes: Ints, start: Ints, end: Ints) -> Lane:
    members = groups.members(0)
    first = members[0]
    return Lane(codes[first], members, start[first], end[first], int(np.count_nonzero(groups.shape)))
