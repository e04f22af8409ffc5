"""Traces of replayed steps, built from kernel names with the layer that each truly belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from profkit.attribution import Attribution, attribute, attribute_in_steps
from profkit.counting.count import take_census
from profkit.counting.steps import find_steps
from profkit.model.census import Census
from profkit.model.scope import place
from profkit.model.selection import Hints, Selection
from profkit.model.trace import LAUNCHES, NODES, OPS, RANGES, Info, Process, Trace, table

#: What an op truly is: a layer's number, or None outside layers.
Truth = int | None

INFO = Info("made.json", "kineto", "nvidia", "made", {0: "GPU"}, (Process(1, 0),), graph_trace="node")


@dataclass(frozen=True)
class Op:
    """One kernel of a step; `lane` is its stream, `slot` what it is in its layer whatever it is called."""

    name: str
    layer: Truth
    lane: int = 0
    slot: str = ""


def step(layers: Sequence[str], before: str = "", after: str = "") -> list[Op]:
    """A step from words: each layer's kernels, and those before and behind all layers."""
    ops = [Op(n, None) for n in before.split()]
    for number, kernels in enumerate(layers):
        names = kernels.split()
        ops += [Op(n, number, slot=f"{n} {names[:i].count(n)}") for i, n in enumerate(names)]
    return ops + [Op(n, None) for n in after.split()]


def replayed(ops: Sequence[Op], replays: int = 2, kinds: Sequence[str] | None = None) -> Trace:
    """A Kineto-like trace (no nodes, no ranges) of replays of one graph; ops of one lane do not overlap, lanes do."""
    count = len(ops)
    lanes = np.array([op.lane for op in ops])
    # Ops start 10 apart in the given order. An op of one of several lanes lasts until after the next one's start.
    length = 15 if len(set(lanes.tolist())) > 1 else 5
    start = np.concatenate([np.arange(count) * 10 + r * (count * 10 + 100) for r in range(replays)])
    columns = {
        "start": start,
        "end": start + length,
        "kind": list(kinds or ["kernel"] * count) * replays,
        "name": [op.name for op in ops] * replays,
        "process": 0,
        "device": 0,
        "stream": np.tile(lanes + 7, replays),
        "correlation": np.repeat(np.arange(replays) + 1, count),
    }
    launches = {
        "start": np.arange(replays) * 1000 - 5,
        "end": np.arange(replays) * 1000,
        "process": 0,
        "thread": 1,
        "correlation": np.arange(replays) + 1,
        "api": ["graph"] * replays,
        "name": ["cudaGraphLaunch"] * replays,
    }
    return Trace(table(OPS, columns), table(LAUNCHES, launches), table(RANGES), table(NODES), INFO, table(OPS))


def attributed(trace: Trace, hints: Hints | None = None) -> Attribution:
    """All methods applied to `trace`."""
    first = attribute(trace)
    return attribute_in_steps(first, find_steps(trace, first), hints or Hints())


def layers_of(attribution: Attribution) -> list[Truth]:
    """The layer of every op, None outside layers and where it is not known."""
    places = [place(path).layer for path in attribution.paths]
    numbers = [None if layer is None else layer.number for layer in places]
    return [numbers[s] if m else None for s, m in zip(attribution.scope, attribution.method, strict=True)]


def said_outside(attribution: Attribution, text: str) -> list[bool]:
    """For every op whether it is said to be in ``(prologue)`` or ``(epilogue)``."""
    which = [path == (text,) for path in attribution.paths]
    return [which[s] for s in attribution.scope]


def unplaced(attribution: Attribution) -> int:
    """How many ops no method placed."""
    return int((attribution.method == 0).sum())


def without_ranges(trace: Trace) -> Trace:
    """`trace` as a profiler would have left it that recorded no range."""
    return replace(trace, ranges=trace.ranges.iloc[:0])


def per_layer(census: Census) -> list[tuple[int, tuple[str, ...], int]]:
    """Layer, its kernels in order, and its kernel time: what two attributions of one trace must agree on."""
    chosen = census.chosen
    names = chosen.slots.groupby("layer")["canonical"].apply(tuple).tolist()
    return list(zip(chosen.layers["number"].tolist(), names, chosen.layers["kernel_ns"].tolist(), strict=True))


def codes(census: Census) -> list[str]:
    """The diagnostics' codes."""
    return [d.code for d in census.diagnostics]


def counted(trace: Trace, **selection: str) -> Census:
    """The census of `trace`."""
    return take_census(trace, Selection(**selection))
