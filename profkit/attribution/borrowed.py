"""Borrowed: another recording of the same program knows its layers, and lends them to the same launches here.

For a window that was opened after the graphs were captured, which is how servers are profiled. Each graph here is held
against the graphs of the lending recording, one by one. One with the same launches (canonical names and kinds) in the
same order on each stream lends their scopes exactly: the third launch of a name here is the third of that name there.
That holds however two streams overlap, and a name whose order differs from replay to replay there lends nothing. Where
no graph has the same launches, the most similar one is aligned in order, stream by stream, with coverage, or not at
all: a library may have chosen other kernels for the same products.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit.attribution.method import Context, Lender, LentGraph, Path, Placement
from profkit.attribution.op_order import Groups, grouped, op_codes
from profkit.model.scope import place
from profkit.model.trace import NONE, Diagnostic, Trace, joint_key
from profkit.model.wording import listed

Ints = npt.NDArray[np.int64]
#: Canonical name and kind of an op.
Launch = tuple[str, str]

#: Graphs that are held against others; a server has a graph for each of a hundred batch sizes.
_MOST_GRAPHS = 256
#: An alignment that covers less of either graph's ops is of another program.
_LEAST_ALIGNED = 0.9
#: Aligning takes time by the product of the lengths.
_LONGEST_ALIGNED = 20_000


@dataclass(frozen=True)
class _Replays:
    """The replays of a trace by what they launch, whatever its order.

    Args:
        groups: the ops of each replay, sorted by launch and then by start.
        launches: canonical name and kind of each op of the trace that is in a replay.
    """

    groups: Groups
    launches: npt.NDArray[np.object_]

    def shapes(self) -> range:
        """The kinds of replay, the most common first."""
        return range(min(int(self.groups.shape.max(initial=-1)) + 1, _MOST_GRAPHS))


def _replays(trace: Trace, rows: Ints) -> _Replays:
    ops = trace.ops
    codes = op_codes(trace)
    kinds: list[str] = ops["kind"].cat.categories.tolist()
    used = np.unique(codes.code[rows])
    labels = [(codes.names[c], kinds[c % len(kinds)]) for c in used.tolist()]
    # Numbered by name, so that the same launches stand in the same order in every recording.
    number = np.empty(len(used), dtype=np.int64)
    number[sorted(range(len(used)), key=labels.__getitem__)] = np.arange(len(used))
    by_name = np.zeros(len(ops), dtype=np.int64)
    by_name[rows] = number[np.searchsorted(used, codes.code[rows])]
    order = np.lexsort((ops["start"].to_numpy()[rows], by_name[rows]))
    position = np.zeros(len(ops), dtype=np.int64)
    position[rows[order]] = np.arange(len(rows))
    key = joint_key(ops["process"].to_numpy()[rows], ops["correlation"].to_numpy()[rows])
    replay = np.unique(key, return_inverse=True)[1].reshape(-1)
    launches = np.empty(len(ops), dtype=object)
    in_order = np.empty(len(labels), dtype=object)
    in_order[:] = sorted(labels)
    launches[rows] = in_order[by_name[rows]]
    return _Replays(grouped(rows, replay, position, by_name), launches)


def _by_stream(trace: Trace, rows: Ints) -> list[int]:
    """The order of ops of one replay, as indices: stream by stream, the one with most ops first, each by start."""
    stream = pd.factorize(trace.ops["stream"].to_numpy()[rows])[0]
    held = np.bincount(stream)
    order: list[int] = np.lexsort((trace.ops["start"].to_numpy()[rows], stream, -held[stream])).tolist()
    return order


def lend(source: str, context: Context, exact: npt.NDArray[np.bool_]) -> Lender:
    """The graphs of a recording whose ops `exact` were placed by identity."""
    trace = context.trace
    rows = np.flatnonzero(context.joined.by_graph & (trace.ops["correlation"].to_numpy() != NONE))
    found: list[LentGraph] = []
    if len(rows):
        replays = _replays(trace, rows)
        places = [place(path) for path in context.scopes.paths]
        numbers: dict[object, int] = {}
        # The ranges around a layer only name the capture: graphs of several batch sizes differ in them.
        of_scope = np.array([numbers.setdefault((p.layer, p.inside), len(numbers)) for p in places])
        for shape in replays.shapes():
            members = replays.groups.members(shape)
            where = of_scope[context.scope[members]]
            known = exact[members].all(axis=0) & (where == where[0]).all(axis=0)
            paths = [
                tuple(context.scopes.paths[s]) if sure else None
                for s, sure in zip(context.scope[members[0]].tolist(), known.tolist(), strict=True)
            ]
            if any(path is not None and place(path).layer is not None for path in paths):
                launches = tuple(replays.launches[members[0]].tolist())
                found.append(LentGraph(launches, paths, _by_stream(trace, members[0])))
    return Lender(source, found)


def attribute(context: Context) -> Placement:
    """Place the ops of graph replays as the graphs of `Context.lenders` were placed."""
    trace = context.trace
    if not context.lenders:
        return Placement.nothing(context)
    sources = ", ".join(dict.fromkeys(lender.source for lender in context.lenders))
    rows = np.flatnonzero(~context.placed & context.joined.by_graph & (trace.ops["correlation"].to_numpy() != NONE))
    if not len(rows):
        message = f"Nothing was taken from {sources}: this recording has no graph replay that is not placed already."
        return Placement.nothing(context, Diagnostic("borrowed-not-needed", message))
    graphs = [graph for lender in context.lenders for graph in lender.graphs]
    if not graphs:
        message = (
            f"Nothing was taken from {sources}: no layer is known by identity in a graph replay there. Record the "
            "program's start, where its graphs are captured, with ranges around its layers."
        )
        return Placement.nothing(context, Diagnostic("borrowed-does-not-fit", message))
    placed, scope = np.zeros(len(trace.ops), np.bool_), np.zeros(len(trace.ops), np.int32)
    notes: list[Diagnostic] = []
    replays = _replays(trace, rows)
    for shape in replays.shapes():
        members = replays.groups.members(shape)
        launches: tuple[Launch, ...] = tuple(replays.launches[members[0]].tolist())
        paths, how = _borrow(launches, _by_stream(trace, members[0]), graphs)
        for column, path in enumerate(paths):
            if path is not None:
                placed[members[:, column]], scope[members[:, column]] = True, context.scopes.intern(path)
        taken = sum(path is not None for path in paths)
        text = f"{taken} of {members.shape[1]} ops in each of {len(members)} replays: {how} in {sources}."
        notes.append(
            Diagnostic("borrowed", f"Layers of {text}")
            if taken
            else Diagnostic("borrowed-does-not-fit", f"No layers for {text}")
        )
    return Placement(placed, scope, notes)


def _borrow(
    launches: tuple[Launch, ...], order: Sequence[int], graphs: Sequence[LentGraph]
) -> tuple[Sequence[Path | None], str]:
    """The path of each launch, None where it is not known; and how it was found."""
    in_order = [launches[i] for i in order]
    same = [g for g in graphs if g.launches == launches and [g.launches[i] for i in g.order] == in_order]
    if same:
        columns = zip(*(graph.paths for graph in same), strict=True)
        return [_agreed(paths) for paths in columns], "those of the graph with the same launches"
    nothing: list[Path | None] = [None] * len(launches)
    held = Counter(map(_family, launches))
    best = max(graphs, key=lambda graph: _likeness(held, Counter(map(_family, graph.launches))))
    if max(len(launches), len(best.launches)) > _LONGEST_ALIGNED:
        return nothing, f"no graph has the same launches, and more than {_LONGEST_ALIGNED:,} are not aligned,"
    here, there = [_family(launch) for launch in in_order], [_family(best.launches[i]) for i in best.order]
    matcher = SequenceMatcher(None, here, there, autojunk=False)
    found = list(nothing)
    for block in matcher.get_matching_blocks():
        for offset in range(block.size):
            found[order[block.a + offset]] = best.paths[best.order[block.b + offset]]
    # Of both: a model of more layers holds those of a smaller one, under other numbers.
    aligned = sum(block.size for block in matcher.get_matching_blocks()) / max(len(launches), len(best.launches))
    if aligned < _LEAST_ALIGNED:
        return nothing, f"no graph has the same launches, and the most similar one aligns with {aligned:.0%} of them,"
    if absent := _absent_layers(best, found):
        return nothing, f"the most similar graph has layers that are not here ({listed(absent, 4)})"
    return _bridged(found, order), f"those of the most similar graph, which aligns with {aligned:.1%} of them,"


def _absent_layers(graph: LentGraph, found: Sequence[Path | None]) -> list[str]:
    """Layers of a graph of which less than half was found here: then which of alike layers the others are is open."""
    held = [Counter(key for p in paths if p is not None and (key := place(p).layer)) for paths in (graph.paths, found)]
    return [f"{key.stack}{key.number}" for key, number in held[0].items() if 2 * held[1][key] < number]


_NUMBER = re.compile(r"\d+")
_GEMM = re.compile(r"nvjet|gemm|cutlass|xmma|Cijk_", re.IGNORECASE)


def _family(launch: Launch) -> Launch:
    """What stays of a launch where a library chose another kernel for the same work: no sizes, and not which GEMM."""
    name, kind = launch
    return "gemm" if _GEMM.search(name) else _NUMBER.sub("#", name), kind


def _agreed(paths: Sequence[Path | None]) -> Path | None:
    """The path that all name, but for the ranges around its layer."""
    first = paths[0]
    if first is None or None in paths:
        return None
    return first if len({(place(p).layer, place(p).inside) for p in paths if p is not None}) == 1 else None


def _bridged(found: list[Path | None], order: Sequence[int]) -> list[Path | None]:
    """`found`, with the launches between two of one layer in that layer, in the ranges that the two share."""
    result = list(found)
    last: Path | None = None
    waiting: list[int] = []
    for column in order:
        path = found[column]
        if path is None:
            waiting.append(column)
            continue
        if last is not None and waiting and (layer := place(path).layer) is not None and place(last).layer == layer:
            shared = 0
            while shared < min(len(path), len(last)) and path[shared] == last[shared]:
                shared += 1
            if place(path[:shared]).layer == layer:
                for between in waiting:
                    result[between] = path[:shared]
        last, waiting = path, []
    return result


def _likeness(one: Counter[Launch], other: Counter[Launch]) -> float:
    return (one & other).total() / max((one | other).total(), 1)
