"""Groups of ops that are steps: numbered, without those that lost ops, and sorted into kinds.

Steps are of one kind when they replay one executable graph, or run the same sequence of kernels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit import replays
from profkit.steps import UNDER_RECORDED_SHARE, StepKind, Steps
from profkit.trace import NONE, Diagnostic, Trace, joint_key


def grouped(
    trace: Trace,
    group: npt.NDArray[np.int64],
    method: str,
    notes: list[Diagnostic],
    *,
    silent: int = 0,
    launched: int = 0,
    partial: npt.NDArray[np.int64] | None = None,
    one_launch: bool = False,
) -> Steps:
    """Number the groups by start, leave incomplete ones out and sort the rest into kinds.

    Args:
        group: each op's group, -1 for none.
        silent: graph launches without ops that would have been steps.
        partial: groups that are known to have lost ops.
        one_launch: each group is what one launch ran.
    """
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
    within = ops if len(rows) == len(ops) else ops.iloc[rows]
    launch, launches = (step_of_row, count) if one_launch else _launch_codes(within)
    signature, label = _signatures(within, step_of_row, count, launch, launches)
    lost = replays.without_nodes(within, step_of_row, count, launch, launches, notes)
    if one_launch:
        lost |= replays.without_ops(within, step_of_row, signature, [name is None for name in label], notes)
    if partial is not None:
        lost[rank[np.isin(unique, partial)]] = True
    kept = np.flatnonzero(~lost)
    renumber = np.full(count, -1, dtype=np.int64)
    renumber[kept] = np.arange(len(kept))
    step = np.full(len(ops), -1, dtype=np.int32)
    step[rows] = renumber[step_of_row]
    kinds, kind = _kinds(within, step[rows], signature[kept], [label[i] for i in kept])
    total = count + silent
    share = (int(lost.sum()) + silent) / total if total else 0.0
    return Steps(step, kind, kinds, method, int(lost.sum()), launched, tuple(notes), share > UNDER_RECORDED_SHARE)


def _launch_codes(ops: pd.DataFrame) -> tuple[npt.NDArray[np.int64], int]:
    """The launch that each op comes from, numbered, and how many there are."""
    codes, unique = pd.factorize(joint_key(ops["process"].to_numpy(), ops["correlation"].to_numpy()))
    return codes.astype(np.int64), len(unique)


def _signatures(
    ops: pd.DataFrame, step: npt.NDArray[np.int64], count: int, launch: npt.NDArray[np.int64], launches: int
) -> tuple[npt.NDArray[np.int64], list[str | None]]:
    """What makes two steps one kind: the executable graph where one graph is the whole step, else the op sequence."""
    graph = replays.graph_ids(ops)
    lowest = np.full(count, np.iinfo(np.int64).max, dtype=np.int64)
    highest = np.full(count, np.iinfo(np.int64).min, dtype=np.int64)
    np.minimum.at(lowest, step, graph)
    np.maximum.at(highest, step, graph)
    process = np.zeros(count, dtype=np.int64)
    process[step] = ops["process"].to_numpy()
    one_graph = (lowest == highest) & (lowest != NONE) & (_launches_in(step, count, launch, launches) == 1)
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
    if len(np.unique(process)) == 1:
        return signature, [f"graph {lowest[i]}" if one_graph[i] else None for i in range(count)]
    ranks = _same_over_ranks(ops, step, signature, process, lowest, one_graph)
    labels: list[str | None] = []
    for i in range(count):
        several = len(ranks.processes[int(ranks.signature[i])]) > 1
        suffix = (
            f" in {len(ranks.processes[int(ranks.signature[i])])} processes" if several else f" of process {process[i]}"
        )
        labels.append(f"graph {ranks.graph[i]}{suffix}" if one_graph[i] else None)
    return ranks.signature, labels


@dataclass(frozen=True)
class _Ranks:
    """Kinds joined over the processes of a job.

    Args:
        signature: for each step.
        graph: for each step the id of the first process's graph of its kind.
        processes: signature to the processes that have such steps.
    """

    signature: npt.NDArray[np.int64]
    graph: npt.NDArray[np.int64]
    processes: dict[int, set[int]]


def _same_over_ranks(
    ops: pd.DataFrame,
    step: npt.NDArray[np.int64],
    signature: npt.NDArray[np.int64],
    process: npt.NDArray[np.int64],
    graph: npt.NDArray[np.int64],
    one_graph: npt.NDArray[np.bool_],
) -> _Ranks:
    """Graphs of different processes that run the same sequence are one kind: the ranks of a job. A process may have
    several such graphs; they are matched in the order of their ids, which is the order of capture."""
    first = np.unique(signature, return_index=True)[1]
    shown = np.isin(step, first)
    hashes = _sequence_hashes(ops[shown], step[shown], len(signature))
    joined, ids = signature.copy(), graph.copy()
    by_place: dict[tuple[int, int], int] = {}
    seen: dict[tuple[int, int], int] = {}
    processes: dict[int, set[int]] = {}
    for i in sorted(first.tolist(), key=lambda i: (process[i], graph[i])):
        target = int(signature[i])
        if one_graph[i]:
            key = int(process[i]), int(hashes[i])
            nth = seen.get(key, 0)
            seen[key] = nth + 1
            target = by_place.setdefault((key[1], nth), target)
        members = signature == signature[i]
        joined[members] = target
        ids[members] = graph[first[np.flatnonzero(signature[first] == target)[0]]]
        processes.setdefault(target, set()).add(int(process[i]))
    return _Ranks(joined, ids, processes)


def _launches_in(
    step: npt.NDArray[np.int64], count: int, launch: npt.NDArray[np.int64], launches: int
) -> npt.NDArray[np.int64]:
    """How many launches each step's ops come from."""
    if launch is step:
        return np.ones(count, dtype=np.int64)
    pairs = pd.unique(step * launches + launch)
    return np.bincount(pairs // launches, minlength=count)


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


def _kinds(
    ops: pd.DataFrame, step: npt.NDArray[np.int32], signature: npt.NDArray[np.int64], label: list[str | None]
) -> tuple[list[StepKind], npt.NDArray[np.int32]]:
    codes, unique = pd.factorize(signature)
    inside = step >= 0
    kind_of_row = codes[step[inside]]
    process_of = ops["process"].to_numpy()[inside]
    duration = (ops["end"].to_numpy() - ops["start"].to_numpy())[inside]
    gpu_ns = np.bincount(kind_of_row, weights=duration, minlength=len(unique)).astype(np.int64)
    launches = np.bincount(kind_of_row, minlength=len(unique))
    steps = np.bincount(codes, minlength=len(unique))
    order = np.lexsort((-launches, -gpu_ns))
    kinds: list[StepKind] = []
    for position, old in enumerate(order, start=1):
        name = label[int(np.flatnonzero(codes == old)[0])]
        sizes = int(steps[old]), int(launches[old] // steps[old]), int(gpu_ns[old])
        one_process = int(process_of[kind_of_row == old].min()) == int(process_of[kind_of_row == old].max())
        one_graph = name is not None and one_process
        kinds.append(StepKind(name or f"sequence {position}", *sizes, one_graph=one_graph))
    new = np.empty(len(unique), dtype=np.int32)
    new[order] = np.arange(len(unique))
    return kinds, new[codes].astype(np.int32)
