"""Sequence: the launches of the graph's capture, in order, name the layers of the replay's ops, in order.

For traces without node lineage. The capture is in the same trace, as our own torch.profiler captures have it, or in
capture traces of its own, as serving engines write them. Where launches carry kernel names (ROCm) the alignment is by
name and launches that became no op are skipped; elsewhere it is by count, by kind and by enclosing operator: weaker,
and labelled so. What does not fit is not placed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence as Ordered
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit.attribution.alignment import Aligned, by_count, by_name
from profkit.attribution.captures import Capture, captures_in
from profkit.attribution.lanes import overlapping
from profkit.attribution.launches import LaunchJoin
from profkit.attribution.op_order import Groups, grouped, op_codes
from profkit.attribution.scopes import ScopeTable
from profkit.attribution.told import short
from profkit.model import names as kernel_names
from profkit.model.scope import place
from profkit.model.trace import NONE, Diagnostic, Trace, joint_key

Ints = npt.NDArray[np.int64]

#: Graphs that are aligned one by one; a server has a graph for each of a hundred batch sizes.
_MOST_GRAPHS = 256
#: Names listed of launches that became no op.
_LISTED = 6


@dataclass(frozen=True)
class Sequence:
    """The result for every op: whether it was placed, its scope, and what there is to say."""

    placed: npt.NDArray[np.bool_]
    scope: npt.NDArray[np.int32]
    notes: list[Diagnostic] = field(default_factory=list)


@dataclass(frozen=True)
class CaptureTrace:
    """A trace that shows a graph's capture, and what reports call it."""

    source: str
    trace: Trace


def attribute(
    trace: Trace,
    joined: LaunchJoin,
    scopes: ScopeTable,
    open_ops: npt.NDArray[np.bool_],
    capture_traces: Ordered[CaptureTrace] = (),
) -> Sequence:
    """Place the ops of graph replays by the order of the capture's launches, graph by graph.

    Args:
        open_ops: the ops that no better method placed.
        scopes: grows by the paths found.
        capture_traces: where the captures are; none: in `trace` itself.
    """
    result = Sequence(np.zeros(len(trace.ops), np.bool_), np.zeros(len(trace.ops), np.int32))
    rows = np.flatnonzero(open_ops & joined.by_graph & (trace.ops["correlation"].to_numpy() != NONE))
    if not len(rows):
        return result
    process = trace.ops["process"].to_numpy()[rows]
    elsewhere = [c for t in capture_traces for c in _of_trace(t, scopes)]
    replay = np.unique(joint_key(process, trace.ops["correlation"].to_numpy()[rows]), return_inverse=True)[1].reshape(
        -1
    )
    codes = op_codes(trace).code
    for p in np.unique(process).tolist():
        mine = process == p
        captures = elsewhere or captures_in("this trace", trace, _captured(trace, joined, rows[mine], p), scopes)
        if captures:
            replays = grouped(rows[mine], replay[mine], trace.ops["start"].to_numpy(), codes)
            _place(trace, replays, captures, scopes, result)
    return result


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


def _place(trace: Trace, replays: Groups, captures: Ordered[Capture], scopes: ScopeTable, result: Sequence) -> None:
    stream = joint_key(trace.ops["device"].to_numpy(), trace.ops["stream"].to_numpy())
    start, end = trace.ops["start"].to_numpy(), trace.ops["end"].to_numpy()
    if overlapping(replays, stream, start, end):
        message = "The replays' streams overlap, so the order in which ops start is not the order of their capture."
        result.notes.append(Diagnostic("sequence-does-not-fit", message))
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
            message = f"Order places none of {members.size} ops: {'; '.join(list(dict.fromkeys(reasons))[:3])}."
            result.notes.append(Diagnostic("sequence-does-not-fit", message))
        elif len({_told_places(c, a, scopes) for c, a in fits}) > 1:
            message = f"{len(fits)} captures fit {members.size} ops equally well and name different layers for them."
            result.notes.append(Diagnostic("sequence-ambiguous", message))
        else:
            _write(members, *fits[0], result)


def _fitting(
    captures: Ordered[Capture], op_kinds: list[str], op_names: list[str]
) -> tuple[list[tuple[Capture, Aligned]], list[str]]:
    fits: list[tuple[Capture, Aligned]] = []
    reasons: list[str] = []
    keys = [n if k == "kernel" else k for n, k in zip(op_names, op_kinds, strict=True)]
    for capture in captures:
        if capture.named:
            launches = [n if k == "kernel" else k for n, k in zip(capture.kernels, capture.kinds, strict=True)]
            aligned = by_name(launches, keys)
        else:
            aligned = by_count(capture.kinds, capture.operators, op_kinds, op_names)
        if isinstance(aligned, str):
            reasons.append(aligned)
        else:
            fits.append((capture, aligned))
    # The launches of one range are also among those of the whole trace: one capture, found twice.
    whole = [fit for fit in fits if len(fit[0].kinds) == len(op_kinds)]
    return whole or fits, reasons


def _told_places(capture: Capture, aligned: Aligned, scopes: ScopeTable) -> tuple[object, ...]:
    """What a capture says about each op: its layer, and where in it. The ranges around layers only name the capture."""
    places = {s: place(scopes.paths[s]) for s in np.unique(capture.scope).tolist()}
    return tuple((places[s].layer, places[s].inside) for s in capture.scope[aligned.leftmost].tolist())


def _write(members: Ints, capture: Capture, aligned: Aligned, result: Sequence) -> None:
    scope = capture.scope[aligned.leftmost]
    certain = scope == capture.scope[aligned.rightmost]
    if not capture.scope.any():
        message = f"{capture.source} shows the capture, and no range or module around any of its launches."
        result.notes.append(Diagnostic("capture-without-ranges", message))
        return
    rows = members[:, certain]
    result.placed[rows] = True
    result.scope[rows] = scope[certain][None, :]
    result.notes.extend(_told(members, capture, aligned, certain))


def _told(members: Ints, capture: Capture, aligned: Aligned, certain: npt.NDArray[np.bool_]) -> list[Diagnostic]:
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
        display = kernel_names.display_names(lost)
        listed = ", ".join(f"{n} × {short(display[k])}" for k, n in lost.most_common(_LISTED))
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
