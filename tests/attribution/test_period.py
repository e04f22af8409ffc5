"""Period: which steps have layers by their repetition, which kinds of layer are told apart, and what is refused."""

from __future__ import annotations

import pytest
from step_traces import Op, attributed, codes, counted, layers_of, per_layer, replayed, step, unplaced

from profkit.counting.count import take_census
from profkit.errors import ProfkitError
from profkit.model.selection import Hints, Selection
from profkit.runs.sides import in_phase

EXPERTS = "norm2 gate topk sort gemm1 silu gemm2 sum allreduce"
DENSE = "norm2 gate_up silu_d down allreduce"
MLA = "norm1 qa qnorm qb kva rope absorb cache pack attn unpack vup o allreduce"
LINEAR = "norm1 qkvg conv l2norm chunk state gatenorm o allreduce"
GEMMA = "n1 qkv rope {} o n2 n3 gate_up act down n4"

STEPS = {
    "one kind": ["gemm mask pack unpack"] * 5,
    "linear attention with MLA every fourth, and a last one": [f"{k} {EXPERTS}" for k in [LINEAR] * 3 + [MLA]] * 5
    + [f"{MLA} {EXPERTS}"],
    "three dense layers before those of experts": [f"{MLA} {DENSE}"] * 3 + [f"{MLA} {EXPERTS}"] * 9,
    "one dense layer before those of experts": [f"{MLA} {DENSE}"] + [f"{MLA} {EXPERTS}"] * 9,
    "dense layers and such of experts in turn": [f"{MLA} {DENSE}", f"{MLA} {EXPERTS}"] * 6,
    "sliding and full attention, five to one": [GEMMA.format(a) for a in (["sliding"] * 5 + ["full"]) * 4],
    "sliding and full attention in turn": [GEMMA.format(a) for a in ("sliding", "full")] * 6,
    "a loop over experts within the layer": ["norm G attn G norm gate " + "up act down " * 8 + "sum"] * 8,
    "two halves that share their norm and all-reduce": ["norm qkv rope attn o ar norm gate_up act down ar"] * 8,
}


@pytest.mark.parametrize("layers", STEPS.values(), ids=STEPS.keys())
def test_every_op_of_a_sound_step_gets_its_layer(layers: list[str]) -> None:
    ops = step(layers, "embed", "final_norm logits")
    result = attributed(replayed(ops))
    assert layers_of(result) == [op.layer for op in ops] * 2
    assert unplaced(result) == 0


def test_kinds_of_layer_have_letters_in_order_and_can_be_selected() -> None:
    trace = replayed(step([GEMMA.format(a) for a in ("sliding", "sliding", "full")] * 4, "embed"))
    assert counted(trace).chosen.layers["module"].tolist() == ["layers.#.A", "layers.#.A", "layers.#.B"] * 4
    assert counted(trace, layer_kind="B").chosen.selected_layers == 4
    with pytest.raises(ProfkitError, match=r"'C' matches no layer\. Kinds .* layers\.#\.A, layers\.#\.B"):
        counted(trace, layer_kind="C")


def test_prologue_and_epilogue_are_rows_of_their_own_and_in_the_graph() -> None:
    census = counted(replayed(step(["gemm mask pack"] * 4, "embed rope", "logits"), replays=3))
    rows = census.chosen.outside[["where", "name", "launches"]].to_numpy().tolist()
    assert rows == [["(prologue)", "embed", 3], ["(prologue)", "rope", 3], ["(epilogue)", "logits", 3]]
    assert (census.ledger.in_layers, census.ledger.in_graph_outside_layers, census.ledger.in_ranges) == (36, 9, 0)


@pytest.mark.parametrize(
    ("ops", "why"),
    [
        (step(["gemm mask pack"] * 2, "embed"), "no sequence of kernels repeats 3 times"),
        (step(["gemm"] * 20), "no sequence of kernels repeats 3 times"),
        ([Op(chr(97 + i), None) for i in range(20)], "no sequence of kernels repeats 3 times"),
        (step(["gemm mask pack"] * 4, " ".join(f"p{chr(97 + i)}" for i in range(20))), "12 of 32 ops, too few"),
        (step(["gemm mask pack unpack"] * 6, "gemm unpack"), "looks like a part of one more"),
    ],
    ids=["two repeats", "one kernel", "none", "a small part of the step", "part of a layer before the first"],
)
def test_what_does_not_fit_is_left_alone_and_the_reason_given(ops: list[Op], why: str) -> None:
    result = attributed(replayed(ops))
    assert set(layers_of(result)) == {None}
    assert unplaced(result) == 2 * len(ops)
    assert [d.code for d in result.problems] == ["period-does-not-fit"]
    assert why in result.problems[0].message


def test_a_kernel_between_two_layers_belongs_to_neither() -> None:
    ops = step(["gemm mask pack unpack"] * 5, "embed", "logits")
    ops.insert(9, Op("sync", None))
    census = counted(replayed(ops))
    assert census.ledger.unattributed == 2
    assert census.chosen.outside[census.chosen.outside["where"] == "(unattributed)"]["name"].tolist() == ["sync"]
    assert "period-leaves-ops" in codes(census)


