"""Sums agree and names of things do not matter, on random traces."""

from __future__ import annotations

import random
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import Bench
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from nsys_builder import START_END, Kernel, Range, Rows
from recording import Op, Recording

from profkit.accounting import Census, KindCensus

OPS = st.builds(
    Op,
    name=st.sampled_from(["gemm", "fill", "pack", "DtoD"]),
    ns=st.integers(0, 3000),
    scope=st.sampled_from(["", "combine", "combine/mask"]),
    kind=st.sampled_from(["kernel", "kernel", "kernel", "memcpy", "memset"]),
    stream=st.sampled_from([7, 7, 8]),
)


@st.composite
def process(draw: st.DrawFn, pid: int) -> Rows:
    """A process with warm-up, one or two graphs of a few layers, losses, eager work, orphans and broken rows."""
    recording = Recording(pid, jitter_ns=draw(st.sampled_from([0, 300])), seed=draw(st.integers(0, 99)))
    for _ in range(draw(st.integers(1, 2))):
        layers = draw(st.lists(st.lists(OPS, min_size=1, max_size=4), max_size=3))
        before = draw(st.lists(OPS, max_size=2))

        def step(layers: list[list[Op]] = layers, before: list[Op] = before) -> None:
            for op in before:
                recording.launch(op)
            for i, ops in enumerate(layers):
                with recording.range(f"layers.{i}"):
                    for op in ops:
                        recording.launch(op)

        if draw(st.booleans()):
            step()
        with recording.range("capture"), recording.capture() as graph:
            step()
        graph = recording.clone(graph)
        recording.replay(graph, draw(st.integers(0, 4)))
        recording.replay(graph, draw(st.integers(0, 1)), lose=draw(st.integers(0, 2)))
    for op in draw(st.lists(OPS, max_size=2)):
        recording.launch(op)
    for orphan in range(draw(st.integers(0, 2))):
        recording.rows.kernels.append(Kernel("orphan", 5_000 + orphan, 6_000, 900_000 + orphan, pid=pid))
    recording.rows.kernels += [Kernel("broken", 0, 0, pid=pid)] * draw(st.integers(0, 2))
    recording.rows.ranges.append(Range("request", 10, None, pid, pid, START_END))
    return recording.rows


TRACES = st.one_of(process(100), st.tuples(process(100), process(200)).map(lambda pair: pair[0] + pair[1]))
#: An example takes some 50 ms and shrinking one takes minutes: a failing example is shown as drawn.
EXAMPLES = settings(max_examples=10, deadline=None, phases=(Phase.explicit, Phase.generate))


def count(rows: Rows) -> Census:
    """The rows, counted in a directory of their own: hypothesis runs many examples in one test."""
    with tempfile.TemporaryDirectory() as directory:
        return Bench(Path(directory)).count(rows)


def valid(rows: Rows) -> list[Kernel]:
    """The rows that are sound."""
    return [k for k in rows.kernels if k.end >= k.start and (k.start, k.end) != (0, 0)]


@EXAMPLES
@given(TRACES)
def test_rows_sum_to_totals(rows: Rows) -> None:
    census = count(rows)
    _assert_ledger_is_a_partition(census, rows)
    _assert_rows_are_all_ops(census)
    for kind in census.kinds:
        _assert_kind_sums(kind)


def _assert_ledger_is_a_partition(census: Census, rows: Rows) -> None:
    ledger = census.ledger
    parts = ("in_layers", "in_ranges", "in_graph_outside_layers", "outside_graphs", "unattributed")
    assert ledger.ops == len(valid(rows)) == sum(getattr(ledger, p) for p in parts)
    assert ledger.ns["ops"] == sum(k.end - k.start for k in valid(rows)) == sum(ledger.ns[p] for p in parts)
    assert ledger.set_aside == len(rows.kernels) - len(valid(rows))
    assert ledger.warm_up <= ledger.in_ranges


def _assert_rows_are_all_ops(census: Census) -> None:
    for column, total in (("launches", census.ledger.ops), ("ns", census.ledger.ns["ops"])):
        inside = sum(int(t[column].sum()) for k in census.kinds for t in (k.slots, k.outside))
        assert inside + int(census.beyond_steps[column].sum()) == total
    assert sum(int(k.slots["launches"].sum()) for k in census.kinds) == census.ledger.in_layers
    assert sum(int(k.slots["ns"].sum()) for k in census.kinds) == census.ledger.ns["in_layers"]


