"""Kernels that a replay adds outside its graph belong to no layer, whatever range is open."""

from __future__ import annotations

from dataclasses import replace

import pytest
from recorded_captures import joined, table_of_ranges
from step_traces import INFO, counted

from profkit.model.trace import LAUNCHES, NODES, OPS, RANGES, Trace, table

FILL = "void at::native::vectorized_elementwise_kernel<2, at::native::FillFunctor<long>, std::array<char*, 1ul> >(int)"


def piecewise(between: list[str]) -> Trace:
    """Two steps of three layers, each layer a range around eager kernels and the replay of a piece."""
    launches: list[tuple[int, int, str]] = []
    ops: list[tuple[int, str, int]] = []
    ranges: list[tuple[int, int, str, str]] = []
    at = 0
    for step in range(2):
        begin = at
        for layer in range(3):
            first = at
            for name in [*between, "graph"]:
                correlation = len(launches) + 1
                launches.append((at + 1, correlation, "graph" if name == "graph" else "kernel"))
                kernels = ["gemm", "pack"] if name == "graph" else [name]
                ops += [(at + 3 + i, kernel, correlation) for i, kernel in enumerate(kernels)]
                at += 10
            ranges.append((first, at - 1, f"layers.{layer}", ""))
        ranges.append((begin - 1, at, f"step.{step}", ""))
        at += 10
    start, correlation, api = zip(*launches, strict=True)
    columns = {"start": start, "end": [s + 1 for s in start], "process": 0, "thread": 1, "correlation": correlation}
    names = {"api": list(api), "name": ["call"] * len(api)}
    at_ns, kernel, of = zip(*ops, strict=True)
    done = {"start": at_ns, "end": [s + 1 for s in at_ns], "kind": ["kernel"] * len(of), "name": list(kernel)}
    where = {"process": 0, "device": 0, "stream": 7, "correlation": of}
    return Trace(
        table(OPS, {**done, **where}),
        table(LAUNCHES, {**columns, **names}),
        table_of_ranges(ranges),
        table(NODES),
        INFO,
        table(OPS),
    )


def test_the_two_fills_before_a_replay_are_overhead_and_no_layers() -> None:
    census = counted(piecewise(["norm", FILL, FILL]))
    # Ranges name a layer for the norm alone; the graph's kernels follow it in every one.
    assert set(census.chosen.slots["name"]) == {"norm", "gemm", "pack"}
    overhead = census.chosen.outside[census.chosen.outside["where"] == "(replay overhead)"]
    assert overhead["launches"].tolist() == [12]
    assert census.ledger.outside_graphs == 12


@pytest.mark.parametrize("between", [[FILL], [FILL, FILL, "norm"], [FILL, FILL, FILL]])
def test_fills_of_the_model_stay_in_their_layer(between: list[str]) -> None:
    census = counted(piecewise(between))
    assert "(replay overhead)" not in set(census.chosen.outside["where"])
    names = census.chosen.slots["name"].tolist()
    assert [name for name in names if name in between] == between * 3


def test_overhead_is_no_part_of_a_steps_repetition() -> None:
    trace = piecewise(["norm", FILL, FILL])
    steps = trace.ranges[trace.ranges["text"].astype(str).str.startswith("step")]
    census = counted(replace(trace, ranges=joined([steps], RANGES)))
    assert census.methods["cut"] == 2 * 3 * 3
    assert census.chosen.layers["launches"].tolist() == [6, 6, 6]
