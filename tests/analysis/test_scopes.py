"""Scopes: nesting, launch ranges of eager ops, and what is no user range (F9, F15)."""

from __future__ import annotations

import pytest
from bench import Bench, launches_by_layer
from nsys_builder import DOMAIN, MARK, START_END, Kernel, Launch, Range, Rows
from recording import Recording, step_recording

from profkit.model.scope import place


def eager(ranges: list[Range], launch_at: int = 50, tid: int = 100) -> Rows:
    """One eager kernel launched at `launch_at`."""
    return Rows([Kernel("k", 500, 600, 1)], ranges, [], [Launch("cudaLaunchKernel_v7000", launch_at, 1, tid)])


def scope(bench: Bench, rows: Rows) -> str:
    """The scope of the only op."""
    census = bench.count(rows)
    assert census.ledger.ops == 1
    if len(census.chosen.slots):
        layer, slot = census.chosen.layers.iloc[0], census.chosen.slots.iloc[0]
        return "/".join(p for p in (layer["scope"], slot["inside"]) if p)
    return str(census.chosen.outside["where"].iat[0])


def test_an_eager_op_takes_the_ranges_around_its_launch(bench: Bench) -> None:
    rows = eager([Range("model", 0, 100), Range("layers.3", 10, 90), Range("mlp", 40, 60)])
    assert scope(bench, rows) == "model/layers.3/mlp"
    assert bench.count(rows).methods == {"launch range": 1}


@pytest.mark.parametrize(
    ("launch_at", "expected"),
    [(10, "layers.0"), (19, "layers.0"), (20, "layers.1"), (29, "layers.1"), (30, "(outside graphs and ranges)")],
)
def test_a_range_holds_its_start_and_not_its_end(bench: Bench, launch_at: int, expected: str) -> None:
    assert scope(bench, eager([Range("layers.0", 10, 20), Range("layers.1", 20, 30)], launch_at)) == expected


def test_a_range_of_another_thread_says_nothing(bench: Bench) -> None:
    assert scope(bench, eager([Range("layers.0", 0, 100, tid=101)])) == "(outside graphs and ranges)"


def test_a_range_of_another_process_says_nothing(bench: Bench) -> None:
    assert scope(bench, eager([Range("layers.0", 0, 100, pid=101)])) == "(outside graphs and ranges)"


def test_an_op_without_a_recorded_launch_is_unattributed(bench: Bench) -> None:
    # GIVEN the correlation id of another process's launch (F4)
    rows = Rows([Kernel("k", 500, 600, 1, pid=100)], [], [], [Launch("cudaLaunchKernel_v7000", 50, 1, pid=200)])
    census = bench.count(rows)
    assert (census.ledger.unattributed, census.ledger.outside_graphs) == (1, 0)


def test_start_end_ranges_never_enter_the_stack(bench: Bench) -> None:
    # GIVEN start/end ranges that cross the push/pop ranges, most of them never closed
    strays = [Range(f"request {i}", i, None, style=START_END) for i in range(40)]
    strays.append(Range("layers.9", 0, 100, style=START_END))
    assert scope(bench, eager([*strays, Range("layers.0", 10, 90)])) == "layers.0"


@pytest.mark.parametrize(
    "library",
    [
        pytest.param(Range("layers.9", 20, 80, domain=5), id="NCCL domain"),
        pytest.param(Range("aten::layers.9, op_id = 314290", 20, 80), id="op_id"),
        pytest.param(Range("aten::layers.9, seq = 12", 20, 80), id="seq"),
    ],
)
def test_library_ranges_are_no_layers(bench: Bench, library: Range) -> None:
    domain = Range("NCCL", 0, None, style=DOMAIN, domain=5, registered=True)
    assert scope(bench, eager([domain, Range("layers.0", 10, 90), library])) == "layers.0"


def test_a_users_own_domain_names_layers(bench: Bench) -> None:
    domain = Range("my_model", 0, None, style=DOMAIN, domain=5, registered=True)
    assert scope(bench, eager([domain, Range("layers.0", 10, 90, domain=5)])) == "layers.0"


def test_registered_and_plain_texts_are_both_read(bench: Bench) -> None:
    assert scope(bench, eager([Range("layers.0", 10, 90, registered=True), Range("mlp", 20, 80)])) == "layers.0/mlp"


def test_marks_domains_and_an_unclosed_range_do_no_harm(bench: Bench) -> None:
    # GIVEN rows with end NULL: a mark, a domain creation, and a range that was never closed
    ranges = [
        Range("mark", 5, None, style=MARK),
        Range("dom", 0, None, style=DOMAIN, domain=3),
        Range("layers.4", 7, None),
    ]

    census = bench.count(eager(ranges))

    assert launches_by_layer(census) == {4: 1}
    unclosed = [d.message for d in census.diagnostics if d.code == "unclosed-range"]
    assert len(unclosed) == 1
    assert unclosed[0].startswith("1 range was never closed and is taken")


def test_an_unclosed_outer_range_keeps_later_ranges_nested(bench: Bench) -> None:
    ranges = [Range("serve", 1, None), Range("warm", 2, 9), Range("layers.1", 40, 60)]
    assert scope(bench, eager(ranges)) == "serve/layers.1"


def test_overlapping_ranges_of_two_domains_do_not_hide_layers(bench: Bench) -> None:
    # GIVEN push/pop stacks are a domain's own, so ranges of two domains may overlap without nesting
    rows = step_recording(["gemm pack"] * 2).rows
    rows.ranges += [Range("warm", 10, 1000, domain=1), Range("session", 500, 10**9, domain=2)]
    assert launches_by_layer(bench.count(rows)) == {0: 2, 1: 2}


