"""Cut: which layers a step has by its ops alone, and what is refused or said to be doubtful.

Steps are written in words, each layer's kernels in a text, so that every op's true layer is known.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

import hypothesis.strategies as st
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings
from step_traces import (
    Op,
    attributed,
    codes,
    counted,
    layers_of,
    per_layer,
    replayed,
    said_outside,
    step,
    unplaced,
)

from profkit.attribution import Attribution
from profkit.attribution.stretches import layers_of as layers_of_codes
from profkit.counting.count import take_census
from profkit.errors import ProfkitError
from profkit.model.selection import Hints, Phase, Selection
from profkit.model.trace import Trace
from profkit.runs.sides import in_phase

EXPERTS = "norm2 gate topk sort gemm1 silu gemm2 sum allreduce"
DENSE = "norm2 gate_up silu_d down allreduce"
MLA = "norm1 qa qnorm qb kva rope absorb cache pack attn unpack vup o allreduce"
LINEAR = "norm1 qkvg conv l2norm chunk state gatenorm o allreduce"
GEMMA = "n1 qkv rope {} o n2 n3 gate_up act down n4"
#: A norm runs four times in each of these, as one kernel.
NORMS = "norm qa norm qb kva norm rope attn vup o norm {}"

STEPS = {
    "one kind": ["gemm mask pack unpack"] * 5,
    "linear attention with MLA every fourth, and a last one": [f"{k} {EXPERTS}" for k in [LINEAR] * 3 + [MLA]] * 5
    + [f"{MLA} {EXPERTS}"],
    "three dense layers before those of experts": [f"{MLA} {DENSE}"] * 3 + [f"{MLA} {EXPERTS}"] * 9,
    "one dense layer before those of experts": [f"{MLA} {DENSE}"] + [f"{MLA} {EXPERTS}"] * 9,
    "sliding and full attention, five to one": [GEMMA.format(a) for a in (["sliding"] * 5 + ["full"]) * 4],
    "sliding and full attention in turn": [GEMMA.format(a) for a in ("sliding", "full")] * 6,
    "a loop over experts within the layer": ["norm G attn G norm gate " + "up act down " * 8 + "sum"] * 8,
    "two halves that share their norm and all-reduce": ["norm qkv rope attn o ar norm gate_up act down ar"] * 8,
    "two halves that share their norm alone": ["norm a b c ar norm d e f ar"] * 8,
    "two halves that share their GEMMs too": ["norm G rope attn G ar norm G act G ar"] * 8,
    "a norm four times a layer": [NORMS.format("gate_up act down")] * 2 + [NORMS.format("gate sort G act G sum")] * 6,
    "a kernel that only one layer has": ["gemm mask pack unpack", "gemm mask pack unpack sync"]
    + ["gemm mask pack unpack"] * 4,
    "a kernel that all but the last have": ["gemm mask pack unpack store sync"] * 4 + ["gemm mask pack unpack store"],
    "a compiler's counter in the names": [
        f"gemm triton_poi_fused_add_{16 + i} triton_red_fused_norm_{i} pack" for i in range(6)
    ],
    "stages that differ in a number": ["gemm attn_stage1 attn_stage2 pack"] * 5,
    "a first layer with its own variant of the norm": [f"norm<p,{i > 0:d}> qkv attn o norm<p,1> mlp" for i in range(6)],
}


def is_right(ops: Sequence[Op], result: Attribution) -> bool:
    """Whether each op of two replays has its true layer."""
    return layers_of(result) == [op.layer for op in ops] * 2 and not unplaced(result)


@pytest.mark.parametrize("layers", STEPS.values(), ids=STEPS.keys())
def test_every_op_of_a_sound_step_gets_its_layer(layers: list[str]) -> None:
    ops = step(layers, "embed", "final_norm logits")
    assert is_right(ops, attributed(replayed(ops)))


REFUSED = {
    "two layers": (step(["gemm mask pack"] * 2, "embed"), "no launch occurs 3 times or more"),
    "one kernel": (step(["gemm"] * 20), "a single launch, which may be anything"),
    "none": ([Op(chr(97 + i), None) for i in range(20)], "no launch occurs 3 times or more"),
    "a small part": (step(["gemm mask pack"] * 4, " ".join(f"p{chr(97 + i)}" for i in range(20))), "12 of 32 ops"),
    "halves, or layers in turn": (step(["norm a b c norm a b d"] * 8), "8 or 16 layers explain it equally well"),
    "four steps": (step(["gemm mask pack"] * 8, "embed", "logits") * 4, "it holds 4 passes over the layers"),
}


@pytest.mark.parametrize(("ops", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_what_does_not_fit_is_left_alone_and_the_reason_given(ops: list[Op], why: str) -> None:
    result = attributed(replayed(ops))
    assert set(layers_of(result)) == {None}
    assert unplaced(result) == 2 * len(ops)
    assert [d.code for d in result.problems] == ["cut-does-not-fit"]
    assert why in result.problems[0].message


def test_layers_of_two_kinds_in_turn_are_said_to_be_doubtful_as_they_could_be_halves() -> None:
    ops = step([f"{MLA} {DENSE}", f"{MLA} {EXPERTS}"] * 6, "embed", "logits")
    result = attributed(replayed(ops))
    assert is_right(ops, result)
    assert [d.message for d in result.problems if d.code == "cut-doubtful"] == [
        "sequence 1: unlike stretches follow each other in turn, 2 at a time, as the parts of one layer do; if they "
        "are, --anchor with --anchor-every 2 takes them together."
    ]


def test_kinds_of_layer_have_letters_in_order_and_can_be_selected() -> None:
    trace = replayed(step([GEMMA.format(a) for a in ("sliding", "sliding", "full")] * 4, "embed"))
    assert counted(trace).chosen.layers["module"].tolist() == ["layers.#.A", "layers.#.A", "layers.#.B"] * 4
    assert counted(trace, layer_kind="B").chosen.selected_layers == 4
    with pytest.raises(ProfkitError, match=r"'C' matches no layer\. Kinds .* layers\.#\.A, layers\.#\.B"):
        counted(trace, layer_kind="C")


@pytest.mark.parametrize(("kernels", "kinds"), [(10, "AAAAA"), (9, "AABAA")])
def test_a_lone_layer_is_an_exception_of_a_kind_up_to_a_tenth_of_its_launches(kernels: int, kinds: str) -> None:
    usual = " ".join(f"k{chr(97 + i)}" for i in range(kernels))
    trace = replayed(step([usual, usual, usual.replace("kd", "other"), usual, usual]))
    found = counted(trace).chosen.layers["module"].tolist()
    assert found == [f"layers.#.{k}" if "B" in kinds else "layers.#" for k in kinds]


def test_prologue_and_epilogue_are_rows_of_their_own_and_in_the_graph() -> None:
    census = counted(replayed(step(["gemm mask pack"] * 4, "embed rope", "logits"), replays=3))
    rows = census.chosen.outside[["where", "name", "launches"]].to_numpy().tolist()
    assert rows == [["(prologue)", "embed", 3], ["(prologue)", "rope", 3], ["(epilogue)", "logits", 3]]
    assert (census.ledger.in_layers, census.ledger.in_graph_outside_layers, census.ledger.in_ranges) == (36, 9, 0)


def test_layers_are_those_of_the_step_whatever_its_replays_are_called() -> None:
    trace = replayed(step(["gemm triton_poi_fused_add_7 pack"] * 4, "embed"), replays=7)
    assert [n for n, _, _ in per_layer(counted(trace))] == [0, 1, 2, 3]
    # The recorded name is kept.
    assert counted(trace).chosen.slots["name"].tolist()[1] == "triton_poi_fused_add_7"


LONG = {
    "61 layers": np.tile(np.arange(5000), 61),
    "75,000 layers": np.tile(np.arange(4), 75_000),
    "no layers": np.random.default_rng(0).integers(0, 100, 300_000),
    "few names twice": np.random.default_rng(0).integers(0, 30_000, 300_000),
}


@pytest.mark.parametrize("sequence", LONG.values(), ids=LONG.keys())
def test_a_long_step_is_cut_in_seconds(sequence: npt.NDArray[np.int64]) -> None:
    begun = time.process_time()
    layers_of_codes(sequence, {code: f"k{code}" for code in range(30_000)}, Hints())
    assert time.process_time() - begun < 15


# Named anchors.


def test_the_last_layer_ends_where_it_is_most_like_another() -> None:
    ops = step(
        ["in linear out experts", "in linear out experts", "q decode pack a2a unpack out experts"] * 3, "", "head"
    )
    assert is_right(ops, attributed(replayed(ops), Hints(anchor="^(in|q)$")))


def test_an_anchor_in_the_middle_of_a_layer_cuts_the_same_layers() -> None:
    ops = step(["gemm mask pack unpack"] * 4, "embed", "logits softmax")
    assert is_right(ops, attributed(replayed(ops), Hints(anchor="^pack")))


@pytest.mark.parametrize("dense", [0, 2])
def test_a_norm_that_runs_four_times_a_layer_is_said_to_and_can_be_counted(dense: int) -> None:
    layers = [NORMS.format("gate_up act down")] * dense + [NORMS.format("gate sort G act G sum")] * (8 - dense)
    ops = step(layers, "embed", "norm logits")
    (said,) = [d.message for d in attributed(replayed(ops), Hints(anchor="^norm$")).problems if "doubt" in d.code]
    assert "unlike stretches follow each other in turn, 4 at a time" in said
    assert "--anchor-every 4" in said
    assert is_right(ops, attributed(replayed(ops), Hints(anchor="^norm$", every=4)))


def test_an_anchor_between_stretches_that_are_not_alike_is_refused() -> None:
    ops = step(["a b c sync", "d e f g sync", "h i sync", "j k l m n sync"])
    (why,) = [d.message for d in attributed(replayed(ops), Hints(anchor="sync")).problems]
    assert "the anchor runs 4 times and the stretches between show no layers that are alike" in why


def test_an_anchor_that_occurs_once_is_refused() -> None:
    result = attributed(replayed(step(["gemm pack"] * 4, "embed")), Hints(anchor="embed"))
    assert "the anchor runs 1 time" in result.problems[0].message


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        (Selection(anchor="norm"), "--anchor 'norm' matches no kernel of a step. Kernels there: embed, gemm"),
        (Selection(anchor="("), "is not a regular expression"),
        (Selection(anchor_every=2), "give both, and 1 or more"),
        (Selection(anchor="gemm", anchor_every=0), "give both, and 1 or more"),
    ],
)
def test_an_anchor_that_names_nothing_shows_what_there_is(selection: Selection, message: str) -> None:
    with pytest.raises(ProfkitError) as error:
        take_census(replayed(step(["gemm pack"] * 4, "embed")), selection)
    assert message in str(error.value)


def test_an_anchor_that_nothing_needs_is_said() -> None:
    from recorded_captures import captured_step

    assert "anchor-not-used" in codes(counted(captured_step(["gemm pack"] * 3), anchor="gemm"))


# Streams.


def test_a_side_stream_belongs_to_the_layer_that_it_runs_beside() -> None:
    ops: list[Op] = []
    for number in range(6):
        ops += [Op(n, number) for n in ("gemm", "mask", "pack", "unpack")]
        ops += [Op(n, number, lane=1) for n in ("gather", "wait")] if number % 2 else []
    assert is_right(ops, attributed(replayed(ops)))


def test_what_a_side_stream_runs_before_the_first_layer_is_in_none() -> None:
    ops = [Op(n, None, lane=1) for n in ("gather", "wait") * 3]
    ops += [Op(n, number) for number in range(6) for n in ("gemm", "mask", "pack", "unpack")]
    ops.insert(7, Op("late", 0, lane=1))  # the streams overlap
    assert is_right(ops, attributed(replayed(ops)))


# Both sides of a diff.


def both(before: Trace, after: Trace) -> tuple[Phase | None, Phase | None, list[str]]:
    """How both sides are cut, and what is said about the second one's."""
    first = counted(before)
    second = in_phase(first, counted(after), lambda like: take_census(after, Selection(like=like)))
    return first.phase, second.phase, [code for code in codes(second) if code not in codes(counted(after))]


