"""Sequence: the launches of the graph's capture, in order, name the layers of the replay's ops, in order.

For traces without node lineage. The capture is in the same trace, as our own torch.profiler captures have it, or in
capture traces of its own, as serving engines write them. Where launches carry kernel names (ROCm) the alignment is by
name and launches that became no op are skipped; elsewhere it is by count, by kind and by enclosing operator: weaker,
and labelled so. What does not fit is not placed.

By name the ops must be a subsequence of the launches. There may be several ways to embed one in the other; the leftmost
and the rightmost bound them all, so an op that both give the same layer has that layer in every way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit.attribution.captures import Capture, captures_in
from profkit.attribution.method import CaptureTrace, Context, LaunchJoin, Placement
from profkit.attribution.op_order import Groups, grouped, op_codes, overlapping
from profkit.attribution.scopes import ScopeTable
from profkit.model import names as kernel_names
from profkit.model.names import display, shortened
from profkit.model.scope import place
from profkit.model.trace import NONE, Diagnostic, Trace, joint_key
from profkit.model.wording import listed

Ints = npt.NDArray[np.int64]

#: Graphs that are aligned one by one; a server has a graph for each of a hundred batch sizes.
_MOST_GRAPHS = 256
#: Names listed of launches that became no op.
_LISTED = 6


@dataclass(frozen=True)
class _Found:
    """The result for every op so far: whether it was placed, its scope, and what there is to say."""

    placed: npt.NDArray[np.bool_]
    scope: npt.NDArray[np.int32]
    notes: list[Diagnostic] = field(default_factory=list)


def attribute(context: Context) -> Placement:
    """Place the ops of graph replays by the order of the capture's launches, graph by graph."""
    trace, scopes = context.trace, context.scopes
    rows = np.flatnonzero(~context.placed & context.joined.by_graph & (trace.ops["correlation"].to_numpy() != NONE))
    if not len(rows):
        return Placement.nothing(context)
    found = _Found(np.zeros(len(trace.ops), np.bool_), np.zeros(len(trace.ops), np.int32))
    process = trace.ops["process"].to_numpy()[rows]
    elsewhere = [c for t in context.capture_traces for c in _of_trace(t, scopes)]
    key = joint_key(process, trace.ops["correlation"].to_numpy()[rows])
    replay = np.unique(key, return_inverse=True)[1].reshape(-1)
    codes = op_codes(trace).code
    for p in np.unique(process).tolist():
        mine = process == p
        captures = elsewhere or captures_in(
            "this trace", trace, _captured(trace, context.joined, rows[mine], p), scopes
        )
        if captures:
            replays = grouped(rows[mine], replay[mine], trace.ops["start"].to_numpy(), codes)
            _place(trace, replays, captures, scopes, found)
    return Placement(found.placed, found.scope, found.notes)


def _captured(trace: Trace, joined: LaunchJoin, rows: Ints, process: int) -> pd.DataFrame:
    """The launches of `process` that ran nothing, made before its first graph launch."""
    launches = trace.launches
    launch = joined.row[rows]
    launch = launch[launch >= 0]
    until = launches["start"].to_numpy()[launch].min() if len(launch) else np.iinfo(np.int64).max
    early = (launches["process"] == process).to_numpy() & (launches["start"].to_numpy() < until)
    return launches[early & ~joined.used & (launches["api"] != "graph").to_numpy()]


def _of_trace(capture: CaptureTrace, scopes: ScopeTable) -> list[Capture]:
    launches = capture.trace.launches
    launches = launches[(launches["api"] != "graph").to_numpy()]
    return [
        found
        for _, of_process in launches.groupby("process", sort=True)
        for found in captures_in(capture.source, capture.trace, of_process, scopes)
    ]


