"""Finds the steps of a trace.

Steps are the ranges that `--steps` selects; otherwise repeated outer ranges that each hold several launches (piecewise
graphs with eager work between, or an eager trace); otherwise graph replays, and beside them eager passes through the
layers (prefills).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit.attribution import Attribution
from profkit.attribution.op_order import mixed
from profkit.attribution.scopes import ScopeTable, scopes_at
from profkit.errors import ProfkitError
from profkit.model.scope import place
from profkit.model.selection import compiled
from profkit.model.steps import UNDER_RECORDED_SHARE, WHOLE_RECORDING, StepKind, Steps
from profkit.model.trace import NONE, Diagnostic, Trace, joint_key
from profkit.model.wording import listed

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_NUMBER = re.compile(r"\d+")


def find_steps(trace: Trace, attribution: Attribution, pattern: str | None = None) -> Steps:
    """Divide the ops of `trace` into steps.

    Args:
        pattern: a regular expression for the text of the ranges that are steps.

    Raises:
        ProfkitError: `pattern` is no regular expression or matches no range.
    """
    steps = _found_steps(trace, attribution, pattern)
    batches = _batches(trace, attribution, steps)
    return replace(steps, kinds=[replace(kind, batch=batch) for kind, batch in zip(steps.kinds, batches, strict=True)])


#: A launch runs between the steps of a kind if at most this share of them are not followed by it; of fewer steps than
#: these nothing tells what is regular.
_NOT_FOLLOWED, _FEWEST_FOLLOWED = 0.1, 3


def between_steps(
    trace: Trace, attribution: Attribution, steps: Steps
) -> list[dict[tuple[int, int], tuple[int, float]]]:
    """What runs eagerly behind each step of a kind and before the next step on its thread: for each kind of step, by
    the codes of name and kind of op, how often, and the mean of its nanoseconds a launch.

    It belongs to no replay and, as a sampler does, to every step. The last step of a thread has no end, and the first
    may be followed by another graph's capture, so what follows nearly all steps counts.
    """
    found: list[dict[tuple[int, int], tuple[int, float]]] = [{} for _ in steps.kinds]
    row, launches = attribution.joined.row, trace.launches
    known = row >= 0
    inside, free = np.flatnonzero(known & (steps.step >= 0)), np.flatnonzero(known & (steps.step < 0))
    if not len(inside) or not len(free):
        return found
    thread = pd.factorize(joint_key(launches["process"].to_numpy(), launches["thread"].to_numpy()))[0]
    # Of each step the last launch, then all others, in order on each thread; each stands behind the step before it.
    last = inside[np.lexsort((launches["start"].to_numpy()[row[inside]], steps.step[inside]))]
    last = last[np.r_[steps.step[last][1:] != steps.step[last][:-1], True]]
    rows = np.r_[last, free]
    order = rows[
        np.lexsort((np.arange(len(rows)) >= len(last), launches["start"].to_numpy()[row[rows]], thread[row[rows]]))
    ]
    own = steps.step[order] >= 0
    at = np.maximum.accumulate(np.where(own, np.arange(len(order)), 0))
    ends = np.flatnonzero(own)
    closed = np.zeros(len(order), dtype=np.bool_)
    closed[ends[:-1]] = thread[row[order[ends[:-1]]]] == thread[row[order[ends[1:]]]]
    behind = ~own & closed[at] & (thread[row[order]] == thread[row[order[at]]])
    ops = trace.ops.iloc[order[behind]]
    step = steps.step[order[at[behind]]]
    columns = (steps.kind[step], ops["name"].cat.codes.to_numpy(), ops["kind"].cat.codes.to_numpy(), step)
    launch, of_op, times = np.unique(np.stack(columns), axis=1, return_inverse=True, return_counts=True)
    ns = np.bincount(of_op.reshape(-1), weights=ops["end"].to_numpy() - ops["start"].to_numpy(), minlength=len(times))
    launch, times, ns = (array[..., np.lexsort((times, *launch[2::-1]))] for array in (launch, times, ns))
    first = np.flatnonzero(np.r_[True, (launch[:3, 1:] != launch[:3, :-1]).any(axis=0)][: launch.shape[1]])
    followed = np.diff(np.r_[first, launch.shape[1]])
    of_kind = np.bincount(steps.kind[steps.step[order[closed]]], minlength=len(steps.kinds))
    for begin, number in zip(first.tolist(), followed.tolist(), strict=True):
        kind, name, op_kind = launch[:3, begin].tolist()
        steps_without = int(of_kind[kind] * _NOT_FOLLOWED) - (int(of_kind[kind]) - number)
        if of_kind[kind] >= _FEWEST_FOLLOWED and steps_without >= 0:
            own = slice(begin, begin + number)
            found[kind][name, op_kind] = int(times[begin + steps_without]), float(ns[own].sum() / times[own].sum())
    return found


#: What engines write around a step: vLLM A prefills of B tokens and C decodes of D; others a word and a number.
_VLLM = re.compile(r"execute_context_(\d+)\((\d+)\)_generation_(\d+)\((\d+)\)")
_BATCH = re.compile(r"(decode|prefill|extend)?\W{0,3}(?:bs|batch|batch[_ ]size|bsz)\W{0,2}(\d+)(?!\d)", re.IGNORECASE)


def _batches(trace: Trace, attribution: Attribution, steps: Steps) -> list[str]:
    """What the innermost range that tells it says of the batch of each kind; "" where steps of a kind differ in more
    than a number, or nothing is told."""
    row = attribution.joined.row
    rows = np.flatnonzero((steps.step >= 0) & (row >= 0))
    if not len(rows) or not len(attribution.ranges):
        return [""] * len(steps.kinds)
    step, first = np.unique(steps.step[rows], return_index=True)
    launches = trace.launches.iloc[row[rows[first]]]
    scopes = ScopeTable()
    at = scopes_at(
        attribution.ranges,
        launches["process"].to_numpy().astype(np.int64),
        launches["thread"].to_numpy(),
        launches["start"].to_numpy(),
        scopes,
    )
    told = [next((t for text in reversed(path) if (t := _batch(text)) is not None), None) for path in scopes.paths]
    of_kind: list[set[tuple[str, int] | None]] = [set() for _ in steps.kinds]
    for kind, scope in zip(steps.kind[step].tolist(), at.tolist(), strict=True):
        of_kind[kind].add(told[scope])
    return [_told(batches) for batches in of_kind]


def _batch(text: str) -> tuple[str, int] | None:
    """A word and a number: ``decode``, 8."""
    vllm = _VLLM.search(text)
    if vllm is not None:
        prefills, tokens, decodes, _ = map(int, vllm.groups())
        if not prefills:
            return "decode", decodes
        return ("prefill of tokens" if not decodes else f"{decodes} decodes and prefill of tokens"), tokens
    other = _BATCH.search(text)
    return None if other is None else ((other[1] or "batch").lower(), int(other[2]))


def _told(batches: set[tuple[str, int] | None]) -> str:
    known = [batch for batch in batches if batch is not None]
    if None in batches or len({word for word, _ in known}) != 1:
        return ""
    low, high = min(known)[1], max(known)[1]
    return f"{known[0][0]} {low}" if low == high else f"{known[0][0]} {low}–{high}"


def _found_steps(trace: Trace, attribution: Attribution, pattern: str | None) -> Steps:
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
    return grouped(trace, attribution.joined.by_graph, whole, WHOLE_RECORDING, [note])


def _matching(ranges: pd.DataFrame, pattern: str) -> pd.DataFrame:
    regex = compiled("--steps", pattern)
    texts: Sequence[str] = ranges["text"].cat.categories.tolist() if len(ranges) else []
    hit = np.array([bool(regex.search(t)) for t in texts], dtype=bool)
    found = ranges[hit[ranges["text"].cat.codes.to_numpy()]] if len(ranges) else ranges
    if not len(found):
        shown = listed(sorted({_NUMBER.sub("#", t) for t in texts}), 12) or "none at all"
        raise ProfkitError(f"--steps {pattern!r} matches no range. Ranges in the trace (numbers as #): {shown}.")
    return found


def _outer_family(trace: Trace, attribution: Attribution) -> pd.DataFrame | None:
    """The repeated ranges, outside every layer, that each hold several launches and together hold most replays.

    A replay outside them (a warm-up, say) does not keep them from being steps; it belongs to none.
    """
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
    graph_of = pd.Series(graph_ids(trace.ops)).groupby(attribution.joined.row).first()
    best: tuple[int, int, pd.DataFrame] | None = None
    for _, found in candidates.groupby("shape", sort=False):
        if len(found) < 2:
            continue
        family = _outermost(found.drop(columns="shape"))
        if len(family) < 2 or _inside_layer(family, attribution):
            continue
        held, replays = _held(family, used), _held(family, graphs)
        if np.median(held) < 2 or 2 * replays.sum() < len(graphs) or _is_timing_loop(family, graphs, graph_of):
            continue
        length = int((family["end"] - family["start"]).sum())
        if best is None or (int(held.sum()), length) > best[:2]:
            best = (int(held.sum()), length, family)
    return None if best is None else best[2]


def _is_timing_loop(family: pd.DataFrame, graphs: pd.DataFrame, graph_of: pd.Series[int]) -> bool:
    """Whether the ranges are those of a timing loop: each holds several replays of one graph and no other launch of
    graphs. Steps are the replays then.

    Args:
        graph_of: the graph of each row of the trace's launches.
    """
    loops = 0
    for (process, thread), group in family.groupby(["process", "thread"], sort=False):
        mine = graphs[(graphs["process"] == process) & (graphs["thread"] == thread)].sort_values("start")
        ids = graph_of.reindex(mine.index).fillna(NONE).to_numpy()
        edges = np.searchsorted(mine["start"].to_numpy(), group[["start", "end"]].to_numpy())
        loops += sum(b - a > 1 and ids[a] != NONE and bool((ids[a:b] == ids[a]).all()) for a, b in edges.tolist())
    return 2 * loops > len(family)


def _outermost(family: pd.DataFrame) -> pd.DataFrame:
    """The ranges of `family` that lie in no other of them on their thread."""
    ordered = family.sort_values(["process", "thread", "start", "end"], ascending=[True, True, True, False])
    thread = ordered.groupby(["process", "thread"], sort=False).ngroup().to_numpy()
    start, end = ordered["start"].to_numpy(), ordered["end"].to_numpy()
    keep = np.ones(len(ordered), dtype=np.bool_)
    covered, current = 0, -1
    for index in range(len(ordered)):
        if thread[index] != current:
            covered, current = np.iinfo(np.int64).min, thread[index]
        keep[index] = start[index] >= covered
        covered = max(covered, end[index])
    return ordered[keep]


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


def _held(family: pd.DataFrame, launches: pd.DataFrame) -> Ints:
    """How many of `launches` start inside each range of `family`, on its process and thread."""
    held: list[Ints] = []
    starts = {k: np.sort(g["start"].to_numpy()) for k, g in launches.groupby(["process", "thread"], sort=False)}
    for key, group in family.groupby(["process", "thread"], sort=False):
        mine = starts.get(key, np.empty(0, np.int64))
        first = np.searchsorted(mine, group["start"].to_numpy())
        held.append(np.searchsorted(mine, group["end"].to_numpy()) - first)
    return np.concatenate(held)


def _by_ranges(trace: Trace, attribution: Attribution, family: pd.DataFrame, method: str) -> Steps:
    """Each op belongs to the range in which its launch starts, on the same process and thread."""
    launches = trace.launches
    range_of = np.full(len(launches), -1, dtype=np.int64)
    first = 0
    for (process, thread), group in _outermost(family).groupby(["process", "thread"], sort=True):
        group = group.sort_values("start")
        mine = np.flatnonzero((launches["process"] == process) & (launches["thread"] == thread))
        start = launches["start"].to_numpy()[mine]
        position = np.searchsorted(group["start"].to_numpy(), start, side="right") - 1
        inside = (position >= 0) & (group["end"].to_numpy()[np.maximum(position, 0)] > start)
        range_of[mine[inside]] = first + position[inside]
        first += len(group)
    row = attribution.joined.row
    step = np.where(row >= 0, range_of[row] if len(range_of) else -1, -1)
    silent = (launches["api"] == "graph").to_numpy() & ~attribution.joined.used
    notes = _silent_note(int((silent & (range_of >= 0)).sum()), int((launches["api"] == "graph").sum()))
    return grouped(
        trace, attribution.joined.by_graph, step, method, notes, partial=np.unique(range_of[silent & (range_of >= 0)])
    )


def _by_replays(trace: Trace, attribution: Attribution) -> Steps:
    ops, joined = trace.ops, attribution.joined
    key = joint_key(ops["process"].to_numpy(), ops["correlation"].to_numpy())
    replay = np.full(len(ops), -1, dtype=np.int64)
    in_graph = joined.by_graph & (ops["correlation"].to_numpy() != NONE)
    replay[in_graph] = pd.factorize(key[in_graph])[0]
    passes = _eager_passes(trace, attribution)
    eager = passes >= 0
    replays = int(replay.max(initial=-1)) + 1
    replay[eager] = replays + passes[eager]
    method = "graph replays and eager passes through the layers" if eager.any() else "graph replays"
    graphs = (trace.launches["api"] == "graph").to_numpy()
    silent, launched = int((graphs & ~joined.used).sum()), int(graphs.sum())
    notes = _silent_note(silent, launched)
    return grouped(trace, joined.by_graph, replay, method, notes, silent=silent, launched=launched, replays=replays)


def _eager_passes(trace: Trace, attribution: Attribution) -> Ints:
    """For each op the pass that it belongs to, -1 for none: eager launches on one thread, from the first layer's to the
    last's, in which no layer of a stack comes before one that was there already.

    Passes through fewer layers than the longest, around a graph launch, or mostly of launches in no layer are none.
    """
    joined, launches = attribution.joined, trace.launches
    found = np.full(len(trace.ops), -1, dtype=np.int64)
    places = [place(path) for path in attribution.paths]
    layered = np.array([p.layer is not None for p in places], dtype=bool)
    eager = (joined.row >= 0) & ~joined.by_graph
    rows = np.flatnonzero(eager & layered[attribution.scope] & (attribution.method > 0))
    if not len(rows):
        return found
    process, thread, start = (launches[name].to_numpy() for name in ("process", "thread", "start"))
    in_order = np.lexsort((start, thread, process))
    position = np.empty(len(launches), dtype=np.int64)
    position[in_order] = np.arange(len(launches))
    rows = rows[np.argsort(position[joined.row[rows]], kind="stable")]
    launch, scope = joined.row[rows], attribution.scope[rows]
    turns = np.flatnonzero(
        np.r_[True, (scope[1:] != scope[:-1]) | (thread[launch][1:] != thread[launch][:-1])]
        | np.r_[True, process[launch][1:] != process[launch][:-1]]
    )
    begins: list[int] = []
    held: list[set[tuple[str, int]]] = []
    last: dict[str, int] = {}
    on = None
    for at in turns.tolist():
        key = places[int(scope[at])].layer
        assert key is not None  # rows are in layers
        own = int(process[launch[at]]), int(thread[launch[at]])
        if own != on or key.number < last.get(key.stack, key.number):
            begins.append(at)
            held.append(set())
            last, on = {}, own
        last[key.stack] = key.number
        held[-1].add((key.stack, key.number))
    most = max(map(len, held))
    of_launch = np.full(len(launches), -1, dtype=np.int64)
    number = 0
    graphs = ((launches["api"] == "graph").to_numpy() & joined.used)[in_order]
    ops_of = np.bincount(joined.row[eager], minlength=len(launches))[in_order]
    for begin, end, layers in zip(begins, [*begins[1:], len(rows)], held, strict=True):
        first, final = position[launch[begin]], position[launch[end - 1]]
        mostly = 2 * (end - begin) >= ops_of[first : final + 1].sum()
        if len(layers) == most > 1 and mostly and not graphs[first : final + 1].any():
            of_launch[in_order[first : final + 1]] = number
            number += 1
    found[eager] = of_launch[joined.row[eager]]
    return found


def _silent_note(silent: int, launched: int) -> list[Diagnostic]:
    if not silent:
        return []
    message = f"{silent} of {launched} graph launches have no ops in the recording."
    return [Diagnostic("launches-without-ops", message)]


def grouped(
    trace: Trace,
    by_graph: Flags,
    group: Ints,
    method: str,
    notes: list[Diagnostic],
    *,
    silent: int = 0,
    launched: int = 0,
    partial: Ints | None = None,
    replays: int = 0,
) -> Steps:
    """Number the groups by start, leave incomplete ones out and sort the rest into kinds.

    Args:
        by_graph: the ops that a graph launched.
        group: each op's group, -1 for none.
        silent: graph launches without ops that would have been steps.
        partial: groups that are known to have lost ops.
        replays: the groups below this number are what one launch of a graph ran.
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
    replayed = np.zeros(count, dtype=np.bool_)
    replayed[rank] = unique < replays
    launch, launches = (step_of_row, count) if replayed.all() else _launch_codes(within)
    signature, label = _signatures(within, step_of_row, count, launch, launches)
    lost = without_nodes(within, step_of_row, count, launch, launches, notes)
    if replays:
        by_sequence = [name is None and own for name, own in zip(label, replayed.tolist(), strict=True)]
        lost |= without_ops(within, step_of_row, signature, by_sequence, notes)
    if partial is not None:
        lost[rank[np.isin(unique, partial)]] = True
    kept = np.flatnonzero(~lost)
    renumber = np.full(count, -1, dtype=np.int64)
    renumber[kept] = np.arange(len(kept))
    step = np.full(len(ops), -1, dtype=np.int32)
    step[rows] = renumber[step_of_row]
    kinds, kind = _kinds(within, step[rows], signature[kept], [label[i] for i in kept], by_graph[rows])
    total = (int(replayed.sum()) if replays else count) + silent
    share = (int(lost.sum()) + silent) / total if total else 0.0
    return Steps(step, kind, kinds, method, int(lost.sum()), launched, tuple(notes), share > UNDER_RECORDED_SHARE)