def test_both_sides_begin_their_layers_with_the_same_kernel() -> None:
    # GIVEN a step whose prologue ends as a layer does, so that by itself its layers begin with that
    before = replayed(step(["norm gemm attn pack"] * 5, "embed", "logits"))
    after = replayed(step(["gemm attn pack norm"] * 5, "embed norm", "logits"))
    first, second, said = both(before, after)
    assert first is not None
    assert second is not None
    assert (first.start, second.start, said) == ("norm", "norm", [])


def test_a_side_that_would_begin_elsewhere_follows_the_other_and_says_so() -> None:
    before = replayed(step(["gemm attn pack norm"] * 5, "embed", "logits"))
    after = replayed(step(["gemm attn pack norm"] * 5, "embed norm", "logits"))
    first, second, said = both(before, after)
    assert first is not None
    assert second is not None
    assert (first.start, second.start, second.layers, said) == ("gemm", "gemm", 5, ["cut-aligned"])


def test_a_kernel_gone_from_the_beginning_of_the_layer_turns_no_phase() -> None:
    before = replayed(step(["mask gemm attn pack"] * 5, "embed"))
    first, second, said = both(before, replayed(step(["gemm attn pack"] * 5, "embed")))
    assert first is not None
    assert second is not None
    assert (first.start, second.start, said) == ("mask", "gemm", [])


