"""Recordings that lost something: said, and never guessed around (F5, F6, F20)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import replace

import pytest
from bench import Bench, launches_by_layer
from nsys_builder import START_END, Kernel, Launch, Rows
from recording import Graph, Recording, ops, step_recording

from profkit.model.census import Census


def refusal(census: Census) -> str | None:
    """The code of the refusal."""
    return None if census.refusal is None else census.refusal.code


def codes(census: Census) -> list[str]:
    """The codes of the diagnostics."""
    return [d.code for d in census.diagnostics]


def replays_with_losses(whole: int, partial: int, silent: int) -> Rows:
    """Replays of 4 ops, of which some lost one op and some all."""
    recording = step_recording(["gemm pack"] * 2, replays=0)
    nodes = recording.rows.nodes[-4:]
    graph = Graph(2, [(n.node, op) for n, op in zip(nodes, ops("gemm pack gemm pack"), strict=True)])
    recording.replay(graph, whole)
    recording.replay(graph, partial, lose=1)
    recording.replay(graph, silent, lose=4)
    return recording.rows


def test_a_hundred_launches_with_kernels_for_one_are_under_recorded(bench: Bench) -> None:
    census = bench.count(replays_with_losses(1, 0, 99))
    assert refusal(census) == "under-recorded"
    assert "99" in (census.refusal.message if census.refusal else "")


@pytest.mark.parametrize("partial", [1, 3])
def test_partial_replays_are_left_out_and_reported(bench: Bench, partial: int) -> None:
    # GIVEN 30 whole replays and few that miss one op
    census = bench.count(replays_with_losses(30, partial, 0))
    assert (census.chosen.kind.steps, refusal(census)) == (30, None)
    assert "partial-replay" in codes(census)
    assert launches_by_layer(census) == {0: 2, 1: 2}


def test_many_partial_replays_are_under_recorded(bench: Bench) -> None:
    assert refusal(bench.count(replays_with_losses(10, 5, 0))) == "under-recorded"


def replays_without_nodes(*graphs: tuple[str, int]) -> Rows:
    """Launches of a layer, and how often their graph is replayed, each in a range of its own."""
    recording = Recording()
    for layer, replays in graphs:
        with recording.range("capture"), recording.capture() as graph, recording.range("layers.0"):
            recording.launch_all(layer)
        recording.replay(recording.clone(graph), replays)
    return recording.rows


_LONG = " ".join("abcdefghijkl")


@pytest.mark.parametrize("gone", "agl")
def test_a_partial_replay_is_found_by_order_where_there_are_no_nodes(bench: Bench, gone: str) -> None:
    rows = replays_without_nodes((_LONG, 20), (_LONG.replace(gone, ""), 1))
    census = bench.count(rows, generation="minimal")
    assert [kind.kind.steps for kind in census.kinds] == [20]
    assert "partial-replay" in codes(census)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param((_LONG.replace("g", ""), 8), id="often"),
        pytest.param((_LONG.replace("g", "x"), 1), id="another kernel"),
        pytest.param((_LONG[:10], 1), id="much shorter"),
        pytest.param((f"{_LONG} m", 1), id="longer"),
    ],
)
def test_another_graph_is_no_partial_replay(bench: Bench, other: tuple[str, int]) -> None:
    census = bench.count(replays_without_nodes((_LONG, 20), other), generation="minimal")
    assert sorted(kind.kind.steps for kind in census.kinds) == sorted([20, other[1]])
    assert "partial-replay" not in codes(census)


def test_few_launches_without_ops_are_reported(bench: Bench) -> None:
    census = bench.count(replays_with_losses(30, 0, 1))
    assert refusal(census) is None
    assert "launches-without-ops" in codes(census)


def test_lost_launches_are_noticed_where_steps_are_ranges(bench: Bench) -> None:
    # GIVEN 20 step ranges with eager work and a graph launch, kernels recorded for 3 of the 20 graph launches
    recording = Recording()
    with recording.range("capture"), recording.capture() as graph, recording.range("layers.0"):
        recording.launch_all("a b")
    graph = recording.clone(graph)
    for number in range(20):
        with recording.range(f"step {number}"):
            recording.launch_all("x y")
            recording.replay(graph, range_text=None, lose=0 if number < 3 else 2)
    assert refusal(bench.count(recording.rows)) == "under-recorded"


def test_node_events_without_any_op_are_under_recorded(bench: Bench) -> None:
    rows = step_recording(["gemm"] * 2).rows
    rows.kernels.clear()
    assert refusal(bench.count(rows)) == "under-recorded"


@pytest.mark.parametrize("name", ["cudaGraphLaunch_v10000", "cuGraphLaunch", "cudaGraphLaunch_ptsz_v10000"])
def test_graph_launches_without_kernels_or_nodes_are_graph_level(bench: Bench, name: str) -> None:
    # GIVEN graph launches by either API (F10) and no record of what is inside
    rows = Rows(launches=[Launch(name, 10 * i, i) for i in range(1, 21)])
    census = bench.count(rows, whole_graphs=range(1, 21))
    assert refusal(census) == "graph-level"
    assert "--cuda-graph-trace=node" in (census.refusal.message if census.refusal else "")


def test_whole_graph_rows_alone_are_graph_level(bench: Bench) -> None:
    # GIVEN rows of whole graphs, and an eager kernel, in an export without the graph launches' runtime rows
    rows = Rows(kernels=[Kernel("fill", 10, 20, 1)], launches=[Launch("cudaLaunchKernel_v7000", 5, 1)])
    assert refusal(bench.count(rows, whole_graphs=[7, 8])) == "graph-level"


def test_a_trace_without_ops_is_empty(bench: Bench) -> None:
    assert refusal(bench.count(Rows(launches=[Launch("cudaLaunchKernel_v7000", 1, 1)]))) == "empty"


@pytest.mark.parametrize("count", [1, 99])
def test_traces_of_one_and_of_99_kernels(bench: Bench, count: int) -> None:
    recording = Recording()
    with recording.range("layers.0"):
        recording.launch_all("k " * count)
    census = bench.count(recording.rows)
    assert launches_by_layer(census) == {0: count}


@pytest.mark.parametrize(("start", "end"), [(0, 0), (5000, 4999)])
def test_rows_without_valid_times_are_set_aside_with_a_count(bench: Bench, start: int, end: int) -> None:
    rows = step_recording(["gemm pack"] * 2, replays=3).rows
    rows.kernels += [Kernel("broken", start, end, 1)] * 2
    census = bench.count(rows)
    assert (census.ledger.ops, census.ledger.set_aside) == (12, 2)
    assert "set-aside" in codes(census)


def test_a_zero_duration_kernel_counts(bench: Bench) -> None:
    census = bench.count(step_recording(["gemm nothing:0 pack"], replays=3).rows)
    assert launches_by_layer(census) == {0: 3}


def test_a_node_executed_twice_by_one_launch_is_left_out_and_reported(bench: Bench) -> None:
    # GIVEN 20 sound replays, and one in which a node's kernel ran twice
    rows = step_recording(["gemm pack"] * 2, replays=21).rows
    last = rows.kernels[-1]
    rows.kernels.append(dataclasses.replace(last, start=last.start + 5000, end=last.end + 5000))
    census = bench.count(rows)
    assert census.chosen.kind.steps == 20
    assert "doubled-node" in codes(census)


def test_a_row_recorded_twice_is_one_launch(bench: Bench) -> None:
    rows = step_recording(["gemm pack"] * 2, replays=3).rows
    rows.kernels += rows.kernels
    census = bench.count(rows)
    assert launches_by_layer(census) == {0: 2, 1: 2}
    assert census.ledger.set_aside == 12
    assert "duplicate-rows" in codes(census)


def instantiated(recording: Recording, launches: str) -> Graph:
    """The replayed graph of a recording without replays."""
    nodes = [n.node for n in recording.rows.nodes if n.origin is not None]
    return Graph(nodes[0] >> 32, list(zip(nodes, ops(launches), strict=True)))


def test_nodes_that_run_several_times_in_every_replay_are_no_fault_of_the_recording(bench: Bench) -> None:
    # GIVEN a conditional node's body that runs three times in each of 10 replays
    recording = step_recording(["a b"], replays=0)
    graph = instantiated(recording, "a b")
    recording.replay(Graph(graph.id, graph.nodes * 3), 10)
    assert refusal(bench.count(recording.rows)) != "under-recorded"


def test_ops_lost_from_every_replay_alike_are_said(bench: Bench) -> None:
    # GIVEN 6 nodes captured from kernel launches, and 10 replays that all lost the last 2
    recording = step_recording(["a b c"] * 2, replays=0)
    recording.replay(instantiated(recording, "a b c a b c"), 10, lose=2)
    assert codes(bench.count(recording.rows)) != []


@pytest.mark.parametrize("lost", ["eager", "+DtoH", "0zero"])
def test_a_launch_outside_graphs_that_left_no_op_is_said(bench: Bench, lost: str) -> None:
    # GIVEN a graph, whose capture's launches left no op either, and work beside it
    recording = step_recording(["gemm pack"] * 2, warm_up=True)
    recording.launch_all(f"before {lost} behind")
    whole = bench.count(recording.rows)
    name = lost.lstrip("+0")
    kernels = [k for k in recording.rows.kernels if k.name != name]
    census = bench.count(dataclasses.replace(recording.rows, kernels=kernels))
    assert "eager-launches-without-ops" not in codes(whole)
    said = [d.message for d in census.diagnostics if d.code == "eager-launches-without-ops"]
    assert [text.startswith("1 of 7 launches") for text in said] == [True]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            lambda rows: replace(rows, ranges=[replace(r, style=START_END) for r in rows.ranges]),
            "start/end ranges",
        ),
        (
            lambda rows: replace(rows, ranges=[replace(r, tid=5) for r in rows.ranges]),
            "on other threads",
        ),
        (lambda rows: replace(rows, launches=[]), "no call that launches anything is on record"),
    ],
    ids=["start and end", "another thread", "no calls"],
)
def test_why_ranges_that_name_layers_reach_no_op(bench: Bench, change: Callable[[Rows], Rows], why: str) -> None:
    recording = Recording()
    for i in range(3):
        with recording.range(f"layers.{i}"):
            recording.launch_all("gemm pack")
    (note,) = [d for d in bench.count(change(recording.rows)).diagnostics if d.code == "ranges-reach-no-op"]
    assert note.message.startswith("3 ranges have a layer's name (layers.0) and reach no op: ")
    assert why in note.message


def test_ops_that_name_no_launch_are_not_lost(bench: Bench) -> None:
    rows = Recording()
    for i in range(3):
        with rows.range(f"layers.{i}"):
            rows.launch_all("gemm pack")
    nameless = replace(rows.rows, kernels=[replace(k, correlation=None) for k in rows.rows.kernels])
    refusal = bench.count(nameless).refusal
    assert refusal is not None
    assert "6 of 6 ops name no launch" in refusal.message
    assert "the ops are there" in refusal.message