def _launch_codes(ops: pd.DataFrame) -> tuple[Ints, int]:
    """The launch that each op comes from, numbered, and how many there are."""
    codes, unique = pd.factorize(joint_key(ops["process"].to_numpy(), ops["correlation"].to_numpy()))
    return codes.astype(np.int64), len(unique)


def _signatures(
    ops: pd.DataFrame, step: Ints, count: int, launch: Ints, launches: int
) -> tuple[Ints, list[str | None]]:
    """What makes two steps one kind: the executable graph where one graph is the whole step, else the op sequence."""
    graph = graph_ids(ops)
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
    several = len(np.unique(process)) > 1
    of = [f" of process {p}" if several else "" for p in process.tolist()]
    return signature, [f"graph {lowest[i]}{of[i]}" if one_graph[i] else None for i in range(count)]


def _launches_in(step: Ints, count: int, launch: Ints, launches: int) -> Ints:
    """How many launches each step's ops come from."""
    if launch is step:
        return np.ones(count, dtype=np.int64)
    pairs = pd.unique(step * launches + launch)
    return np.bincount(pairs // launches, minlength=count)


def _sequence_hashes(ops: pd.DataFrame, step: Ints, count: int) -> Ints:
    """A hash of each step's ops in order on each stream: their names, and the graphs they are of, since those of other
    batches may run the same kernels. Streams may interleave differently from step to step, and have other numbers."""
    stream, _ = pd.factorize(joint_key(ops["device"].to_numpy(), ops["stream"].to_numpy()))
    order = np.lexsort((ops["start"].to_numpy(), stream, step))
    group = step[order] * (int(stream.max()) + 1) + stream[order]
    first = np.flatnonzero(np.r_[True, group[1:] != group[:-1]])
    position = np.arange(len(order)) - np.repeat(first, np.diff(np.r_[first, len(order)]))
    names = ops["name"].cat
    graph, _ = pd.factorize(graph_ids(ops))
    codes = (graph.astype(np.int64) * len(names.categories) + names.codes.to_numpy())[order]
    of_stream = np.add.reduceat(mixed(codes, position), first)
    total = np.zeros(count, dtype=np.uint64)
    np.add.at(total, step[order][first], pd.util.hash_array(of_stream))
    return total.view(np.int64)


def _kinds(
    ops: pd.DataFrame, step: npt.NDArray[np.int32], signature: Ints, label: list[str | None], by_graph: Flags
) -> tuple[list[StepKind], npt.NDArray[np.int32]]:
    codes, unique = pd.factorize(signature)
    inside = step >= 0
    kind_of_row = codes[step[inside]]
    process_of = ops["process"].to_numpy()[inside]
    duration = (ops["end"].to_numpy() - ops["start"].to_numpy())[inside]
    gpu_ns = np.bincount(kind_of_row, weights=duration, minlength=len(unique)).astype(np.int64)
    launches = np.bincount(kind_of_row, minlength=len(unique))
    steps = np.bincount(codes, minlength=len(unique))
    graphs = np.bincount(kind_of_row, weights=by_graph[inside], minlength=len(unique))
    order = np.lexsort((-launches, -gpu_ns))
    kinds: list[StepKind] = []
    for position, old in enumerate(order, start=1):
        name = label[int(np.flatnonzero(codes == old)[0])]
        sizes = int(steps[old]), int(launches[old] // steps[old]), int(gpu_ns[old])
        one_process = int(process_of[kind_of_row == old].min()) == int(process_of[kind_of_row == old].max())
        one_graph = name is not None and one_process
        kinds.append(StepKind(name or f"sequence {position}", *sizes, one_graph=one_graph, replayed=bool(graphs[old])))
    new = np.empty(len(unique), dtype=np.int32)
    new[order] = np.arange(len(unique))
    return kinds, new[codes].astype(np.int32)


#: Without nodes, a replay is taken for a partial one of another graph only if such replays are at most this share of
#: the whole ones and each misses at most this share of their launches: graphs of other batch sizes run other kernels.
_RARE, _MISSING = 0.1, 0.1


def without_nodes(
    ops: pd.DataFrame,
    step: Ints,
    count: int,
    replay: Ints,
    replays: int,
    notes: list[Diagnostic],
) -> Flags:
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


def _nodes_of(replay: Ints, replays: int, node: Ints, nodes: int, kind: Any, kinds: int) -> tuple[Ints, Ints]:
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
    step: Ints,
    signature: Ints,
    by_sequence: Sequence[bool],
    notes: list[Diagnostic],
) -> Flags:
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


def _sequence(ops: pd.DataFrame, step: Ints, wanted: int) -> list[tuple[int, int, int]]:
    """Stream and name of the ops of one replay, stream by stream in order."""
    mine = ops.iloc[np.flatnonzero(step == wanted)].sort_values(["device", "stream", "start"])
    columns = (mine["device"], mine["stream"], mine["name"].cat.codes)
    return list(zip(*(c.tolist() for c in columns), strict=True))


def _embeds(part: Sequence[object], whole: Sequence[object]) -> bool:
    rest = iter(whole)
    return all(any(op == other for other in rest) for op in part)


def graph_ids(ops: pd.DataFrame) -> Ints:
    """The executable graph of each op, `NONE` for eager ops. An nsys node id holds its graph's id in the upper half;
    exports before 2025.5 have no column for it."""
    graph, node = ops["graph"].to_numpy(), ops["node"].to_numpy()
    return np.where((graph == NONE) & (node != NONE), node >> 32, graph)
