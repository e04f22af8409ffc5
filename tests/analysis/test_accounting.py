"""The census of small traces: rows, selections and what lies outside layers."""

from __future__ import annotations

import pytest
from bench import Bench, launches_by_layer
from nsys_builder import Kernel, Launch, Rows
from recording import Recording, step_recording

from profkit.counting.count import take_census
from profkit.counting.ranks import divided, merge
from profkit.errors import ProfkitError
from profkit.model.census import Census

HYBRID = ["norm:100 combine/mask/fill:900 combine/pack:1300"] * 2


def hybrid() -> Rows:
    """Four layers, mla and swa in turn; swa layers have one launch more."""
    recording = Recording()
    with recording.capture() as graph:
        recording.launch_all("embed:50")
        for i in range(4):
            with recording.range(f"layers.{i}.{'swa' if i % 2 else 'mla'}"):
                recording.launch_all("norm:100 combine/mask/fill:900 combine/pack:1300" + " window:70" * (i % 2))
    recording.replay(recording.clone(graph), 5)
    return recording.rows


def test_slots_stand_in_the_order_of_the_layer(bench: Bench) -> None:
    chosen = bench.count(step_recording(HYBRID, replays=5).rows).chosen
    assert chosen.slots[["layer", "inside", "name", "launches", "ns"]].to_numpy().tolist() == [
        [layer, inside, name, 5, 5 * ns]
        for layer in (0, 1)
        for inside, name, ns in (("", "norm", 100), ("combine/mask", "fill", 900), ("combine", "pack", 1300))
    ]


def test_times_of_a_slot_are_kept_by_step(bench: Bench) -> None:
    recording = Recording()
    for ns in (100, 200, 400):
        with recording.range("step"), recording.range("layers.0"):
            recording.launch_all(f"a:{ns} b:7")
    assert bench.count(recording.rows).chosen.slot_ns.tolist() == [[100, 200, 400], [7, 7, 7]]


def test_two_launches_of_one_kernel_in_a_layer_are_two_slots(bench: Bench) -> None:
    slots = bench.count(step_recording(["fill gemm fill"], replays=3).rows).chosen.slots
    assert slots[["name", "occurrence", "launches"]].to_numpy().tolist() == [
        ["fill", 0, 3],
        ["gemm", 0, 3],
        ["fill", 1, 3],
    ]


@pytest.mark.parametrize(
    ("pattern", "numbers"), [(r"\.mla$", [0, 2]), ("swa", [1, 3]), (r"layers\.[03]", [0, 3]), ("", [0, 1, 2, 3])]
)
def test_layers_are_selected_by_their_scope(bench: Bench, pattern: str, numbers: list[int]) -> None:
    layers = bench.count(hybrid(), layers=pattern).chosen.layers
    assert layers["number"][layers["selected"]].tolist() == numbers


def test_a_scope_narrows_inside_the_layers(bench: Bench) -> None:
    census = bench.count(hybrid(), layers="mla", scope="^combine")
    assert census.chosen.selected_slots["name"].tolist() == ["fill", "pack"] * 2
    assert census.chosen.selected_layers == 2


def test_what_is_not_selected_is_counted_all_the_same(bench: Bench) -> None:
    whole, part = bench.count(hybrid()), bench.count(hybrid(), layers="mla", scope="^combine")
    assert whole.ledger == part.ledger
    assert launches_by_layer(whole) == launches_by_layer(part) == {0: 3, 1: 4, 2: 3, 3: 4}


@pytest.mark.parametrize(
    ("option", "pattern", "said"),
    [
        ("layers", "moe", r"--layers 'moe'.*layers\.#\.mla, layers\.#\.swa"),
        ("scope", "exchange", r"--scope 'exchange'.*combine, combine/mask"),
        ("layers", "(", r"--layers '\(' is not a regular expression"),
        ("scope", "[", r"--scope '\[' is not a regular expression"),
        ("steps", "*", r"--steps '\*' is not a regular expression"),
    ],
)
def test_a_selection_that_cannot_match_says_what_there_is(bench: Bench, option: str, pattern: str, said: str) -> None:
    with pytest.raises(ProfkitError, match=said):
        bench.count(hybrid(), **{option: pattern})