def _assert_kind_sums(kind: KindCensus) -> None:
    by_layer = kind.slots.groupby("layer")[["launches", "ns"]].sum()
    assert kind.layers["launches"].tolist() == by_layer["launches"].tolist()
    assert kind.layers["kernel_ns"].tolist() == by_layer["ns"].tolist()
    assert kind.slots["ns"].tolist() == kind.slot_ns.sum(axis=1).tolist()
    assert kind.outside["ns"].tolist() == kind.outside_ns.sum(axis=1).tolist()
    assert kind.kind.gpu_ns == int(kind.slots["ns"].sum() + kind.outside["ns"].sum())
    launches = int(kind.slots["launches"].sum() + kind.outside["launches"].sum())
    assert kind.kind.steps * kind.kind.ops_per_step == launches
    assert (kind.layers["busy_ns"] <= kind.layers["kernel_ns"]).all()
    assert (kind.layers["busy_ns"] <= kind.layers["span_ns"]).all()


def _fingerprint(census: Census) -> tuple[Any, ...]:
    """Everything that must not depend on order, origin of time or ids."""
    kinds = [
        (
            k.kind.steps,
            k.kind.gpu_ns,
            k.layers[["number", "launches", "kernel_ns", "busy_ns", "span_ns"]].to_numpy().tolist(),
            sorted(k.slots[["layer", "inside", "name", "launches", "ns"]].itertuples(index=False, name=None)),
            sorted(k.outside[["where", "name", "launches", "ns"]].itertuples(index=False, name=None)),
        )
        for k in census.kinds
    ]
    beyond = sorted(census.beyond_steps[["where", "name", "launches", "ns"]].itertuples(index=False, name=None))
    return vars(census.ledger), dict(census.methods), sorted(kinds, key=repr), beyond


def _shuffled(rows: Rows) -> Rows:
    mixed = random.Random(len(rows.kernels))
    return Rows(
        mixed.sample(rows.kernels, len(rows.kernels)),
        mixed.sample(rows.ranges, len(rows.ranges)),
        mixed.sample(rows.nodes, len(rows.nodes)),
        mixed.sample(rows.launches, len(rows.launches)),
    )


def _shifted(rows: Rows, ns: int) -> Rows:
    """Broken rows stay: that their times are 0 is what makes them broken."""
    broken = [k for k in rows.kernels if k.name == "broken"]
    sound = replace(rows, kernels=[k for k in rows.kernels if k.name != "broken"])
    return sound.shifted(ns) + Rows(kernels=broken)


def _renamed(rows: Rows) -> Rows:
    """All ids mapped one to one. A graph's id stays the upper half of its nodes' ids, as in every export."""

    def node(n: int | None) -> int | None:
        return None if n is None else (((n >> 32) + 77) << 32) | ((n & 0xFFFFFFFF) ^ 0x333)

    def correlation(c: int | None) -> int | None:
        return None if c is None else c * 5 + 3

    kernels = [
        replace(
            k,
            pid=k.pid * 3 + 1,
            stream=k.stream + 1000,
            graph=None if k.graph is None else k.graph + 77,
            node=node(k.node),
            correlation=correlation(k.correlation),
        )
        for k in rows.kernels
    ]
    return Rows(
        kernels,
        [replace(r, pid=r.pid * 3 + 1, tid=r.tid + 9) for r in rows.ranges],
        [
            replace(n, pid=n.pid * 3 + 1, tid=n.tid + 9, node=node(n.node) or 0, origin=node(n.origin))
            for n in rows.nodes
        ],
        [replace(c, pid=c.pid * 3 + 1, tid=c.tid + 9, correlation=correlation(c.correlation)) for c in rows.launches],
    )


@EXAMPLES
@given(TRACES, st.sampled_from([10**15, -(10**12), 123_457]))
def test_order_of_rows_origin_of_time_and_ids_change_nothing(rows: Rows, ns: int) -> None:
    expected = _fingerprint(count(rows))
    assert _fingerprint(count(_shuffled(rows))) == expected, "order"
    assert _fingerprint(count(_shifted(rows, ns))) == expected, "origin of time"
    assert _fingerprint(count(_renamed(rows))) == expected, "ids"