def test_a_kernel_that_may_end_a_layer_or_begin_the_next_belongs_to_neither() -> None:
    # GIVEN five layers and four times a kernel between them, so that the first layer or the last one lacks it
    ops = step(["gemm mask pack unpack store norm"] * 4 + ["gemm mask pack unpack store"], "embed", "logits")
    result = attributed(replayed(ops))
    placed = {op.name: layer for op, layer in zip(ops, layers_of(result), strict=False)}
    assert placed["norm"] is None
    assert placed["store"] == 4


def test_a_first_layer_with_its_own_variant_of_the_norm_begins_with_it() -> None:
    first, rest = "norm<plain,0>", "norm<plain,1>"
    ops = step([f"{first} qkv attn o {rest} mlp"] + [f"{rest} qkv attn o {rest} mlp"] * 5, "embed", f"{rest} logits")
    assert layers_of(attributed(replayed(ops)))[: len(ops)] == [op.layer for op in ops]


def test_a_compilers_counter_makes_no_other_kernel() -> None:
    layers = [f"gemm triton_poi_fused_add_{16 + i} triton_red_fused_norm_{i} pack" for i in range(6)]
    ops = step(layers, "triton_poi_fused_embedding_0")
    census = counted(replayed(ops))
    assert layers_of(attributed(replayed(ops)))[: len(ops)] == [op.layer for op in ops]
    # The recorded name is kept.
    assert census.chosen.slots["name"].tolist()[1] == "triton_poi_fused_add_16"


def test_stages_that_differ_in_a_number_stay_two_kernels() -> None:
    ops = step(["gemm attn_stage1 attn_stage2 pack"] * 5, "attn_stage3")
    assert layers_of(attributed(replayed(ops)))[: len(ops)] == [op.layer for op in ops]


def test_two_stretches_that_may_be_two_layers_or_halves_of_one_are_said_to_be_doubtful() -> None:
    halves = ["norm G rope attn G ar norm G act G ar"] * 8
    result = attributed(replayed(step(halves, "embed")))
    assert "period-doubtful" in [d.code for d in result.problems]
    assert "--anchor" in result.problems[-1].message


def test_a_side_stream_with_another_number_of_layers_stays_unattributed() -> None:
    ops: list[Op] = []
    for number in range(6):
        ops += [Op(n, number) for n in ("gemm", "mask", "pack", "unpack")]
        ops += [Op(n, None, lane=1) for n in ("gather", "wait")] if number % 2 else []
    result = attributed(replayed(ops))
    assert layers_of(result)[: len(ops)] == [op.layer for op in ops]
    assert unplaced(result) == 2 * 6
    assert "another stream" in result.problems[-1].message


def test_a_side_stream_that_runs_layers_early_stays_unattributed() -> None:
    ops = [Op(n, None, lane=1) for n in ("gather", "wait") * 6]
    ops += [Op(n, number) for number in range(6) for n in ("gemm", "mask", "pack", "unpack")]
    ops[12], ops[11] = ops[11], ops[12]  # the streams overlap
    result = attributed(replayed(ops))
    assert {layer for op, layer in zip(ops, layers_of(result), strict=False) if op.lane == 1} == {None}


def test_both_sides_of_a_diff_begin_their_layers_with_the_same_kernel() -> None:
    # GIVEN a step whose prologue ends as a layer does, and one without that prologue
    before = counted(replayed(step(["norm gemm attn pack"] * 5, "embed", "logits")))
    after_trace = replayed(step(["gemm attn pack norm"] * 5, "embed", "logits"))
    after = counted(after_trace)
    assert before.phase is not None and after.phase is not None  # noqa: PT018 - one precondition
    assert (before.phase.start, after.phase.start) == ("norm", "gemm")

    agreed = in_phase(
        after,
        before,
        lambda start: take_census(
            replayed(step(["norm gemm attn pack"] * 5, "embed", "logits")), Selection(start=start)
        ),
    )

    assert agreed.phase is not None
    assert agreed.phase.start == "gemm"
    assert "phase-aligned" in codes(agreed)


def test_a_kernel_gone_from_the_beginning_of_the_layer_turns_no_phase() -> None:
    before = counted(replayed(step(["mask gemm attn pack"] * 5, "embed")))
    after = counted(replayed(step(["gemm attn pack"] * 5, "embed")))

    def unwanted(start: str) -> object:
        raise AssertionError(f"counted again from {start}")

    assert in_phase(before, after, unwanted) is after  # type: ignore[arg-type]


def test_layers_are_those_of_the_step_whatever_its_replays_are_called() -> None:
    ops = step(["gemm mask pack"] * 4, "embed")
    assert [n for n, _, _ in per_layer(counted(replayed(ops, replays=7)))] == [0, 1, 2, 3]


def test_an_unknown_start_is_refused() -> None:
    result = attributed(replayed(step(["gemm mask pack"] * 4)), Hints(start="norm"))
    assert "does not occur" in result.problems[0].message
