"""Steps: which ops form one forward pass, and which steps are of the same kind.

Steps are the ranges that `--steps` selects; otherwise repeated outer ranges that each hold several launches (piecewise
graphs with eager work between, or an eager trace); otherwise graph replays. Kinds are never averaged over: steps are of
one kind when they replay one executable graph, or run the same sequence of kernels.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit.attribution.ledger import Attribution
from profkit.attribution.scopes import ScopeTable, scopes_at
from profkit.errors import ProfkitError
from profkit.layers import place
from profkit.trace import NONE, Diagnostic, Trace, joint_key

#: Above this share of replays that lost ops, a trace answers no question: the rest may have lost some too. One lost
#: replay at either end of a recording of twenty is usual, since recording starts and stops between launches.
UNDER_RECORDED_SHARE = 0.1

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class StepKind:
    """Steps that do the same work.

    Args:
        id: ``graph 5`` (by graph id) or ``sequence 1`` (by order of GPU time).
        steps: how many there are.
        ops_per_step: launches in each.
        gpu_ns: sum over all of them of their ops' durations.
    """

    id: str
    steps: int
    ops_per_step: int
    gpu_ns: int


@dataclass(frozen=True)
class Steps:
    """The steps of a trace.

    Args:
        step: for each op its step, numbered from 0 in order of start, -1 outside steps.
        kind: for each step, an index into `kinds`.
        kinds: most GPU time first.
        method: how steps were found, one phrase.
        incomplete: replays left out because they lost ops.
        launched: graph launches in the recording, 0 where steps are no replays.
        diagnostics: doubled and partial replays, launches without ops.
        under_recorded: so many replays lost ops that no answer holds.
    """

    step: npt.NDArray[np.int32]
    kind: npt.NDArray[np.int32]
    kinds: Sequence[StepKind]
    method: str
    incomplete: int
    launched: int
    diagnostics: Sequence[Diagnostic]
    under_recorded: bool


def find_steps(trace: Trace, attribution: Attribution, pattern: str | None = None) -> Steps:
    """Divide the ops of `trace` into steps.

    Args:
        pattern: a regular expression for the text of the ranges that are steps.

    Raises:
        ProfkitError: `pattern` is no regular expression or matches no range.
    """
    if pattern is not None:
        return _by_ranges(trace, attribution, _matching(attribution.ranges, pattern), f"ranges that match {pattern!r}")
    family = _outer_family(trace, attribution)
    if family is not None:
        text = _NUMBER.sub("#", str(family["text"].iloc[0]))
        return _by_ranges(trace, attribution, family, f"repeated ranges {text!r}")
    if attribution.joined.by_graph.any():
        return _by_replays(trace, attribution)
    whole = np.zeros(len(trace.ops), dtype=np.int64)
    note = Diagnostic("no-steps", "No replay and no repeated outer range: the whole recording counts as one step.")
    return _grouped(trace, whole, "the whole recording", [note])


def _matching(ranges: pd.DataFrame, pattern: str) -> pd.DataFrame:
    try:
        regex = re.compile(pattern)
    except re.error as error:
        raise ProfkitError(f"--steps {pattern!r} is not a regular expression: {error}.") from None
    texts: Sequence[str] = ranges["text"].cat.categories.tolist() if len(ranges) else []
    hit = np.array([bool(regex.search(t)) for t in texts], dtype=bool)
    found = ranges[hit[ranges["text"].cat.codes.to_numpy()]] if len(ranges) else ranges
    if not len(found):
        shown = ", ".join(sorted({_NUMBER.sub("#", t) for t in texts})[:12]) or "none at all"
        raise ProfkitError(f"--steps {pattern!r} matches no range. Ranges in the trace (numbers as #): {shown}.")
    return found


def _outer_family(trace: Trace, attribution: Attribution) -> pd.DataFrame | None:
    """The repeated ranges, outside every layer, that each hold several launches and together hold every replay."""
    ranges, launches = attribution.ranges, trace.launches
    used = launches[attribution.joined.used]
    if not len(ranges) or not len(used):
        return None
    texts = ranges["text"].cat.categories
    _, shape_of = np.unique([_NUMBER.sub("#", t) for t in texts], return_inverse=True)
    is_layer = np.array([place((t,)).layer is not None for t in texts], dtype=bool)
    codes = ranges["text"].cat.codes.to_numpy()
    candidates = ranges.assign(shape=shape_of[codes])[~is_layer[codes]]
    graphs = used[(used["api"] == "graph").to_numpy()]
    best: tuple[int, int, pd.DataFrame] | None = None
    for _, family in candidates.groupby(["process", "thread", "shape"], sort=False):
        if len(family) < 2 or _inside_layer(family, attribution):
            continue
        held, replays = _held(family, used), _held(family, graphs)
        if np.median(held) < 2 or replays.sum() < len(graphs):
            continue
        length = int((family["end"] - family["start"]).sum())
        if best is None or (int(held.sum()), length) > best[:2]:
            best = (int(held.sum()), length, family)
    return None if best is None else best[2].drop(columns="shape")


def _inside_layer(family: pd.DataFrame, attribution: Attribution) -> bool:
    first = family.iloc[[0]]
    scopes = ScopeTable()
    at = scopes_at(
        attribution.ranges,
        first["process"].to_numpy().astype(np.int64),
        first["thread"].to_numpy(),
        first["start"].to_numpy(),
        scopes,
    )
    return place(scopes.paths[int(at[0])]).layer is not None


def _held(family: pd.DataFrame, launches: pd.DataFrame) -> npt.NDArray[np.int64]:
    """How many of `launches` start inside each range of `family`, on its thread."""
    process, thread = family["process"].iloc[0], family["thread"].iloc[0]
    mine = launches[(launches["process"] == process) & (launches["thread"] == thread)]
    starts = np.sort(mine["start"].to_numpy())
    first = np.searchsorted(starts, family["start"].to_numpy())
    return np.asarray(np.searchsorted(starts, family["end"].to_numpy()) - first)


def _by_ranges(trace: Trace, attribution: Attribution, family: pd.DataFrame, method: str) -> Steps:
    """Each op belongs to the range in which its launch starts, on the same process and thread."""
    launches = trace.launches
    range_of = np.full(len(launches), -1, dtype=np.int64)
    first = 0
    for (process, thread), group in family.groupby(["process", "thread"], sort=True):
        group = group.sort_values("start")
        mine = np.flatnonzero((launches["process"] == process) & (launches["thread"] == thread))
        start = launches["start"].to_numpy()[mine]
        position = np.searchsorted(group["start"].to_numpy(), start, side="right") - 1
        inside = (position >= 0) & (group["end"].to_numpy()[np.maximum(position, 0)] > start)
        range_of[mine[inside]] = first + position[inside]
        first += len(group)
    row = attribution.joined.row
    step = np.where(row >= 0, range_of[row] if len(range_of) else -1, -1)
    return _grouped(trace, step, method, [])


def _by_replays(trace: Trace, attribution: Attribution) -> Steps:
    ops, joined = trace.ops, attribution.joined
    key = joint_key(ops["process"].to_numpy(), ops["correlation"].to_numpy())
    replay = np.full(len(ops), -1, dtype=np.int64)
    in_graph = joined.by_graph & (ops["correlation"].to_numpy() != NONE)
    replay[in_graph] = pd.factorize(key[in_graph])[0]
    graphs = (trace.launches["api"] == "graph").to_numpy()
    silent = int((graphs & ~joined.used).sum())
    notes: list[Diagnostic] = []
    if silent:
        message = f"{silent} of {int(graphs.sum())} graph launches have no ops in the recording."
        notes.append(Diagnostic("launches-without-ops", message))
    return _grouped(trace, replay, "graph replays", notes, silent=silent, launched=int(graphs.sum()))


def _grouped(
    trace: Trace,
    group: npt.NDArray[np.int64],
    method: str,
    notes: list[Diagnostic],
    *,
    silent: int = 0,
    launched: int = 0,
) -> Steps:
    """Number the groups by start, set incomplete replays aside and sort the rest into kinds."""
    ops = trace.ops
    inside = group >= 0
    codes, unique = pd.factorize(group[inside])
    count = len(unique)
    if not count:
        none = np.full(len(ops), -1, dtype=np.int32)
        return Steps(none, np.empty(0, np.int32), (), method, 0, launched, tuple(notes), silent > 0)
    rows = np.flatnonzero(inside)
    first_row = np.full(count, len(ops), dtype=np.int64)
    np.minimum.at(first_row, codes[::-1], rows[::-1])
    start = ops["start"].to_numpy()[first_row]
    rank = np.empty(count, dtype=np.int64)
    rank[np.lexsort((ops["process"].to_numpy()[first_row], start))] = np.arange(count)
    step_of_row = rank[codes]
    signature, label = _signatures(ops.iloc[rows], step_of_row, count)
    lost = _lost(ops.iloc[rows], step_of_row, signature, count, notes)
    kept = np.flatnonzero(~lost)
    renumber = np.full(count, -1, dtype=np.int64)
    renumber[kept] = np.arange(len(kept))
    step = np.full(len(ops), -1, dtype=np.int32)
    step[rows] = renumber[step_of_row]
    kinds, kind = _kinds(ops.iloc[rows], step[rows], signature[kept], [label[i] for i in kept])
    total = count + silent
    share = (int(lost.sum()) + silent) / total if total else 0.0
    return Steps(step, kind, kinds, method, int(lost.sum()), launched, tuple(notes), share > UNDER_RECORDED_SHARE)


def _signatures(
    ops: pd.DataFrame, step: npt.NDArray[np.int64], count: int
) -> tuple[npt.NDArray[np.int64], list[str | None]]:
    """What makes two steps one kind: the executable graph where one graph is the whole step, else the op sequence."""
    graph = ops["graph"].to_numpy()
    node = ops["node"].to_numpy()
    # An nsys node id holds its graph's id in the upper half; exports before 2025.5 have no column for it.
    graph = np.where((graph == NONE) & (node != NONE), node >> 32, graph)
    lowest = np.full(count, np.iinfo(np.int64).max, dtype=np.int64)
    highest = np.full(count, np.iinfo(np.int64).min, dtype=np.int64)
    np.minimum.at(lowest, step, graph)
    np.maximum.at(highest, step, graph)
    one_graph = (lowest == highest) & (lowest != NONE)
    process = np.zeros(count, dtype=np.int64)
    process[step] = ops["process"].to_numpy()
    mixed = ~one_graph[step]
    sequence = _sequence_hashes(ops[mixed], step[mixed], count) if mixed.any() else np.zeros(count, np.int64)
    keys = pd.DataFrame(
        {
            "process": np.where(one_graph, process, -1),
            "graph": np.where(one_graph, lowest, -1),
            "sequence": sequence,
        }
    )
    signature = keys.groupby(["process", "graph", "sequence"], sort=False).ngroup().to_numpy().astype(np.int64)
    return signature, [f"graph {lowest[i]}" if one_graph[i] else None for i in range(count)]


def _sequence_hashes(ops: pd.DataFrame, step: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    """A hash of each step's op names in order on each stream; streams may interleave differently from step to step."""
    stream, _ = pd.factorize(joint_key(ops["device"].to_numpy(), ops["stream"].to_numpy()))
    order = np.lexsort((ops["start"].to_numpy(), stream, step))
    group = step[order] * (int(stream.max()) + 1) + stream[order]
    first = np.flatnonzero(np.r_[True, group[1:] != group[:-1]])
    position = np.arange(len(order)) - np.repeat(first, np.diff(np.r_[first, len(order)]))
    name = ops["name"].cat.codes.to_numpy().astype(np.uint64)[order]
    mixed = (name + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) ^ (position.astype(np.uint64) << np.uint64(1))
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    total = np.zeros(count, dtype=np.uint64)
    np.add.at(total, step[order], mixed)
    return total.view(np.int64)