def test_an_eager_pass_through_the_layers_is_a_kind_of_step_of_its_own(bench: Bench) -> None:
    # GIVEN the layers run eagerly twice before they are captured, with a launch between two of them
    recording = Recording()
    for _ in range(2):
        recording.launch_all("embed:5")
        for i in range(3):
            with recording.range(f"layers.{i}"):
                recording.launch_all("gemm:4000 pack:2000")
            recording.launch_all("between:1" if i == 1 else "")
    with recording.capture() as graph:
        for i in range(3):
            with recording.range(f"layers.{i}"):
                recording.launch_all("gemm:10 pack:20")
    recording.replay(recording.clone(graph), 3)
    census = bench.count(recording.rows)

    # THEN it has layers and an outside of its own, and the replays, though shorter, are reported
    kinds = {k.kind.replayed: (k.kind.steps, k.kind.ops_per_step, len(k.layers)) for k in census.kinds}
    assert kinds == {True: (3, 6, 3), False: (2, 7, 3)}
    assert (census.chosen.kind.replayed, census.ledger.in_layers, census.ledger.warm_up) == (True, 3 * 6 + 2 * 6, 0)
    assert census.beyond_steps[["name", "launches"]].to_numpy().tolist() == [["embed", 2]]


def test_a_pass_through_fewer_layers_or_around_a_replay_is_none(bench: Bench) -> None:
    def layer(recording: Recording, number: int) -> None:
        with recording.range(f"layers.{number}"):
            recording.launch_all("gemm:10")

    recording = Recording()
    with recording.capture() as graph:
        layer(recording, 0)
    graph = recording.clone(graph)
    for layers in ([0, 1, 2], [0, 1], [0, None, 1, 2]):
        for number in layers:
            recording.replay(graph, range_text=None) if number is None else layer(recording, number)
    census = bench.count(recording.rows)
    assert sorted((k.kind.replayed, k.kind.steps) for k in census.kinds) == [(False, 1), (True, 1)]
    assert (census.ledger.in_layers, census.ledger.warm_up) == (1 + 3, 2 + 3)


def test_layer_ranges_outside_every_step_are_the_warm_up_row(bench: Bench) -> None:
    # GIVEN a graph is replayed between the layers of an eager run
    recording = step_recording(["gemm:10 pack:20"] * 3, replays=2)
    with recording.capture() as graph:
        recording.launch_all("sampler:10")
    graph = recording.clone(graph)
    for i in range(3):
        with recording.range(f"layers.{i}.mla"):
            recording.launch_all("gemm:10 pack:20")
        recording.replay(graph, range_text=None)
    census = bench.count(recording.rows)

    # THEN the eager run is in no layer, in rows of its own
    assert (census.ledger.in_layers, census.ledger.in_ranges, census.ledger.warm_up) == (12, 6, 6)
    assert census.beyond_steps[["where", "name", "launches", "ns"]].to_numpy().tolist() == [
        ["(warm-up: layer ranges outside every step)", "gemm", 3, 30],
        ["(warm-up: layer ranges outside every step)", "pack", 3, 60],
    ]