def _place(trace: Trace, replays: Groups, captures: Sequence[Capture], scopes: ScopeTable, found: _Found) -> None:
    stream = joint_key(trace.ops["device"].to_numpy(), trace.ops["stream"].to_numpy())
    start, end = trace.ops["start"].to_numpy(), trace.ops["end"].to_numpy()
    if overlapping(replays, stream, start, end):
        message = "The replays' streams overlap, so the order in which ops start is not the order of their capture."
        found.notes.append(Diagnostic("sequence-does-not-fit", message))
        return
    kinds = trace.ops["kind"].astype(object).to_numpy()
    names = trace.ops["name"].cat.categories
    canonical = np.array([kernel_names.canonical(n) for n in names], dtype=object)
    for shape in range(min(int(replays.shape.max()) + 1, _MOST_GRAPHS)):
        members = replays.members(shape)
        op_kinds: list[str] = kinds[members[0]].tolist()
        op_names: list[str] = canonical[trace.ops["name"].cat.codes.to_numpy()[members[0]]].tolist()
        fits, reasons = _fitting(captures, op_kinds, op_names)
        if not fits:
            message = f"Order places none of {members.size} ops: {listed(list(dict.fromkeys(reasons)), 3, '; ')}."
            found.notes.append(Diagnostic("sequence-does-not-fit", message))
        elif len({_places_of(c, a, scopes) for c, a in fits}) > 1:
            message = f"{len(fits)} captures fit {members.size} ops equally well and name different layers for them."
            found.notes.append(Diagnostic("sequence-ambiguous", message))
        else:
            _write(members, *fits[0], found)


def _fitting(
    captures: Sequence[Capture], op_kinds: list[str], op_names: list[str]
) -> tuple[list[tuple[Capture, _Aligned]], list[str]]:
    fits: list[tuple[Capture, _Aligned]] = []
    reasons: list[str] = []
    keys = [n if k == "kernel" else k for n, k in zip(op_names, op_kinds, strict=True)]
    for capture in captures:
        if capture.named:
            launches = [n if k == "kernel" else k for n, k in zip(capture.kernels, capture.kinds, strict=True)]
            aligned = _by_name(launches, keys)
        else:
            aligned = _by_count(capture.kinds, capture.operators, op_kinds, op_names)
        if isinstance(aligned, str):
            reasons.append(aligned)
        else:
            fits.append((capture, aligned))
    # The launches of one range are also among those of the whole trace: one capture, found twice.
    whole = [fit for fit in fits if len(fit[0].kinds) == len(op_kinds)]
    return whole or fits, reasons


def _places_of(capture: Capture, aligned: _Aligned, scopes: ScopeTable) -> tuple[object, ...]:
    """What a capture says about each op: its layer, and where in it. The ranges around layers only name the capture."""
    places = {s: place(scopes.paths[s]) for s in np.unique(capture.scope).tolist()}
    return tuple((places[s].layer, places[s].inside) for s in capture.scope[aligned.leftmost].tolist())


def _write(members: Ints, capture: Capture, aligned: _Aligned, found: _Found) -> None:
    scope = capture.scope[aligned.leftmost]
    certain = scope == capture.scope[aligned.rightmost]
    if not capture.scope.any():
        message = f"{capture.source} shows the capture, and no range or module around any of its launches."
        found.notes.append(Diagnostic("capture-without-ranges", message))
        return
    rows = members[:, certain]
    found.placed[rows] = True
    found.scope[rows] = scope[certain][None, :]
    found.notes.extend(_notes(members, capture, aligned, certain))