def _lost(
    ops: pd.DataFrame,
    step: npt.NDArray[np.int64],
    signature: npt.NDArray[np.int64],
    count: int,
    notes: list[Diagnostic],
) -> npt.NDArray[np.bool_]:
    """Steps that miss nodes which other replays of the same graph have, or have a node twice."""
    node = ops["node"].to_numpy()
    if (node == NONE).any():
        return np.zeros(count, dtype=np.bool_)
    codes, unique = pd.factorize(node)
    pair = step * len(unique) + codes
    distinct = pd.unique(pair)
    have = np.bincount(distinct // len(unique), minlength=count)
    ops_in = np.bincount(step, minlength=count)
    of_graph = np.unique(signature[distinct // len(unique)] * len(unique) + distinct % len(unique))
    expected = np.bincount(of_graph // len(unique), minlength=int(signature.max()) + 1)[signature]
    partial, doubled = have < expected, ops_in > have
    for code, which, text in (
        ("partial-replay", partial, "miss nodes that other replays of their graph ran"),
        ("doubled-node", doubled & ~partial, "ran a node more than once"),
    ):
        if which.any():
            notes.append(Diagnostic(code, f"{int(which.sum())} of {count} replays {text}; they are left out."))
    return partial | doubled


def _kinds(
    ops: pd.DataFrame, step: npt.NDArray[np.int32], signature: npt.NDArray[np.int64], label: list[str | None]
) -> tuple[list[StepKind], npt.NDArray[np.int32]]:
    codes, unique = pd.factorize(signature)
    inside = step >= 0
    kind_of_row = codes[step[inside]]
    duration = (ops["end"].to_numpy() - ops["start"].to_numpy())[inside]
    gpu_ns = np.bincount(kind_of_row, weights=duration, minlength=len(unique)).astype(np.int64)
    launches = np.bincount(kind_of_row, minlength=len(unique))
    steps = np.bincount(codes, minlength=len(unique))
    order = np.lexsort((-launches, -gpu_ns))
    kinds: list[StepKind] = []
    for position, old in enumerate(order, start=1):
        name = label[int(np.flatnonzero(codes == old)[0])] or f"sequence {position}"
        kinds.append(StepKind(name, int(steps[old]), int(launches[old] // steps[old]), int(gpu_ns[old])))
    new = np.empty(len(unique), dtype=np.int32)
    new[order] = np.arange(len(unique))
    return kinds, new[codes].astype(np.int32)
