"""Lineage: replayed op → node → through clones → the ranges open when the node was captured (F1, F14)."""

from __future__ import annotations

import pytest
from bench import Bench, launches_by_layer
from nsys_builder import Kernel, Launch, Node, Range, Rows
from recording import Recording, step_recording

A, B = 1 << 32, 2 << 32


def one_op(nodes: list[Node], *, node: int = B, ranges: list[Range] | None = None) -> Rows:
    """One replayed kernel of `node`; layers.0 is open at 10…20, layers.1 at 30…40."""
    ranges = ranges or [Range("layers.0", 10, 20), Range("layers.1", 30, 40)]
    return Rows([Kernel("k", 1000, 1100, 5, node)], ranges, nodes, [Launch("cudaGraphLaunch_v10000", 900, 5)])


def test_replayed_kernels_belong_to_the_layer_that_captured_them(bench: Bench) -> None:
    # GIVEN 3 layers of 2 launches, captured, instantiated, replayed 4 times inside ranges named "replay"
    rows = step_recording(["gemm pack"] * 3, replays=4).rows

    # WHEN counted
    census = bench.count(rows)

    # THEN every one of the 24 ops is in its layer, by lineage
    assert launches_by_layer(census) == {0: 2, 1: 2, 2: 2}
    assert census.methods == {"lineage": 24}


@pytest.mark.parametrize("clones", [1, 2, 3, 9])
def test_any_number_of_clones_leads_to_the_capture(bench: Bench, clones: int) -> None:
    census = bench.count(step_recording(["gemm pack"] * 2, clones=clones).rows)
    assert launches_by_layer(census) == {0: 2, 1: 2}


@pytest.mark.parametrize("generation", ["2023", "2025"])
def test_both_names_of_the_node_table_are_read(bench: Bench, generation: str) -> None:
    census = bench.count(step_recording(["gemm pack"] * 2).rows, generation=generation)
    assert launches_by_layer(census) == {0: 2, 1: 2}


def test_an_event_that_names_an_origin_counts_before_one_that_does_not(bench: Bench) -> None:
    # GIVEN a node with two events: created without origin during layers.1, and cloned from a node of layers.0
    rows = one_op([Node(A, 15), Node(B, 35), Node(B, 50, A)])
    assert launches_by_layer(bench.count(rows)) == {0: 1}


def test_conflicting_origins_place_nothing_and_are_reported(bench: Bench) -> None:
    # GIVEN a node that names two origins, one in each layer
    rows = one_op([Node(A, 15), Node(A + 1, 35), Node(B, 50, A), Node(B, 50, A + 1)])

    census = bench.count(rows)

    assert census.ledger.unattributed == 1
    assert "conflicting-origins" in [d.code for d in census.diagnostics]


def test_conflicting_origins_are_reported_once(bench: Bench) -> None:
    rows = one_op([Node(A, 15), Node(A + 1, 35), Node(B, 50, A), Node(B, 50, A + 1)])
    lineage_codes = [d.code for d in bench.count(rows).diagnostics if "origin" in d.code]
    assert lineage_codes == ["conflicting-origins"]


def test_what_descends_from_a_contradiction_is_not_placed_either(bench: Bench) -> None:
    rows = one_op(
        [Node(A, 15), Node(A + 1, 35), Node(B, 50, A), Node(B, 50, A + 1), Node(3 << 32, 60, B)], node=3 << 32
    )
    assert bench.count(rows).ledger.unattributed == 1


@pytest.mark.parametrize(
    "nodes",
    [
        pytest.param([Node(B, 15, B)], id="its own origin"),
        pytest.param([Node(B, 15, A), Node(A, 15, B)], id="two nodes"),
        pytest.param([Node(B, 15, A), Node(A, 15, A + 1), Node(A + 1, 15, A + 2), Node(A + 2, 15, A)], id="tail and 3"),
    ],
)
def test_cyclic_origins_place_nothing_and_are_reported(bench: Bench, nodes: list[Node]) -> None:
    census = bench.count(one_op(nodes))
    assert census.ledger.unattributed == 1
    assert any("origin" in d.code for d in census.diagnostics)


def test_an_origin_that_was_not_recorded_places_nothing_and_is_reported(bench: Bench) -> None:
    census = bench.count(one_op([Node(B, 15, A)]))
    assert census.ledger.unattributed == 1
    assert "origin-not-recorded" in [d.code for d in census.diagnostics]


def test_a_node_created_at_two_times_places_nothing_and_is_reported(bench: Bench) -> None:
    census = bench.count(one_op([Node(B, 15), Node(B, 35)]))
    assert census.ledger.unattributed == 1
    assert "node-created-twice" in [d.code for d in census.diagnostics]


def test_one_creation_recorded_twice_is_one_creation(bench: Bench) -> None:
    assert launches_by_layer(bench.count(one_op([Node(B, 15), Node(B, 15)]))) == {0: 1}


