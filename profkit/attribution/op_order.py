"""Op sequences of many steps or replays at once: their order, which are equal, and which streams are apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit.model import names as kernel_names
from profkit.model.trace import Trace, joint_key

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class OpCodes:
    """What makes two ops the same launch: canonical name and kind, as one integer an op.

    Args:
        code: shape [ops].
        names: the canonical name of each code.
    """

    code: Ints
    names: Mapping[int, str]


def op_codes(trace: Trace) -> OpCodes:
    """Number the ops of `trace` by canonical name and kind."""
    labels: list[str] = trace.ops["name"].cat.categories.tolist()
    kinds = len(trace.ops["kind"].cat.categories)
    index: dict[str, int] = {}
    of_label = np.array([index.setdefault(kernel_names.canonical(n), len(index)) for n in labels], dtype=np.int64)
    if not len(trace.ops):
        return OpCodes(np.empty(0, np.int64), {})
    code = of_label[trace.ops["name"].cat.codes.to_numpy()] * kinds + trace.ops["kind"].cat.codes.to_numpy()
    return OpCodes(code, {i * kinds + k: name for name, i in index.items() for k in range(kinds)})


@dataclass(frozen=True)
class Groups:
    """Rows sorted by (group, start), and the groups' shapes: equal numbers for equal code sequences.

    Args:
        rows: the sorted rows.
        first: for each group the position in `rows` at which it begins, and behind the last one the end.
        shape: for each group; the most common shape is 0.
        group: for each group its number as it was given.
    """

    rows: Ints
    first: Ints
    shape: Ints
    group: Ints

    def members(self, shape: int) -> Ints:
        """The rows of all groups of one shape, shape [groups, ops]."""
        which = np.flatnonzero(self.shape == shape)
        length = int(self.first[which[0] + 1] - self.first[which[0]])
        members: Ints = self.rows[self.first[which][:, None] + np.arange(length)]
        return members


def grouped(rows: Ints, group: Ints, start_ns: Ints, codes: Ints) -> Groups:
    """Sort `rows` into groups and number the groups by the sequence of their codes.

    Args:
        rows: op rows, shape [n].
        group: the group of each of them, shape [n].
        start_ns, codes: of all ops, indexed by row.
    """
    order = np.lexsort((start_ns[rows], group))
    rows, group = rows[order], group[order]
    first = np.flatnonzero(np.r_[True, group[1:] != group[:-1]]) if len(rows) else np.empty(0, np.int64)
    edges = np.r_[first, len(rows)].astype(np.int64)
    length = np.diff(edges)
    position = np.arange(len(rows)) - np.repeat(first, length)
    # Sequences that collide are equal for all purposes here.
    total = np.add.reduceat(mixed(codes[rows], position), first) if len(first) else np.empty(0, np.uint64)
    keys = np.stack([length.astype(np.int64), total.view(np.int64)], axis=1)
    _, shape, counts = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    rank = np.empty(len(counts), dtype=np.int64)
    rank[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
    return Groups(rows, edges, rank[shape.reshape(-1)], group[first])


def mixed(codes: npt.NDArray[np.integer[Any]], position: Ints) -> npt.NDArray[np.uint64]:
    """A hash of each pair of code and position, both below 2^32; sums of them tell sequences apart."""
    return pd.util.hash_array((codes.astype(np.uint64) << np.uint64(32)) | position.astype(np.uint64))


@dataclass(frozen=True)
class Lane:
    """One sequence, and the steps that run it.

    Args:
        codes: the ops' codes in order, shape [ops].
        members: the rows of these ops in each step that runs them so, shape [steps, ops].
        steps: these steps, shape [steps].
        deviating: steps that run other ops here.
    """

    codes: Ints
    members: Ints
    steps: Ints
    deviating: int


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
        return [_lane(together, codes)]
    lanes = [
        _lane(grouped(rows[stream == s], step[stream == s], start, codes), codes) for s in range(int(stream.max()) + 1)
    ]
    return sorted(lanes, key=lambda lane: -len(lane.codes))


def overlapping(groups: Groups, stream: Ints, start: Ints, end: Ints) -> bool:
    """Whether an op starts before its predecessor on another stream has ended."""
    before, after = groups.rows[:-1], groups.rows[1:]
    same_step = np.ones(len(before), dtype=np.bool_)
    same_step[groups.first[1:-1] - 1] = False
    return bool((same_step & (stream[before] != stream[after]) & (start[after] < end[before])).any())


def _lane(groups: Groups, codes: Ints) -> Lane:
    members = groups.members(0)
    alike = groups.shape == 0
    return Lane(codes[members[0]], members, groups.group[alike], int(np.count_nonzero(~alike)))
