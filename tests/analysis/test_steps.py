"""Steps: what is one forward pass, and which of them are of one kind (F14, F22)."""

from __future__ import annotations

import pytest
from bench import Bench, launches_by_layer
from nsys_builder import Kernel, Launch, Range, Rows
from recording import Graph, Recording, step_recording

from profkit.errors import ProfkitError
from profkit.model.census import Census


def kinds(census: Census) -> list[tuple[int, int]]:
    """(steps, launches a step) of every kind, in order."""
    return [(k.kind.steps, k.kind.ops_per_step) for k in census.kinds]


def captured(recording: Recording, layer: str, launches: str) -> Graph:
    """An instantiated graph of one layer."""
    with recording.range("capture"), recording.capture() as graph, recording.range(layer):
        recording.launch_all(launches)
    return recording.clone(graph)


def piecewise(pid: int = 100, *, steps: int = 3, warm_up: bool = False, jitter_ns: float = 0) -> Rows:
    """Per layer one graph (2 launches) and, before it, eager attention; `steps` such steps, each in a range."""
    recording = Recording(pid, jitter_ns=jitter_ns)
    graphs = [captured(recording, f"layers.{i}", "pre post") for i in range(2)]

    def step() -> None:
        for i, graph in enumerate(graphs):
            with recording.range(f"layers.{i}"):
                recording.launch_all("attention:2000")
            recording.replay(graph, range_text=None)

    if warm_up:
        step()
    for number in range(steps):
        with recording.range(f"step {number}"):
            step()
    return recording.rows


def eager_steps(pid: int = 100) -> Rows:
    """Three eager steps of two layers with two launches each."""
    recording = Recording(pid)
    for number in range(3):
        with recording.range(f"step {number}"):
            for i in range(2):
                with recording.range(f"layers.{i}"):
                    recording.launch_all("a b")
    return recording.rows


def test_replays_are_steps(bench: Bench) -> None:
    census = bench.count(step_recording(["gemm pack"] * 3, replays=7).rows)
    assert (census.step_method, kinds(census)) == ("graph replays", [(7, 6)])


def test_a_replay_in_a_range_of_its_own_is_one_step(bench: Bench) -> None:
    rows = step_recording(["gemm pack"] * 3, replays=7).rows
    assert kinds(bench.count(rows)) == kinds(bench.count(rows, steps="^replay$")) == [(7, 6)]


def test_repeated_outer_ranges_are_the_steps_of_an_eager_trace(bench: Bench) -> None:
    census = bench.count(eager_steps())
    assert kinds(census) == [(3, 4)]
    assert launches_by_layer(census) == {0: 2, 1: 2}


def test_repeated_outer_ranges_hold_piecewise_graphs_and_eager_work(bench: Bench) -> None:
    census = bench.count(piecewise())
    assert kinds(census) == [(3, 6)]
    assert census.ledger.in_layers == census.ledger.ops == 18


def test_graph_pieces_and_eager_work_of_one_layer_are_one_layer(bench: Bench) -> None:
    assert launches_by_layer(bench.count(piecewise())) == {0: 3, 1: 3}


def test_a_warm_up_outside_the_step_ranges_is_the_warm_up_row(bench: Bench) -> None:
    census = bench.count(piecewise(warm_up=True))
    assert kinds(census) == [(3, 6)]
    assert census.ledger.warm_up == 6


def test_step_ranges_of_two_processes_are_steps_in_both_eager(bench: Bench) -> None:
    census = bench.count(eager_steps(100) + eager_steps(200))
    assert sum(steps for steps, _ in kinds(census)) == 6
    assert census.ledger.in_layers == 24


def test_step_ranges_of_two_processes_are_steps_in_both_piecewise(bench: Bench) -> None:
    census = bench.count(piecewise(100) + piecewise(200))
    assert sum(steps for steps, _ in kinds(census)) == 6
    assert census.ledger.warm_up == 0


def test_given_step_ranges_hold_in_every_process(bench: Bench) -> None:
    census = bench.count(eager_steps(100) + eager_steps(200), steps=r"^step \d")
    assert sum(steps for steps, _ in kinds(census)) == 6


def test_kinds_of_step_are_never_averaged(bench: Bench) -> None:
    # GIVEN two graphs of different size, replayed 10 and 5 times
    recording = Recording()
    small, large = captured(recording, "layers.0", "a"), captured(recording, "layers.0", "a b:9000 c")
    recording.replay(small, 10)
    recording.replay(large, 5)

    census = bench.count(recording.rows)

    # THEN two kinds, the one with most GPU time first and chosen
    assert kinds(census) == [(5, 3), (10, 1)]
    assert launches_by_layer(census) == {0: 3}


def test_the_first_kind_that_has_layers_is_chosen(bench: Bench) -> None:
    # GIVEN a graph without layers that takes most of the time
    recording = Recording()
    with recording.range("capture"), recording.capture() as graph:
        recording.launch_all("huge:900000")
    recording.replay(recording.clone(graph), 9)
    recording.replay(captured(recording, "layers.0", "a b"), 2)

    assert launches_by_layer(bench.count(recording.rows)) == {0: 2}


def test_steps_by_sequence_separate_what_ran_other_kernels(bench: Bench) -> None:
    # GIVEN eager steps that alternate between two sequences of equal length
    recording = Recording()
    for number in range(6):
        with recording.range(f"step {number}"), recording.range("layers.0"):
            recording.launch_all("a b" if number % 2 else "b a")
    assert kinds(bench.count(recording.rows)) == [(3, 2), (3, 2)]


