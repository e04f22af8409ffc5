"""Sums agree and names of things do not matter, on random traces."""

from __future__ import annotations

import random
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import Bench
from hypothesis import given
from hypothesis import strategies as st
from nsys_builder import Kernel, Rows
from random_traces import EXAMPLES, OPS, TRACES
from recording import Op, step_recording

from profkit.counting.count import take_census
from profkit.counting.ranks import divided
from profkit.model.census import Census, KindCensus


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


@EXAMPLES
@given(st.lists(st.lists(OPS, min_size=1, max_size=4), min_size=1, max_size=3), st.integers(1, 4), st.integers(2, 3))
def test_ranks_in_one_file_and_in_a_file_each_give_one_census(layers: list[list[Op]], replays: int, ranks: int) -> None:
    rows = [
        step_recording(layers, replays=replays, outside="embed:500", pid=100 * rank, jitter_ns=40, seed=rank).rows
        for rank in range(1, ranks + 1)
    ]
    with tempfile.TemporaryDirectory() as directory:
        parts = divided(Bench(Path(directory)).trace(sum(rows[1:], rows[0])))
    together, apart = [take_census(trace) for _, trace in parts], [count(r) for r in rows]
    for one, alone in zip(together, apart, strict=True):
        assert vars(one.ledger) == vars(alone.ledger)
        for table in ("layers", "slots", "outside"):
            first, second = (getattr(c.chosen, table) for c in (one, alone))
            assert first.equals(second), table