def test_a_range_still_open_behind_an_overlapping_one_counts(bench: Bench) -> None:
    # GIVEN domain 1's range ends inside domain 2's; the launch comes when only domain 2's is open
    ranges = [Range("warm", 0, 20, domain=1), Range("layers.2", 10, 90, domain=2), Range("x", 30, 40, domain=2)]
    assert scope(bench, eager(ranges)) == "layers.2"


def test_the_innermost_range_that_names_a_layer_decides(bench: Bench) -> None:
    assert scope(bench, eager([Range("encoder.layers.1", 0, 100), Range("adapter_layer_7", 10, 90)])).endswith(
        "layer_7"
    )


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("layers.0", 0),
        ("layer.12.mla", 12),
        ("model.layers.3.self_attn", 3),
        ("Layer_4", 4),
        ("decoder.layers.5", 5),
        ("h.6", 6),
        ("layers.007", 7),
        ("player.3", None),
        ("decoder_layers_5", None),
        ("num_layers_61", None),
        ("layernorm.2", None),
        ("layers", None),
        ("layers.x", None),
        ("layers 3", None),
        ("pipeline stage 0: layers.0-23", None),
        ("run layers.0..23", None),
        ("layers.0 to 7", None),
        ("layers.0:24", None),
        ("capture of layers_24", None),
        ("layers.3-attn", 3),
        ("transformer.blocks.8.mlp", 8),
        ("kv cache block_16 bs 8", None),
        ("warm up blocks.128 of the pool", None),
    ],
)
def test_which_texts_name_a_layer(bench: Bench, text: str, number: int | None) -> None:
    layers = bench.count(eager([Range(text, 0, 100)])).chosen.layers
    assert layers["number"].tolist() == ([] if number is None else [number])


@pytest.mark.parametrize(
    ("around", "stack"),
    [
        ("draft_forward", "draft/layers."),
        ("target decode", "target/layers."),
        ("Llama3", "Llama#/layers."),
        ("DeepseekV3ForCausalLM", "DeepseekV#ForCausalLM/layers."),
        ("execute_context_0(0)_generation_8(8)", "layers."),
        ("CUDAGraphWrapper", "layers."),
        ("Capturing CUDA graphs (mixed prefill-decode, PIECEWISE)", "layers."),
        ("ProfilerStep#12", "layers."),
        ("req 3f2a91", "layers."),
    ],
)
def test_what_is_said_of_the_model_around_a_layer_names_its_stack(around: str, stack: str) -> None:
    found = place((around, "layers.3.mlp")).layer
    assert found is not None
    assert (found.stack, found.number) == (stack, 3)


@pytest.mark.parametrize(
    ("text", "stack"),
    [
        ("model.groups.0.layers.1", "model.groups.0.layers."),
        ("stage_1.layers.0", "stage_1.layers."),
        ("step 12: layers.3", "layers."),
        ("draft 7/layers.3", "draft/layers."),
        ("bs8/model.layers.3", "model.layers."),
    ],
)
def test_numbers_in_a_modules_path_are_its_own_and_others_are_ignored(text: str, stack: str) -> None:
    found = place((text,)).layer
    assert found is not None
    assert found.stack == stack


def test_encoder_and_decoder_layers_stay_two(bench: Bench) -> None:
    recording = Recording()
    with recording.capture() as graph:
        for part in ("encoder", "decoder"):
            with recording.range(f"{part}.layers.0"):
                recording.launch_all("gemm")
    recording.replay(recording.clone(graph), 2)
    assert bench.count(recording.rows).chosen.layers["scope"].tolist() == ["decoder.layers.0", "encoder.layers.0"]


def test_nested_module_ranges_of_one_layer_are_one_layer(bench: Bench) -> None:
    # GIVEN the ranges that module hooks push: model.layers.0 > model.layers.0.self_attn > model.layers.0.self_attn.o
    recording = Recording()
    with recording.capture() as graph:
        for i in range(2):
            with recording.range(f"model.layers.{i}"):
                recording.launch_all("norm")
                with recording.range(f"model.layers.{i}.self_attn"):
                    recording.launch_all("qkv")
                    with recording.range(f"model.layers.{i}.self_attn.o_proj"):
                        recording.launch_all("o")
    recording.replay(recording.clone(graph), 3)

    assert launches_by_layer(bench.count(recording.rows)) == {0: 3, 1: 3}


def two_parts() -> Rows:
    """Layers whose halves have sibling ranges: layers.0.mla, layers.0.mlp, layers.1.mla, …"""
    recording = Recording()
    with recording.capture() as graph:
        for i in range(2):
            with recording.range(f"layers.{i}.mla"):
                recording.launch_all("qkv")
            with recording.range(f"layers.{i}.mlp"):
                recording.launch_all("up down")
    recording.replay(recording.clone(graph), 3)
    return recording.rows


@pytest.mark.parametrize(("pattern", "expected"), [("mla", ["qkv"] * 2), ("mlp", ["up", "down"] * 2)])
def test_sibling_ranges_of_one_layer_can_be_selected(bench: Bench, pattern: str, expected: list[str]) -> None:
    census = bench.count(two_parts(), layers=pattern)
    assert census.chosen.selected_slots["name"].tolist() == expected