def test_sides_that_cannot_be_divided_alike_are_said_to_differ() -> None:
    before = replayed(step(["norm gemm attn pack"] * 5, "embed"))
    _, second, said = both(before, replayed(step(["norm gemm attn pack"] * 6, "embed")))
    assert second is not None
    assert (second.layers, said) == (6, ["cut-differs"])


def test_a_side_that_could_be_halves_follows_the_other_that_could_not() -> None:
    halves = replayed(step(["norm a b c norm a b d"] * 8))
    _, second, said = both(replayed(step(["norm a b c norm_fused_ab d"] * 8)), halves)
    assert second is not None
    assert (second.layers, second.start, said) == (8, "norm", ["layers-by-cut", "cut-aligned"])
    assert both(halves, halves) == (None, None, [])


# Properties: what is cut otherwise than it was written may be turned by the same launches in each layer, no more.


@st.composite
def plans(draw: st.DrawFn) -> list[Op]:
    """A step of 4 to 20 layers of one or two kinds, each kernel with its true layer, and what is around them. (Of fewer
    than five launches, one is too large a share to be an exception.)"""
    trunk = [f"k{chr(97 + i)}" for i in range(draw(st.integers(5, 9)))]
    at = draw(st.integers(1, len(trunk) - 1))
    if draw(st.booleans()):
        trunk = ["norm", *trunk[:at], "norm", *trunk[at:]]
    kinds = [trunk]
    if draw(st.booleans()):
        kinds.append([*trunk[:at], "full_attention", *trunk[at:]])
    count = draw(st.integers(4, 20))
    chosen = draw(st.lists(st.sampled_from(kinds), min_size=count, max_size=count))
    before = " ".join(f"before_{chr(97 + i)}" for i in range(draw(st.integers(0, 4))))
    behind = " ".join(f"behind_{chr(97 + i)}" for i in range(draw(st.integers(0, 4))))
    return step([" ".join(k) for k in chosen], before, behind)


