"""A window that was opened after the graphs were captured gets its layers from a recording that knows them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from bench import Bench, launches_by_layer, profkit
from nsys_builder import Rows
from recording import Recording, step_recording

import profkit as python_api
from profkit.model.census import Census

DENSE, MOE = "norm:900 gemm:3000 attention:5000 mlp:4000", "norm:900 gemm:3000 attention:5000 gate:800 experts:7000"
LAYERS = [DENSE, MOE, MOE]
#: The shared expert runs beside the experts, and now and then ends later.
TWO_STREAMS = "norm:900 gemm:3000 gate:800 experts:7000 shared:6990@8 act:20@8"


def late(layers: list[str], **options: object) -> Rows:
    """What a window sees that was opened after the graph was captured."""
    rows = step_recording(layers, outside="embed:700", **options).rows  # type: ignore[arg-type]
    return replace(rows, ranges=[], nodes=[])


def borrowed(bench: Bench, rows: Rows, lender: Rows) -> Census:
    return python_api.census(bench.path(rows), layers_from=str(bench.path(lender)))


def said(census: Census) -> list[tuple[str, str]]:
    return [(d.code, d.message) for d in census.diagnostics if d.code.startswith("borrowed")]


def test_the_same_launches_lie_in_the_same_layers(bench: Bench) -> None:
    census = borrowed(bench, late(LAYERS, replays=5), step_recording(LAYERS, outside="embed:700").rows)
    assert launches_by_layer(census) == {0: 4, 1: 5, 2: 5}
    assert census.methods == {"borrowed": 5 * 15}
    assert census.ledger.unattributed == 0
    ((code, message),) = said(census)
    assert code == "borrowed"
    assert "15 of 15 ops in each of 5 replays: those of the graph with the same launches" in message


def test_streams_may_run_in_another_order(bench: Bench) -> None:
    lender = step_recording([TWO_STREAMS] * 3, jitter_ns=40, outside="embed:700").rows
    census = borrowed(bench, late([TWO_STREAMS] * 3, jitter_ns=40, seed=1, replays=9), lender)
    assert launches_by_layer(census) == {0: 6, 1: 6, 2: 6}
    assert census.ledger.unattributed == 0


def test_a_name_whose_order_changes_from_replay_to_replay_lends_nothing(bench: Bench) -> None:
    # GIVEN copies on two streams, of two layers, that overtake each other
    layers = ["gemm:3000 copy:500 wait:100@8 late/copy:3000@8", "early/copy:100 gemm:3000"]
    lender = step_recording(layers, jitter_ns=3000, replays=12, outside="embed:700").rows
    census = borrowed(bench, late(layers, replays=4), lender)
    assert set(census.chosen.outside["where"]) == {"(unattributed)", "capture"}
    assert set(census.chosen.slots["name"]) == {"gemm", "wait"}


def test_the_same_launches_in_another_order_are_another_program(bench: Bench) -> None:
    census = borrowed(bench, late([MOE, MOE, DENSE]), step_recording([DENSE, MOE, MOE], outside="embed:700").rows)
    assert "borrowed" not in census.methods
    assert [code for code, _ in said(census)] == ["borrowed-does-not-fit"]


def test_a_library_may_have_chosen_other_kernels(bench: Bench) -> None:
    here = [layer.replace("gemm", "nvjet_sm90_tst_64x8_2x1_v_bz_TNT") for layer in LAYERS]
    there = [layer.replace("gemm", "nvjet_sm90_tst_16x64_4x1_h_bz_TNN") for layer in LAYERS]
    census = borrowed(bench, late(here), step_recording(there, outside="embed:700").rows)
    assert launches_by_layer(census) == {0: 4, 1: 5, 2: 5}
    assert "the most similar graph, which aligns with 100.0% of them" in said(census)[0][1]


def test_a_launch_more_between_launches_of_a_layer_belongs_to_it(bench: Bench) -> None:
    layers = [*LAYERS, *[MOE] * 5]
    more = [layer.replace("attention:5000", "attention:5000 reduce:400") for layer in layers]
    census = borrowed(bench, late([more[0], *layers[1:]]), step_recording(layers, outside="embed:700").rows)
    assert list(launches_by_layer(census).values()) == [5, *[5] * 7]
    assert census.ledger.unattributed == 0


def test_a_model_of_more_layers_lends_nothing_to_some_of_them(bench: Bench) -> None:
    # Which of its alike layers these are, no launch tells.
    lender = step_recording([DENSE, *[MOE] * 20], outside="embed:700").rows
    for layers in ([DENSE, *[MOE] * 19], [MOE] * 20, [MOE] * 3):
        census = borrowed(bench, late(layers), lender)
        assert [code for code, _ in said(census)] == ["borrowed-does-not-fit"]
        assert "borrowed" not in census.methods


def test_another_program_lends_nothing_and_that_is_said(bench: Bench) -> None:
    other = ["load:900 sort:3000 merge:5000 store:4000"] * 3
    census = borrowed(bench, late(other), step_recording(LAYERS, outside="embed:700").rows)
    assert [code for code, _ in said(census)] == ["borrowed-does-not-fit"]
    assert "borrowed" not in census.methods


def test_a_recording_without_layers_lends_nothing_and_one_that_knows_them_needs_none(bench: Bench) -> None:
    nothing = borrowed(bench, late(LAYERS), late(LAYERS, seed=3))
    assert [code for code, _ in said(nothing)] == ["borrowed-does-not-fit"]
    known = borrowed(bench, step_recording(LAYERS).rows, step_recording(LAYERS, seed=3).rows)
    assert [code for code, _ in said(known)] == ["borrowed-not-needed"]
    assert "lineage" in known.methods


def test_each_side_of_a_diff_has_its_own(bench: Bench) -> None:
    fused = [layer.replace("norm:900 gemm:3000", "norm_gemm:3300") for layer in LAYERS]
    paths = [bench.path(rows) for rows in (late(LAYERS), late(fused))]
    lenders = [bench.path(step_recording(layers, outside="embed:700").rows) for layers in (LAYERS, fused)]
    both = f"before={lenders[0]},after={lenders[1]}"
    done = profkit("diff", *paths, "--layers-from", both, "--expect-removed", "1", "--format", "json")
    data = json.loads(done.stdout)
    assert (done.returncode, data["verdict"], set(data["removed_per_layer"].values())) == (0, "confirmed", {1.0})
    assert data["after"]["methods"] == {"borrowed": 4 * 12}


def test_a_lender_that_is_not_there_is_one_error(bench: Bench) -> None:
    done = profkit("layers", bench.path(late(LAYERS)), "--layers-from", bench.directory / "absent")
    assert (done.returncode, done.stdout) == (2, "")
    assert "absent: no such file or directory" in done.stderr


@pytest.fixture
def two_batches(bench: Bench) -> Path:
    """A server's window: two graphs of the same kernels, a range around each step that says its batch."""
    recording = Recording()
    graphs = []
    for _ in range(2):
        with recording.capture() as graph:
            for i, layer in enumerate(LAYERS):
                with recording.range(f"model.layers.{i}"):
                    recording.launch_all(layer)
        graphs.append(recording.clone(graph))
    for batch, graph in zip((4, 8), graphs, strict=True):
        for step in range(batch):
            text = f"execute_context_0(0)_generation_{batch}({batch + step})"
            with recording.range(text):
                recording.launch_all("sampler:300")
                recording.replay(graph, range_text=None)
    return bench.path(recording.rows)