def test_processes_with_the_same_node_and_correlation_ids_stay_apart(bench: Bench) -> None:
    # GIVEN two processes whose ids are all equal; the same node is of layers.0 in one and of layers.1 in the other
    def process(pid: int, captured: int) -> Rows:
        return Rows(
            [Kernel(f"k{pid}", 1000, 1100, 5, B, pid=pid)],
            [Range("layers.0", 10, 20, pid, pid), Range("layers.1", 30, 40, pid, pid)],
            [Node(A, captured, None, pid, pid), Node(B, 50, A, pid, pid)],
            [Launch("cudaGraphLaunch_v10000", 900, 5, pid, pid)],
        )

    census = bench.count(process(100, 15) + process(200, 35))

    placed = [(k.layers["number"].tolist(), k.slots["name"].tolist()) for k in census.kinds]
    assert sorted(placed) == [([0], ["k100"]), ([1], ["k200"])]


def test_capture_on_a_worker_thread_uses_that_threads_ranges(bench: Bench) -> None:
    # GIVEN a worker that captures layers.7, while the main thread has layers.1 open
    recording = Recording()
    with recording.range("layers.1"), recording.thread(333), recording.range("layers.7"), recording.capture() as graph:
        recording.launch_all("gemm")
    recording.replay(recording.clone(graph))

    assert launches_by_layer(bench.count(recording.rows)) == {7: 1}


def test_ranges_of_the_replay_never_name_a_layer(bench: Bench) -> None:
    # GIVEN a graph captured outside every layer and replayed within a range that reads like a layer
    recording = Recording()
    with recording.range("capture"), recording.capture() as graph:
        recording.launch_all("gemm pack")
    recording.replay(recording.clone(graph), 3, range_text="layers.5")

    census = bench.count(recording.rows)

    assert census.ledger.in_layers == 0
    assert census.chosen.outside["where"].unique().tolist() == ["capture"]


def test_a_capture_before_the_ranges_were_recorded_is_said(bench: Bench) -> None:
    rows = step_recording(["gemm pack"] * 2).rows
    rows.ranges.clear()
    census = bench.count(rows)
    assert census.ledger.in_layers == 0
    assert "capture-without-ranges" in [d.code for d in census.diagnostics]


def test_an_op_captured_outside_layers_has_a_row_of_its_own(bench: Bench) -> None:
    recording = Recording()
    with recording.capture() as graph:
        recording.launch_all("embed")
        with recording.range("layers.0"):
            recording.launch_all("gemm")
    recording.replay(recording.clone(graph), 3)

    census = bench.count(recording.rows)

    assert (census.ledger.in_layers, census.ledger.in_graph_outside_layers) == (3, 3)
    assert census.chosen.outside[["name", "launches"]].to_numpy().tolist() == [["embed", 3]]


def test_copy_and_set_nodes_are_launches_of_their_layer_by_kind(bench: Bench) -> None:
    census = bench.count(step_recording(["gemm +DtoD 0zero"] * 2).rows)
    assert census.chosen.slots.groupby("op_kind")["launches"].sum().to_dict() == {"kernel": 8, "memcpy": 8, "memset": 8}
    assert census.chosen.slots["name"].tolist()[:3] == ["gemm", "memcpy DtoD", "memset"]


def test_a_graph_instantiated_twice_gives_two_kinds_of_step_with_the_same_layers(bench: Bench) -> None:
    # GIVEN one captured graph, instantiated twice, replayed 5 and 10 times
    recording = Recording()
    with recording.capture() as graph, recording.range("layers.0"):
        recording.launch_all("gemm pack")
    first, second = recording.clone(graph), recording.clone(graph)
    recording.replay(first, 5)
    recording.replay(second, 10)

    census = bench.count(recording.rows)

    assert sorted((k.kind.id, k.kind.steps, len(k.slots)) for k in census.kinds) == [
        (f"graph {first.id}", 5, 2),
        (f"graph {second.id}", 10, 2),
    ]


def test_several_graphs_captured_in_sequence_keep_their_own_layers(bench: Bench) -> None:
    # GIVEN three graphs (batch sizes), all captured first and then replayed in turn
    recording = Recording()
    graphs = []
    for size in (1, 2, 4):
        with recording.range(f"capture {size}"), recording.capture() as graph:
            for i in range(2):
                with recording.range(f"layers.{i}"):
                    recording.launch_all(f"gemm{size} " * size)
        graphs.append(recording.clone(graph))
    for _ in range(3):
        for graph in graphs:
            recording.replay(graph)

    census = bench.count(recording.rows)

    found = {k.kind.ops_per_step: (k.kind.steps, k.slots["name"].unique().tolist()) for k in census.kinds}
    assert found == {2: (3, ["gemm1"]), 4: (3, ["gemm2"]), 8: (3, ["gemm4"])}


def test_a_second_capture_after_replays_has_layers_of_its_own(bench: Bench) -> None:
    recording = step_recording(["gemm pack"] * 2, replays=2)
    with recording.range("capture"), recording.capture() as graph, recording.range("layers.0"):
        recording.launch_all("gemm fused")
    recording.replay(recording.clone(graph), 6)

    census = bench.count(recording.rows)

    assert {k.kind.steps: launches for k in census.kinds for launches in [k.slots["name"].tolist()]} == {
        2: ["gemm", "pack", "gemm", "pack"],
        6: ["gemm", "fused"],
    }
