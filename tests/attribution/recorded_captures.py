"""Traces that show a graph's capture beside its replays, or apart from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd
from step_traces import INFO, Op, replayed, step

from profkit.model.trace import LAUNCHES, NODES, OPS, RANGES, Trace, table


def captured_step(
    layers: Sequence[str], before: str = "", after: str = "", *, named: bool = True, replays: int = 2
) -> Trace:
    """Replays of a step, and in the same trace its capture, each layer in a range ``layers.N``."""
    ops = step(layers, before, after)
    return with_capture(replayed(ops, replays), capture_of(ops, named=named))


def capture_of(
    ops: Sequence[Op],
    *,
    named: bool = True,
    ran: Sequence[str] = (),
    ranges: bool = True,
    operators: Sequence[str] | None = None,
    around: str | None = None,
) -> Trace:
    """The capture of `ops` as a trace of its own.

    Args:
        named: launches carry kernel names, as on ROCm.
        ran: kernels launched first that ran at once.
        ranges: each layer lies in a range ``layers.N``.
        operators: the framework operator around each launch.
        around: a range around the whole capture.
    """
    count, first = len(ops), 10 * len(ran)
    start = [10 * i for i in range(len(ran))] + [first + 10 * i for i in range(count)]
    kernels = [*ran, *[op.name for op in ops]]
    launches = {
        "start": start,
        "end": [s + 5 for s in start],
        "process": 0,
        "thread": 1,
        "correlation": list(range(1000, 1000 + len(start))),
        "api": ["kernel"] * len(start),
        "name": ["hipLaunchKernel"] * len(start),
        "kernel": kernels if named else [""] * len(start),
    }
    executed = {
        "start": [s + 6 for s in start[: len(ran)]],
        "end": [s + 8 for s in start[: len(ran)]],
        "kind": ["kernel"] * len(ran),
        "name": list(ran),
        "process": 0,
        "device": 0,
        "stream": 0,
        "correlation": list(range(1000, 1000 + len(ran))),
    }
    rows: list[tuple[int, int, str, str]] = []
    if ranges:
        for number in sorted({op.layer for op in ops if op.layer is not None}):
            inside = [first + 10 * i for i, op in enumerate(ops) if op.layer == number]
            rows.append((min(inside) - 2, max(inside) + 7, f"layers.{number}", ""))
    rows += [(first + 10 * i - 1, first + 10 * i + 6, text, "cpu_op") for i, text in enumerate(operators or [])]
    if around is not None:
        rows.append((-5, first + 10 * count + 5, around, ""))
    return Trace(
        table(OPS, executed) if ran else table(OPS),
        table(LAUNCHES, launches),
        table_of_ranges(rows),
        table(NODES),
        INFO,
        table(OPS),
    )


def table_of_ranges(rows: Sequence[tuple[int, int, str, str]]) -> pd.DataFrame:
    """Push/pop ranges of thread 1: start, end, text, domain."""
    if not rows:
        return table(RANGES)
    start, end, text, domain = (list(column) for column in zip(*rows, strict=True))
    columns = {"start": start, "end": end, "process": 0, "thread": 1, "text": text, "domain": domain}
    return table(RANGES, {**columns, "nested": [True] * len(start), "clipped": [False] * len(start)})


def with_capture(replays: Trace, *captures: Trace) -> Trace:
    """One trace of both: the captures come first, one after the other."""
    launches, ranges, shift = [replays.launches], [replays.ranges], -1_000_000
    for number, capture in enumerate(captures):
        moved = capture.launches.assign(
            start=capture.launches["start"] + shift,
            end=capture.launches["end"] + shift,
            correlation=capture.launches["correlation"] + 10_000 * number,
        )
        launches.append(moved)
        ranges.append(capture.ranges.assign(start=capture.ranges["start"] + shift, end=capture.ranges["end"] + shift))
        shift += 100_000
    return replace(replays, launches=joined(launches, LAUNCHES), ranges=joined(ranges, RANGES))


def joined(tables: Sequence[pd.DataFrame], schema: Mapping[str, str]) -> pd.DataFrame:
    """The rows of all tables."""
    whole = pd.concat([t.astype(dict.fromkeys(t.columns, object)) for t in tables if len(t)], ignore_index=True)
    return table(schema, {c: whole[c].tolist() for c in whole.columns})
