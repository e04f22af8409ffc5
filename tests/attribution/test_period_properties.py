"""Period on synthetic steps whose layers are known: it may leave ops out, and never puts one into a wrong layer."""

from __future__ import annotations

import dataclasses
from collections import Counter
from itertools import groupby

import hypothesis.strategies as st
from hypothesis import assume, event, given, settings
from step_traces import Op, attributed, layers_of, replayed, said_outside, step, unplaced

PROLOGUE, EPILOGUE = "embed rope", "logits softmax"


@st.composite
def plans(draw: st.DrawFn) -> list[Op]:
    """A step of 4 to 12 layers of one or two kinds, each kernel with its true layer."""
    shared = draw(st.integers(4, 9))
    with_twice = draw(st.booleans())
    trunk = [f"k{i}" for i in range(shared)]
    if with_twice:
        trunk.insert(draw(st.integers(1, shared - 1)), "norm")
        trunk.insert(0, "norm")
    place_of_kind = draw(st.integers(1, len(trunk) - 1))
    kinds = [trunk]
    if draw(st.booleans()):
        kinds.append([*trunk[:place_of_kind], "full_attention", *trunk[place_of_kind:]])
    count = draw(st.integers(4, 12))
    chosen = draw(st.lists(st.sampled_from(kinds), min_size=count, max_size=count))
    return step([" ".join(k) for k in chosen], PROLOGUE, EPILOGUE)


def check(ops: list[Op]) -> tuple[int, int]:
    """Attribute two replays of `ops`: no op may be in a wrong layer, nor said to be outside if it is in one.

    Where a layer begins is a convention, so that its first slots may belong to the layer before, or its last ones to
    the next: but then in all layers alike.

    Returns:
        ops in layers and ops unplaced, of one replay.
    """
    result = attributed(replayed(ops))
    found = layers_of(result)[: len(ops)]
    before, behind = said_outside(result, "(prologue)"), said_outside(result, "(epilogue)")
    last = max(op.layer for op in ops if op.layer is not None)
    turns: dict[str, set[int]] = {}
    story = " ".join(f"{op.name}:{op.layer}→{f}" for op, f in zip(ops, found, strict=True))
    for i, op in enumerate(ops):
        if op.layer is None:
            assert found[i] is None, story
        elif found[i] is not None:
            turns.setdefault(op.slot, set()).add(found[i] - op.layer)
        elif before[i] or behind[i]:
            assert op.layer == (0 if before[i] else last), story
            turns.setdefault(op.slot, set()).add(-1 if before[i] else 1)
    assert all(len(turn) == 1 for turn in turns.values()), story
    for number in range(last + 1):
        turned = [next(iter(turns[op.slot])) for op in ops if op.layer == number and op.lane == 0 and op.slot in turns]
        assert turned == sorted(turned), story
        assert set(turned) <= {-1, 0, 1}, story
    assert layers_of(result)[len(ops) :] == found
    return sum(f is not None for f in found), unplaced(result) // 2


@given(plans())
@settings(deadline=None, max_examples=100, derandomize=True)
def test_a_sound_step_is_placed_whole(ops: list[Op]) -> None:
    layers = Counter(tuple(op.name for op in layer) for _, layer in groupby(ops[2:-2], lambda op: op.layer))
    assume(min(layers.values()) >= 2)  # a layer unlike all others may be told apart, or left out
    event(f"kinds of layer: {len(layers)}")
    placed, left = check(ops)
    assert (placed, left) == (sum(op.layer is not None for op in ops), 0)
    assert layers_of(attributed(replayed(ops)))[: len(ops)] == [op.layer for op in ops]


@given(plans(), st.data())
@settings(deadline=None, max_examples=100, derandomize=True)
def test_a_missing_kernel_puts_no_other_into_a_wrong_layer(ops: list[Op], data: st.DataObject) -> None:
    inside = [i for i, op in enumerate(ops) if op.layer is not None]
    gone = data.draw(st.sampled_from(inside))
    placed, _ = check([op for i, op in enumerate(ops) if i != gone])
    event(f"placed {placed > 0}")


@given(plans(), st.data())
@settings(deadline=None, max_examples=100, derandomize=True)
def test_an_inserted_kernel_puts_none_into_a_wrong_layer(ops: list[Op], data: st.DataObject) -> None:
    inside = [i for i, op in enumerate(ops) if op.layer is not None]
    at = data.draw(st.sampled_from(inside[1:-1]))
    name = data.draw(st.sampled_from(["new_kernel", *sorted({op.name for op in ops})]))
    layer = ops[at].layer if ops[at - 1].layer == ops[at].layer else None
    # A copy of its neighbour cannot be told from it.
    assume(name not in (ops[at].name, ops[at - 1].name))
    placed, _ = check([*ops[:at], Op(name, layer, slot=f"inserted {name}"), *ops[at:]])
    event(f"placed {placed > 0}")


@given(plans(), st.data())
@settings(deadline=None, max_examples=100, derandomize=True)
def test_a_renamed_kernel_puts_none_into_a_wrong_layer(ops: list[Op], data: st.DataObject) -> None:
    inside = [i for i, op in enumerate(ops) if op.layer is not None]
    at = data.draw(st.sampled_from(inside))
    renamed = [dataclasses.replace(op, name="other") if i == at else op for i, op in enumerate(ops)]
    placed, _ = check(renamed)
    event(f"placed {placed > 0}")


@given(plans(), st.data())
@settings(deadline=None, max_examples=100, derandomize=True)
def test_kernels_of_the_layers_in_the_prologue_stay_outside(ops: list[Op], data: st.DataObject) -> None:
    names = sorted({op.name for op in ops if op.layer is not None})
    extra = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=2))
    check([Op(ops[0].name, None), *[Op(n, None) for n in extra], *ops[1:]])


@given(plans(), st.data())
@settings(deadline=None, max_examples=100, derandomize=True)
def test_interleaved_streams_are_placed_each_by_its_own_order(ops: list[Op], data: st.DataObject) -> None:
    side = [f"s{i}" for i in range(data.draw(st.integers(2, 4)))]
    mixed: list[Op] = []
    last = max(op.layer for op in ops if op.layer is not None)
    for number in range(last + 1):
        main = [op for op in ops if op.layer == number]
        own = [Op(n, number, lane=1, slot=n) for n in side]
        while main or own:
            take = main if not own or (main and data.draw(st.booleans())) else own
            mixed.append(take.pop(0))
    check([*ops[:2], *mixed, *ops[-2:]])