def test_a_graph_id_selects_its_kind(bench: Bench) -> None:
    recording = Recording()
    small, large = captured(recording, "layers.0", "a"), captured(recording, "layers.0", "b c")
    recording.replay(small, 10)
    recording.replay(large, 10)
    for graph, expected in ((small, ["a"]), (large, ["b", "c"])):
        for spelling in (str(graph.id), f"graph {graph.id}"):
            assert bench.count(recording.rows, graph=spelling).chosen.slots["name"].tolist() == expected


def test_an_unknown_graph_id_names_the_ones_there_are(bench: Bench) -> None:
    with pytest.raises(ProfkitError, match=r"--graph 'x'.*graph 2"):
        bench.count(step_recording(["a b"]).rows, graph="x")


def test_step_ranges_can_be_given(bench: Bench) -> None:
    census = bench.count(piecewise(warm_up=True), steps=r"^step \d+$")
    assert kinds(census) == [(3, 6)]
    assert census.ledger.warm_up == 6


def test_a_pattern_for_steps_that_matches_nothing_names_the_ranges(bench: Bench) -> None:
    with pytest.raises(ProfkitError, match=r"--steps 'zzz'.*capture, layers\.#\.mla, replay"):
        bench.count(step_recording(["a"] * 2).rows, steps="zzz")


def test_the_outermost_match_is_the_step(bench: Bench) -> None:
    # GIVEN "step N" with a range "substep N" in its middle, and a pattern that matches both
    recording = Recording()
    for number in range(3):
        with recording.range(f"step {number}"):
            for i, name in enumerate(("", f"substep {number}", "")):
                with recording.range(name or f"layers.{i}"):
                    recording.launch_all("a")
    census = bench.count(recording.rows, steps="step")
    assert kinds(census) == [(3, 3)]


def test_one_graph_launched_several_times_in_a_step(bench: Bench) -> None:
    # GIVEN speculative decoding: the draft model's graph 3 times, then the target's, in one step
    recording = Recording()
    draft = captured(recording, "draft.layers.0", "d1 d2")
    target = captured(recording, "target.layers.0", "t1 t2")
    for number in range(4):
        with recording.range(f"step {number}"):
            recording.replay(draft, 3, range_text=None)
            recording.replay(target, range_text=None)

    census = bench.count(recording.rows)

    assert kinds(census) == [(4, 8)]
    assert census.chosen.layers["launches"].tolist() == [4 * 6, 4 * 2]


def test_steps_that_alternate_between_equal_graphs_are_whole(bench: Bench) -> None:
    # GIVEN double-buffered piecewise graphs: even steps replay one set, odd steps another with the same launches
    recording = Recording()
    sets = [[captured(recording, f"layers.{i}", "pre post") for i in range(2)] for _ in range(2)]
    for number in range(6):
        with recording.range(f"step {number}"):
            for graph in sets[number % 2]:
                recording.replay(graph, range_text=None)

    census = bench.count(recording.rows)

    assert sum(steps for steps, _ in kinds(census)) == 6
    assert launches_by_layer(census) == {0: 2, 1: 2}
    assert len(census.chosen.slots) == 4


def test_kernels_that_a_replay_adds_outside_the_graph_are_no_layers(bench: Bench) -> None:
    # GIVEN two fill kernels launched eagerly inside each replay's range (F22)
    recording = Recording()
    graph = captured(recording, "layers.0", "gemm pack")
    for _ in range(4):
        with recording.range("replay"):
            recording.launch_all("fill fill")
            recording.replay(graph, range_text=None)

    census = bench.count(recording.rows)

    assert launches_by_layer(census) == {0: 2}
    assert census.chosen.outside[["name", "where", "launches"]].to_numpy().tolist() == [["fill", "replay", 8]]


def test_the_whole_recording_is_one_step_where_nothing_repeats(bench: Bench) -> None:
    recording = Recording()
    with recording.range("layers.0"):
        recording.launch_all("a b c")
    census = bench.count(recording.rows)
    assert kinds(census) == [(1, 3)]
    assert "no-steps" in [d.code for d in census.diagnostics]


def test_steps_may_interleave_their_streams_differently(bench: Bench) -> None:
    # GIVEN eager steps with the same launches on two streams, whose order in time differs from step to step
    recording = Recording()
    for number in range(4):
        with recording.range(f"step {number}"), recording.range("layers.0"):
            recording.launch_all("a@1 x@2 b@1 y@2" if number % 2 else "x@2 y@2 a@1 b@1")
    assert kinds(bench.count(recording.rows)) == [(4, 4)]


def test_the_hash_of_a_sequence_tells_every_swap_apart(bench: Bench) -> None:
    # GIVEN one step, and each that two of its launches make by changing places
    names = [f"kernel {i % 9}" for i in range(28)]
    swaps = [(i, j) for i in range(28) for j in range(i) if names[i] != names[j]]
    sequences = [names]
    for i, j in swaps:
        swapped = list(names)
        swapped[i], swapped[j] = names[j], names[i]
        sequences.append(swapped)
    rows = Rows()
    for number, sequence in enumerate(sequences):
        begin = 1_000_000 * (number + 1)
        rows.ranges.append(Range(f"step {number}", begin, begin + 900_000, 100, 100))
        for position, name in enumerate(sequence):
            at, correlation = begin + 1000 * (position + 1), number * 100 + position
            rows.launches.append(Launch("cudaLaunchKernel_v7000", at, correlation, 100, 100))
            rows.kernels.append(Kernel(name, at + 10, at + 500, correlation))
    census = bench.count(rows)
    assert len(census.kinds) == len(sequences) > 300