def _notes(members: Ints, capture: Capture, aligned: _Aligned, certain: npt.NDArray[np.bool_]) -> list[Diagnostic]:
    what = "Layers" if capture.has_layers else "Ranges, but no layers,"
    how = "checked by name" if aligned.by_name else "checked by count, kind and operator only"
    replays, ops = members.shape
    notes = [
        Diagnostic(
            "by-order",
            f"{what} of replayed ops come from the order of the capture's launches ({capture.source}), {how}: "
            f"{int(certain.sum())} of {ops} ops in each of {replays} replays.",
        )
    ]
    used = set(aligned.leftmost.tolist())
    skipped = Counter(capture.kernels[i] or capture.kinds[i] for i in range(len(capture.kinds)) if i not in used)
    lost = capture.at_once + skipped
    if lost:
        listed = ", ".join(f"{n} × {shortened(display(k))}" for k, n in lost.most_common(_LISTED))
        more = f", and {len(lost) - _LISTED} more names" if len(lost) > _LISTED else ""
        kernels = sum(n for k, n in lost.items() if k not in ("memcpy", "memset"))
        message = (
            f"{capture.source}: {kernels} of {capture.kernel_launches} captured kernel launches became no kernel of "
            f"the graph ({sum(capture.at_once.values())} launches ran at once): {listed}{more}."
        )
        notes.append(Diagnostic("launches-without-op", message))
    if not certain.all():
        message = f"{int((~certain).sum())} ops could be launches of two scopes, since a launch between became no op."
        notes.append(Diagnostic("sequence-ambiguous", message))
    return notes


#: Of a capture's launches, so many must have become ops, or the ops are another graph's: the worst loss in public
#: reports is 64 of 512.
_LEAST_USED = 0.8
#: By count alone, so many ops may come from another operator than the rest of their kernel's.
_MOST_CONTRADICTED = 0.1


@dataclass(frozen=True)
class _Aligned:
    """For each op of the replay its launch, in the two ways that bound all others; equal where aligned by count."""

    leftmost: Ints
    rightmost: Ints
    by_name: bool


def _by_name(launches: Sequence[object], ops: Sequence[object]) -> _Aligned | str:
    """Embed `ops` in `launches` in order.

    Args:
        launches, ops: what must be equal for a launch and an op to be one, e.g. kind and canonical name.

    Returns:
        the alignment, or why there is none.
    """
    if len(ops) < _LEAST_USED * len(launches):
        return f"the capture shows {len(launches)} launches and a replay has {len(ops)} ops, too few to be of it"
    leftmost = _embedded(launches, ops)
    if len(leftmost) < len(ops):
        return f"op {len(leftmost)} of {len(ops)}, {str(ops[len(leftmost)])[:60]}, has no launch of that name in order"
    rightmost = [len(launches) - 1 - i for i in _embedded(launches[::-1], ops[::-1])][::-1]
    return _Aligned(np.array(leftmost, np.int64), np.array(rightmost, np.int64), by_name=True)


def _embedded(launches: Sequence[object], ops: Sequence[object]) -> list[int]:
    found: list[int] = []
    for index, launch in enumerate(launches):
        if len(found) < len(ops) and launch == ops[len(found)]:
            found.append(index)
    return found


def _by_count(
    launch_kinds: Sequence[str], operators: Sequence[str], op_kinds: Sequence[str], op_names: Sequence[str]
) -> _Aligned | str:
    """Pair launches and ops one to one, in order.

    Args:
        launch_kinds, op_kinds: kernel, memcpy or memset.
        operators: the innermost operator around each launch, "" for none.
        op_names: canonical kernel names.

    Returns:
        the alignment, or why there is none.
    """
    if len(launch_kinds) != len(op_kinds):
        return f"the capture shows {len(launch_kinds)} launches and a replay has {len(op_kinds)} ops"
    if list(launch_kinds) != list(op_kinds):
        return "the kinds of the captured launches and of the replayed ops differ in order"
    # One kernel comes from one operator, mostly; pairs shifted against each other would mix them.
    pairs = Counter(zip(op_names, operators, strict=True))
    usual: dict[str, int] = {}
    for (name, _), count in pairs.items():
        usual[name] = max(usual.get(name, 0), count)
    contradicted = len(op_names) - sum(usual.values())
    if contradicted > _MOST_CONTRADICTED * len(op_names):
        return f"{contradicted} of {len(op_names)} ops would come from another operator than their kernel's others"
    same = np.arange(len(op_kinds), dtype=np.int64)
    return _Aligned(same, same, by_name=False)
