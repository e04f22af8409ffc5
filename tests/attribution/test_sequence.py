"""Sequence: the capture's launches, in order, name the layers of the replay's ops."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from recorded_captures import capture_of, captured_step, joined, table_of_ranges, with_capture
from step_traces import Op, Truth, codes, counted, layers_of, per_layer, replayed, step

from profkit.attribution import Attribution, attribute
from profkit.attribution.method import CaptureTrace
from profkit.counting.count import take_census
from profkit.model.census import Census
from profkit.model.trace import LAUNCHES, OPS, RANGES, Trace

LAYERS = ["gemm mask pack", "gemm mask pack", "gemm pack"]


def by_capture(trace: Trace, *captures: Trace) -> Attribution:
    """`trace` attributed with its capture traces."""
    return attribute(trace, [CaptureTrace(f"capture{i}.json", c) for i, c in enumerate(captures)])


def found(attribution: Attribution, ops: Sequence[Op]) -> list[Truth]:
    """The layers of the first replay."""
    return layers_of(attribution)[: len(ops)]


def test_launches_with_names_place_ops_by_name() -> None:
    ops = step(LAYERS, "embed", "logits")
    result = by_capture(replayed(ops), capture_of(ops))
    assert found(result, ops) == [op.layer for op in ops]
    assert result.counts() == {"sequence": 2 * len(ops)}
    assert "checked by name" in result.problems[0].message


def test_the_capture_may_be_in_the_same_trace() -> None:
    trace = captured_step(LAYERS, "embed", "logits")
    assert per_layer(counted(trace)) == [
        (0, ("gemm", "mask", "pack"), 30),
        (1, ("gemm", "mask", "pack"), 30),
        (2, ("gemm", "pack"), 20),
    ]


def test_launches_that_became_no_kernel_are_skipped_counted_and_listed() -> None:
    ops = step(["gemm mask pack"] * 4)
    captured = [*ops[:5], Op("memo", 1), *ops[5:]]
    result = by_capture(replayed(ops), capture_of(captured, ran=["fill", "fill"]))
    assert found(result, ops) == [op.layer for op in ops]
    told = next(d.message for d in result.problems if d.code == "launches-without-op")
    assert "3 of 15 captured kernel launches became no kernel of the graph (2 launches ran at once)" in told
    assert "2 × fill, 1 × memo" in told


def test_an_op_that_may_be_of_either_of_two_layers_is_not_placed() -> None:
    # GIVEN two equal launches in a row, of two layers, one of which became no op
    captured = step(["gemm mask pack", "pack gemm", "gemm mask pack"])
    ops = [op for i, op in enumerate(captured) if i != 3]
    result = by_capture(replayed(ops), capture_of(captured))
    assert found(result, ops) == [0, 0, None, 1, 2, 2, 2]
    assert "sequence-ambiguous" in [d.code for d in result.problems]


def test_a_capture_of_other_kernels_places_nothing() -> None:
    ops = step(LAYERS)
    other = [dataclasses.replace(op, name="other") if i == 4 else op for i, op in enumerate(ops)]
    result = by_capture(replayed(ops), capture_of(other))
    assert result.counts() == {}
    assert "op 4 of 8, mask, has no launch of that name in order" in result.problems[0].message


def test_a_capture_of_much_more_is_of_another_graph() -> None:
    ops = step(["gemm mask pack"] * 2)
    result = by_capture(replayed(ops), capture_of(step(["gemm mask pack"] * 3)))
    assert result.counts() == {}
    assert "9 launches and a replay has 6 ops" in result.problems[0].message


def test_launches_without_names_place_ops_by_count_and_say_so() -> None:
    ops = step(LAYERS, "embed")
    result = by_capture(replayed(ops), capture_of(ops, named=False))
    assert found(result, ops) == [op.layer for op in ops]
    assert "checked by count, kind and operator only" in result.problems[0].message


def test_by_count_one_launch_too_many_places_nothing() -> None:
    ops = step(LAYERS)
    result = by_capture(replayed(ops), capture_of([*ops, Op("more", None)], named=False))
    assert result.counts() == {}
    assert [d.code for d in result.problems] == ["sequence-does-not-fit"]


def test_by_count_operators_that_contradict_the_kernels_place_nothing() -> None:
    # GIVEN as many launches as ops, shifted against each other by one
    ops = step(["gemm mask pack"] * 6)
    operators = [f"aten::{op.name}" for op in ops]
    assert by_capture(replayed(ops), capture_of(ops, named=False, operators=operators)).counts() == {"sequence": 36}

    ops = step(["gemm mask pack"] * 3 + ["gemm pack mask"] * 3)
    result = by_capture(replayed(ops), capture_of(ops, named=False, operators=operators))

    assert result.counts() == {}
    assert "another operator" in result.problems[0].message


def test_graphs_captured_one_after_the_other_keep_each_its_own_layers() -> None:
    # GIVEN two graphs, captured in ranges of their own, whose replays alternate
    small, large = step(["gemm pack"] * 2), step(["gemm pack"] * 3)
    first, second = replayed(small, 2), replayed(large, 2)
    ops = second.ops.assign(correlation=second.ops["correlation"] + 10, start=second.ops["start"] + 5000)
    ops = ops.assign(end=ops["start"] + 5)
    launches = second.launches.assign(correlation=second.launches["correlation"] + 10)
    both = dataclasses.replace(
        first, ops=joined([first.ops, ops], OPS), launches=joined([first.launches, launches], LAUNCHES)
    )
    trace = with_capture(both, *(capture_of(o, around=f"capture_{len(o)}") for o in (small, large)))
    result = attribute(trace)
    true = [op.layer for op in small] * 2 + [op.layer for op in large] * 2
    assert layers_of(result) == true
    assert result.counts() == {"sequence": len(true)}


def test_captures_that_fit_equally_and_disagree_place_nothing() -> None:
    ops = step(["gemm pack"] * 4)
    other = [dataclasses.replace(op, layer=(op.layer or 0) // 2) for op in ops]
    result = by_capture(replayed(ops), capture_of(ops), capture_of(other))
    assert result.counts() == {}
    assert [d.code for d in result.problems] == ["sequence-ambiguous"]


def test_streams_that_overlap_are_not_in_the_order_of_the_capture() -> None:
    ops = [dataclasses.replace(op, lane=i % 2) for i, op in enumerate(step(["gemm mask pack"] * 3))]
    result = by_capture(replayed(ops), capture_of(ops))
    assert result.counts() == {}
    assert "streams overlap" in result.problems[0].message


def test_a_capture_that_names_no_layer_is_aligned_said_and_left_to_cut() -> None:
    ops = step(["gemm mask pack"] * 4, "embed")
    capture = capture_of(ops, ranges=False, around="capture_4")
    census: Census = take_census(replayed(ops), None, [CaptureTrace("capture.json", capture)])
    assert census.methods == {"cut": 26}
    assert census.chosen.selected_layers == 4
    assert "Ranges, but no layers, of replayed ops" in next(d.message for d in census.diagnostics)
    assert "layers-by-cut" in codes(census)


def test_a_capture_without_any_range_is_said() -> None:
    ops = step(["gemm mask pack"] * 4)
    result = by_capture(replayed(ops), capture_of(ops, ranges=False))
    assert result.counts() == {}
    assert [d.code for d in result.problems] == ["capture-without-ranges"]


def test_layers_come_from_module_calls_where_no_range_names_any() -> None:
    ops = step(["gemm mask pack"] * 3, "embed")
    capture = capture_of(ops, ranges=False, around="capture_3")
    calls = [(0, 200, "nn.Module: Qwen3Model_0", "python_function")]
    for number in range(3):
        start = 10 * (1 + 3 * number)
        calls.append((start - 2, start + 28, f"nn.Module: Qwen3DecoderLayer_{number + 7}", "python_function"))
        calls.append((start - 1, start + 8, f"nn.Module: QKVLinear_{number}", "python_function"))
    ranges = joined([capture.ranges, table_of_ranges(calls)], RANGES)
    census = take_census(replayed(ops), None, [CaptureTrace("c.json", dataclasses.replace(capture, ranges=ranges))])
    assert census.methods == {"sequence": 20}
    assert census.chosen.layers["scope"].tolist() == [f"Qwen3Model/layers.{n}" for n in range(3)]
    # Instance numbers differ from layer to layer and are no part of the place.
    assert census.chosen.slots["inside"].tolist() == ["QKVLinear", "", ""] * 3
