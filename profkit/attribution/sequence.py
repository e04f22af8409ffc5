"""Sequence: the launches of the graph's capture, in order, name the layers of the replay's ops, in order.

For traces without node lineage that also show the capture, as our own torch.profiler captures do. On CUDA a captured
launch carries no kernel name, so the check is by count and by kind (kernel, memcpy, memset): weaker than lineage, and
labelled so. What does not fit is not placed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit.attribution.launches import LaunchJoin
from profkit.attribution.scopes import ScopeTable, scopes_at
from profkit.trace import NONE, Trace, joint_key


@dataclass(frozen=True)
class Sequence:
    """The result for every op: whether it was placed, its scope, and why the rest was not (one sentence each)."""

    placed: npt.NDArray[np.bool_]
    scope: npt.NDArray[np.int32]
    problems: list[str]


def attribute(
    trace: Trace, joined: LaunchJoin, ranges: pd.DataFrame, scopes: ScopeTable, open_ops: npt.NDArray[np.bool_]
) -> Sequence:
    """Place the ops of graph replays by the order of the capture's launches, process by process.

    Args:
        open_ops: the ops that no better method placed.
    """
    result = Sequence(np.zeros(len(trace.ops), np.bool_), np.zeros(len(trace.ops), np.int32), [])
    launches = trace.launches
    candidates = open_ops & joined.by_graph & (trace.ops["correlation"].to_numpy() != NONE)
    for process in np.unique(trace.ops["process"].to_numpy()[candidates]):
        rows = np.flatnonzero(candidates & (trace.ops["process"].to_numpy() == process))
        mine = (launches["process"].to_numpy() == process) & ~joined.used
        captured = launches[mine & (launches["api"] != "graph").to_numpy()]
        captured = captured[captured["start"].to_numpy() < _first_graph_launch(trace, joined, rows)]
        if len(captured):
            _align(trace, rows, captured.sort_values("start"), ranges, scopes, result)
    return result


def _first_graph_launch(trace: Trace, joined: LaunchJoin, rows: npt.NDArray[np.int64]) -> int:
    launch = joined.row[rows]
    launch = launch[launch >= 0]
    return int(trace.launches["start"].to_numpy()[launch].min()) if len(launch) else np.iinfo(np.int64).max


def _align(
    trace: Trace,
    rows: npt.NDArray[np.int64],
    captured: pd.DataFrame,
    ranges: pd.DataFrame,
    scopes: ScopeTable,
    result: Sequence,
) -> None:
    ops = trace.ops.iloc[rows]
    key = joint_key(ops["process"].to_numpy(), ops["correlation"].to_numpy())
    replay, _ = pd.factorize(key)
    order = np.lexsort((ops["start"].to_numpy(), replay))
    counts = np.bincount(replay)
    if len(set(counts.tolist())) != 1 or counts[0] != len(captured):
        sizes = ", ".join(str(c) for c in sorted(set(counts.tolist()))[:4])
        result.problems.append(
            f"The capture shows {len(captured)} launches and a replay has {sizes} ops, so order places none of them."
        )
        return
    kinds = ops["kind"].astype(object).to_numpy()[order].reshape(len(counts), -1)
    names = ops["name"].cat.codes.to_numpy()[order].reshape(len(counts), -1)
    if (kinds != captured["api"].astype(object).to_numpy()).any():
        result.problems.append("The kinds of the captured launches and of the replayed ops differ in order.")
        return
    if (names != names[0]).any():
        result.problems.append("The replays run their kernels in different orders, so order places none of them.")
        return
    found = scopes_at(
        ranges,
        captured["process"].to_numpy().astype(np.int64),
        captured["thread"].to_numpy(),
        captured["start"].to_numpy(),
        scopes,
    )
    result.placed[rows] = True
    result.scope[rows[order]] = np.tile(found, len(counts))