def test_each_place_outside_layers_has_its_rows(bench: Bench) -> None:
    # GIVEN in the graph: one op in a range that is no layer, one in no range; eager: one op in a range, one in none
    recording = Recording()
    with recording.capture() as graph:
        recording.launch_all("bare sampler/topk")
        with recording.range("layers.0"):
            recording.launch_all("gemm")
    recording.replay(recording.clone(graph), 2)
    recording.launch_all("prompt/eager_in_range eager_bare")

    census = bench.count(recording.rows)

    assert census.chosen.outside[["where", "name"]].to_numpy().tolist() == [
        ["(in the graph, outside every range)", "bare"],
        ["sampler", "topk"],
    ]
    assert census.beyond_steps[["where", "name"]].to_numpy().tolist() == [
        ["prompt", "eager_in_range"],
        ["(outside graphs and ranges)", "eager_bare"],
    ]
    ledger = census.ledger
    assert (ledger.in_layers, ledger.in_ranges, ledger.in_graph_outside_layers, ledger.outside_graphs) == (2, 3, 2, 1)


def test_unattributed_ops_have_their_rows(bench: Bench) -> None:
    rows = step_recording(["gemm"], replays=2).rows
    rows.kernels += [Kernel("orphan", 5, 8, 9999), Kernel("orphan", 10, 14, None)]
    census = bench.count(rows)
    assert census.ledger.unattributed == 2
    assert census.beyond_steps[["where", "name", "launches", "ns"]].to_numpy().tolist() == [
        ["(unattributed)", "orphan", 2, 7]
    ]


def test_layer_numbers_sort_as_numbers(bench: Bench) -> None:
    census = bench.count(step_recording(["a"] * 12).rows)
    assert census.chosen.layers["number"].tolist() == list(range(12))


def test_the_table_of_a_census_is_per_step(bench: Bench) -> None:
    table = bench.count(step_recording(["gemm:1500 combine/pack:250"], replays=4).rows).to_pandas()
    assert table[["layer", "module", "inside", "name", "launches", "us"]].to_numpy().tolist() == [
        [0, "layers.#.mla", "", "gemm", 1.0, 1.5],
        [0, "layers.#.mla", "combine", "pack", 1.0, 0.25],
    ]


def test_a_trace_without_steps_has_an_error_for_its_table(bench: Bench) -> None:
    with pytest.raises(ProfkitError):
        bench.count(Rows(launches=[Launch("cudaLaunchKernel_v7000", 1, 1)])).to_pandas()


def ranks_of(bench: Bench, rows: Rows) -> list[Census]:
    """The censuses of the ranks of a file."""
    return [take_census(trace) for _, trace in divided(bench.trace(rows))]


def test_ranks_in_one_file_are_counted_by_themselves(bench: Bench) -> None:
    # GIVEN two ranks in one file, all ids equal: the second with other kernels, and twice as slow
    rows = step_recording(["a b"] * 2, pid=100).rows + step_recording(["c:2000 d:2000"] * 2, pid=200).rows
    first, second = ranks_of(bench, rows)
    assert (first.chosen.slots["name"].tolist(), second.chosen.slots["name"].tolist()) == (
        ["a", "b"] * 2,
        ["c", "d"] * 2,
    )
    assert (first.chosen.kind.steps, second.chosen.kind.steps) == (4, 4)
    assert second.chosen.kind.gpu_ns == 2 * first.chosen.kind.gpu_ns


def test_a_process_with_few_ops_is_no_rank(bench: Bench) -> None:
    rows = step_recording([" ".join("abcdefgh")] * 8, pid=100).rows
    helper = Recording(200)
    helper.launch_all("probe")
    (only,) = ranks_of(bench, rows + helper.rows)
    assert only.ledger.ops == 8 * 8 * 4 + 1


def test_merged_ranks_stand_side_by_side(bench: Bench) -> None:
    # GIVEN a pipeline: each rank has layers of its own
    parts = [step_recording([layer] * n, pid=pid).rows for layer, n, pid in (("a b", 2, 100), ("a b c", 3, 200))]
    merged = merge([c.chosen for c in ranks_of(bench, parts[0] + parts[1])], [0, 0])
    assert list(zip(merged.layers["rank"], merged.layers["launches"], strict=True)) == [(0, 8)] * 2 + [(1, 12)] * 3
    assert (merged.ranks, merged.kind.steps, merged.passes) == (2, 4, 8)