def check(ops: list[Op], changed: int | None = None) -> None:
    """Attribute two replays of `ops`: where layers are found, no op may be in a wrong one.

    Where a layer begins is a convention, so that its first slots may belong to the layer before, or its last ones to
    the next: but then in all layers alike. Said outside, the first and the last layer's parts are so, too. The op at
    `changed` is like none in its place: it may stand on the other side of a border, and in the first or last layer what
    lies beyond it may be outside.
    """
    result = attributed(replayed(ops))
    found = layers_of(result)[: len(ops)]
    assert layers_of(result)[len(ops) :] == found
    before, behind = said_outside(result, "(prologue)"), said_outside(result, "(epilogue)")
    last = max(op.layer for op in ops if op.layer is not None)
    turns: dict[str, set[int]] = {}
    story = " ".join(f"{op.name}:{op.layer}→{f}" for op, f in zip(ops, found, strict=True))
    for i, op in enumerate(ops):
        if i == changed or (found[i] is None and not before[i] and not behind[i]):
            continue
        if changed is not None and op.layer == ops[changed].layer and (before[i] or behind[i]):
            continue
        place = -1 if before[i] else last + 1 if behind[i] else found[i]
        assert place is not None
        if op.layer is not None:
            turns.setdefault(op.slot, set()).add(place - op.layer)
    assert all(len(turn) == 1 for turn in turns.values()), story
    assert {turn for (turn,) in turns.values()} in ({0}, {-1, 0}, {0, 1}, set()), story