def test_kinds_of_step_are_named_by_their_batch(two_batches: Path) -> None:
    census = python_api.census(two_batches)
    assert sorted((kind.kind.batch, kind.kind.steps) for kind in census.kinds) == [("decode 4", 4), ("decode 8", 8)]
    four = python_api.census(two_batches, graph="decode 4")
    assert (four.chosen.kind.steps, launches_by_layer(four)) == (4, {0: 4, 1: 5, 2: 5})
    assert "4 × decode 4 (sequence 2): 15 launches" in profkit("layers", two_batches).stdout


def test_a_graph_that_served_several_batches_is_compared(bench: Bench) -> None:
    def served(*batches: int) -> Path:
        recording = Recording()
        with recording.capture() as graph:
            for i, layer in enumerate(LAYERS):
                with recording.range(f"model.layers.{i}"):
                    recording.launch_all(layer)
        graph = recording.clone(graph)
        for step, batch in enumerate(batches):
            with recording.range(f"execute_context_0(0)_generation_{batch}({batch + step})"):
                recording.launch_all("sampler:300")
                recording.replay(graph, range_text=None)
        return bench.path(recording.rows)

    paths = served(5, 6, 7, 8), served(7, 7, 8, 8)
    assert [python_api.census(path).chosen.kind.batch for path in paths] == ["decode 5–8", "decode 7–8"]
    assert profkit("diff", *paths).returncode == 0


def test_steps_of_different_batches_are_not_compared(two_batches: Path) -> None:
    done = profkit("diff", two_batches, two_batches, "--graph", "before=decode 8,after=decode 4")
    assert done.returncode == 3
    assert "different batches: decode 8" in " ".join(done.stdout.split())
    assert profkit("diff", two_batches, two_batches, "--graph", "decode 8").returncode == 0


@pytest.mark.parametrize("option", ["--layers", "--steps"])
def test_what_an_error_lists_can_be_pasted(bench: Bench, option: str) -> None:
    recording = Recording()
    with recording.capture() as graph, recording.range("model.layers.3"):
        recording.launch_all("gemm pack")
    graph = recording.clone(graph)
    for step in range(3):
        with recording.range(f"execute_context_0(0)_generation_8({step})"):
            recording.replay(graph, range_text=None)
    path = bench.path(recording.rows)
    refused = profkit("layers", path, option, "nothing like it")
    listed = "model.layers.#" if option == "--layers" else "execute_context_#(#)_generation_#(#)"
    assert refused.returncode == 2
    assert listed in refused.stderr
    assert profkit("layers", path, option, listed).returncode == 0


def test_json_says_why_layers_cannot_be_told(bench: Bench) -> None:
    rows = step_recording(["gemm pack"]).rows
    rows.ranges.clear()
    (run,) = json.loads(profkit("layers", bench.path(rows), "--format", "json").stdout)["runs"]
    assert run["refusal"]["code"] == "no-layers"
    assert "--layers-from" in run["refusal"]["message"]
