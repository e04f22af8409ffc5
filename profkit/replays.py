"""Which replays of a graph lost ops, or ran one twice: by their nodes, or else by the order of their launches."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit.trace import NONE, Diagnostic, joint_key

#: Without nodes, a replay is taken for a partial one of another graph only if such replays are at most this share of
#: the whole ones and each misses at most this share of their launches: graphs of other batch sizes run other kernels.
_RARE, _MISSING = 0.1, 0.1


def without_nodes(
    ops: pd.DataFrame,
    step: npt.NDArray[np.int64],
    count: int,
    replay: npt.NDArray[np.int64],
    replays: int,
    notes: list[Diagnostic],
) -> npt.NDArray[np.bool_]:
    """Steps with a replay that misses nodes which other replays of its graph ran, or that ran a node twice.

    A replay is one launch of a graph; a step may launch one graph several times, or several graphs.
    """
    lost = np.zeros(count, dtype=np.bool_)
    has_node = (ops["node"] != NONE).to_numpy() & (ops["correlation"] != NONE).to_numpy()
    if not has_node.any():
        return lost
    if not has_node.all():
        ops, step, replay = ops[has_node], step[has_node], replay[has_node]
    node, nodes = pd.factorize(ops["node"].to_numpy())
    graph_of = np.full(replays, np.iinfo(np.int64).max)
    np.minimum.at(graph_of, replay, graph_ids(ops))
    process_of = np.zeros(replays, np.int32)
    process_of[replay] = ops["process"].to_numpy()
    kind, kinds = pd.factorize(joint_key(process_of, graph_of))
    have, expected = _nodes_of(replay, replays, node.astype(np.int64), len(nodes), kind, len(kinds))
    ran = np.bincount(replay, minlength=replays)
    expected = expected[kind]
    partial = have < expected
    # A conditional body runs its nodes several times under one launch, in every replay alike.
    usual = np.full(len(kinds), np.iinfo(np.int64).max)
    np.minimum.at(usual, kind[~partial], ran[~partial])
    doubled = ran > usual[kind]
    step_of = np.zeros(replays, np.int64)
    step_of[replay] = step
    for code, which, text in (
        ("partial-replay", partial, "missed nodes that other replays of their graph ran"),
        ("doubled-node", doubled & ~partial, "ran a node more than once"),
    ):
        if which.any():
            message = f"{int(which.sum())} of {replays} replays {text}; their steps are left out."
            notes.append(Diagnostic(code, message))
            lost[step_of[which]] = True
    return lost


def _nodes_of(
    replay: npt.NDArray[np.int64], replays: int, node: npt.NDArray[np.int64], nodes: int, kind: Any, kinds: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """How many different nodes each replay ran, and how many all replays of each graph ran together."""
    pair = replay * nodes + node
    if replays * nodes <= 8 * len(pair):
        # Nearly every pair occurs: a table of flags is smaller and quicker than a hash of the pairs.
        flags = np.zeros((replays, nodes), dtype=np.bool_)
        flags.reshape(-1)[pair] = True
        of_graph = [int(flags[kind == k].any(axis=0).sum()) for k in range(kinds)]
        return flags.sum(axis=1), np.array(of_graph, dtype=np.int64)
    distinct = pd.unique(pair)
    have = np.bincount(distinct // nodes, minlength=replays)
    together = pd.unique(kind[distinct // nodes].astype(np.int64) * nodes + distinct % nodes)
    return have, np.bincount(together // nodes, minlength=kinds)


def without_ops(
    ops: pd.DataFrame,
    step: npt.NDArray[np.int64],
    signature: npt.NDArray[np.int64],
    by_sequence: Sequence[bool],
    notes: list[Diagnostic],
) -> npt.NDArray[np.bool_]:
    """Replays without nodes that ran, in order, nearly all of what many more replays ran, and nothing else.

    Args:
        ops: those of replays.
        step: the replay of each op.
        signature: for each replay, equal for equal sequences of launches.
        by_sequence: for each replay whether only its sequence tells its graph.
    """
    lost = np.zeros(len(signature), dtype=np.bool_)
    open_ = np.array(by_sequence, dtype=np.bool_)
    kinds, first, replays = np.unique(signature[open_], return_index=True, return_counts=True)
    if len(kinds) < 2:
        return lost
    members = np.flatnonzero(open_)[first]
    length = np.bincount(step, minlength=len(signature))[members]

    @cache
    def sequence(kind: int) -> list[tuple[int, int, int]]:
        return _sequence(ops, step, int(members[kind]))

    for rare in np.flatnonzero(replays <= _RARE * replays.max()).tolist():
        longer = (
            (length > length[rare]) & (length * (1 - _MISSING) <= length[rare]) & (replays[rare] <= _RARE * replays)
        )
        if any(_embeds(sequence(rare), sequence(whole)) for whole in np.flatnonzero(longer).tolist()):
            lost[signature == kinds[rare]] = True
    if lost.any():
        message = (
            f"{int(lost.sum())} of {int(open_.sum())} replays ran what others ran, in order, and not all of it; their "
            "steps are left out."
        )
        notes.append(Diagnostic("partial-replay", message))
    return lost


def _sequence(ops: pd.DataFrame, step: npt.NDArray[np.int64], wanted: int) -> list[tuple[int, int, int]]:
    """Stream and name of the ops of one replay, stream by stream in order."""
    mine = ops.iloc[np.flatnonzero(step == wanted)].sort_values(["device", "stream", "start"])
    columns = (mine["device"], mine["stream"], mine["name"].cat.codes)
    return list(zip(*(c.tolist() for c in columns), strict=True))


def _embeds(part: Sequence[object], whole: Sequence[object]) -> bool:
    rest = iter(whole)
    return all(any(op == other for other in rest) for op in part)


def graph_ids(ops: pd.DataFrame) -> npt.NDArray[np.int64]:
    """The executable graph of each op, `NONE` for eager ops. An nsys node id holds its graph's id in the upper half;
    exports before 2025.5 have no column for it."""
    graph, node = ops["graph"].to_numpy(), ops["node"].to_numpy()
    return np.where((graph == NONE) & (node != NONE), node >> 32, graph)
