"""Finds the steps of a trace.

Steps are the ranges that `--steps` selects; otherwise repeated outer ranges that each hold several launches (piecewise
graphs with eager work between, or an eager trace); otherwise graph replays.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit.attribution.ledger import Attribution
from profkit.attribution.scopes import ScopeTable, scopes_at
from profkit.errors import ProfkitError
from profkit.layers import place
from profkit.step_grouping import grouped
from profkit.steps import WHOLE_RECORDING, Steps
from profkit.trace import NONE, Diagnostic, Trace, joint_key

_NUMBER = re.compile(r"\d+")


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
    return grouped(trace, whole, WHOLE_RECORDING, [note])


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
    best: tuple[int, int, pd.DataFrame] | None = None
    for _, found in candidates.groupby("shape", sort=False):
        if len(found) < 2:
            continue
        family = _outermost(found.drop(columns="shape"))
        if len(family) < 2 or _inside_layer(family, attribution):
            continue
        held, replays = _held(family, used), _held(family, graphs)
        if np.median(held) < 2 or 2 * replays.sum() < len(graphs):
            continue
        length = int((family["end"] - family["start"]).sum())
        if best is None or (int(held.sum()), length) > best[:2]:
            best = (int(held.sum()), length, family)
    return None if best is None else best[2]


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


def _held(family: pd.DataFrame, launches: pd.DataFrame) -> npt.NDArray[np.int64]:
    """How many of `launches` start inside each range of `family`, on its process and thread."""
    held: list[npt.NDArray[np.int64]] = []
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
    return grouped(trace, step, method, notes, partial=np.unique(range_of[silent & (range_of >= 0)]))


def _by_replays(trace: Trace, attribution: Attribution) -> Steps:
    ops, joined = trace.ops, attribution.joined
    key = joint_key(ops["process"].to_numpy(), ops["correlation"].to_numpy())
    replay = np.full(len(ops), -1, dtype=np.int64)
    in_graph = joined.by_graph & (ops["correlation"].to_numpy() != NONE)
    replay[in_graph] = pd.factorize(key[in_graph])[0]
    graphs = (trace.launches["api"] == "graph").to_numpy()
    silent, launched = int((graphs & ~joined.used).sum()), int(graphs.sum())
    notes = _silent_note(silent, launched)
    return grouped(trace, replay, "graph replays", notes, silent=silent, launched=launched, one_launch=True)


def _silent_note(silent: int, launched: int) -> list[Diagnostic]:
    if not silent:
        return []
    message = f"{silent} of {launched} graph launches have no ops in the recording."
    return [Diagnostic("launches-without-ops", message)]
