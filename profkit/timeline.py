"""Time that ops cover together: union and extent, without a Python loop over ops."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def busy_and_span(start_ns: Ints, end_ns: Ints, group: Ints) -> tuple[Ints, Ints]:
    """Union and extent of each group's intervals.

    Args:
        start_ns, end_ns: intervals, in any order.
        group: each interval's group, integers from 0; groups may be missing.

    Returns:
        for groups 0 … max(group): nanoseconds in which at least one interval is open, and nanoseconds from the first
        start to the last end; 0 for a missing group.
    """
    if not len(group):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    order = np.lexsort((start_ns, group))
    group, start, end = group[order], start_ns[order], end_ns[order]
    first = np.flatnonzero(np.r_[True, group[1:] != group[:-1]])
    length = np.diff(np.r_[first, len(group)])
    # Shift every group onto a stretch of its own, so that one running maximum serves all of them.
    origin = np.repeat(start[first], length)
    extent = np.maximum.reduceat(end, first) - start[first]
    base = np.repeat(np.r_[0, np.cumsum(extent[:-1] + 1)], length)
    start, end = start - origin + base, end - origin + base
    covered = np.r_[base[:1], np.maximum.accumulate(end)[:-1]]
    gain = np.maximum(end - np.maximum(start, np.maximum(covered, base)), 0)
    count = int(group[-1]) + 1
    busy, span = np.zeros(count, np.int64), np.zeros(count, np.int64)
    busy[group[first]] = np.add.reduceat(gain, first)
    span[group[first]] = extent
    return busy, span