def inside(ops: Sequence[Op]) -> list[int]:
    return [i for i, op in enumerate(ops) if op.layer is not None]


PROPERTY = settings(deadline=None, max_examples=40, derandomize=True)


@given(plans())
@PROPERTY
def test_any_sound_step_is_placed_whole(ops: list[Op]) -> None:
    assert is_right(ops, attributed(replayed(ops)))


@given(plans(), st.data())
@PROPERTY
def test_a_missing_kernel_puts_no_other_into_a_wrong_layer(ops: list[Op], data: st.DataObject) -> None:
    gone = data.draw(st.sampled_from(inside(ops)))
    check([op for i, op in enumerate(ops) if i != gone])


@given(plans(), st.data())
@PROPERTY
def test_an_inserted_kernel_puts_none_into_a_wrong_layer(ops: list[Op], data: st.DataObject) -> None:
    at = data.draw(st.sampled_from(inside(ops)[1:-1]))
    name = data.draw(st.sampled_from(["new_kernel", *sorted({op.name for op in ops})]))
    layer = ops[at].layer
    # A copy of its neighbour cannot be told from it.
    assume(name not in (ops[at].name, ops[at - 1].name))
    check([*ops[:at], Op(name, layer, slot=f"inserted {name}"), *ops[at:]], changed=at)


@given(plans(), st.data())
@PROPERTY
def test_a_renamed_kernel_puts_none_into_a_wrong_layer(ops: list[Op], data: st.DataObject) -> None:
    at = data.draw(st.sampled_from(inside(ops)))
    check([dataclasses.replace(op, name="other") if i == at else op for i, op in enumerate(ops)], changed=at)


@given(plans(), st.data())
@PROPERTY
def test_kernels_of_the_layers_in_the_prologue_stay_outside(ops: list[Op], data: st.DataObject) -> None:
    names = sorted({op.name for op in ops if op.layer is not None})
    extra = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=2))
    check([Op("first", None), *[Op(n, None) for n in extra], *ops])


@given(plans(), st.data())
@PROPERTY
def test_a_side_stream_changes_no_layer_of_the_main_one(ops: list[Op], data: st.DataObject) -> None:
    side = [f"s{chr(97 + i)}" for i in range(data.draw(st.integers(1, 3)))]
    mixed: list[Op] = []
    beside = None
    for number in range(max(op.layer for op in ops if op.layer is not None) + 1):
        main = [op for op in ops if op.layer == number]
        own = list(side)
        while main or own:
            if main and (not own or data.draw(st.booleans())):
                mixed.append(main.pop(0))
                beside = number
            else:
                # Where it starts is what there is to know of it.
                mixed.append(Op(own.pop(0), beside, lane=1))
    assume(mixed[0].lane == 0)
    assert is_right(mixed, attributed(replayed(mixed)))
