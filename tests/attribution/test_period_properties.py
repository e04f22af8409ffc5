"""Period on synthetic steps whose layers are known: it may leave ops out, and never puts one into a wrong layer."""

from __future__ import annotations

import dataclasses
from collections import Counter
from itertools import groupby

import hypothesis.strategies as st
from hypothesis import assume, event, given, settings
from step_traces import Op, attributed, layers_of, replayed, step, unplaced

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


def wrong(found: list[int | None], true: list[int | None]) -> list[tuple[int, int | None, int | None]]:
    """Ops with a layer that is not theirs."""
    return [(i, f, t) for i, (f, t) in enumerate(zip(found, true, strict=True)) if f is not None and f != t]


def check(ops: list[Op]) -> tuple[int, int]:
    """Attribute two replays of `ops`; no op may be in a wrong layer, nor an op of a layer be called outside.

    Returns:
        ops in layers and ops unplaced, of one replay.
    """
    result = attributed(replayed(ops))
    found, true = layers_of(result), [op.layer for op in ops] * 2
    assert wrong(found, true) == [], " ".join(f"{op.name}:{op.layer}→{f}" for op, f in zip(ops, found, strict=False))
    outside = [i for i, (f, t) in enumerate(zip(found, true, strict=True)) if f is None and t is not None]
    assert not [i for i in outside if result.method[i] != 0], "an op of a layer was called prologue or epilogue"
    return sum(f is not None for f in found) // 2, unplaced(result) // 2


@given(plans())
@settings(deadline=None, max_examples=150)
def test_a_sound_step_is_placed_whole(ops: list[Op]) -> None:
    layers = Counter(tuple(op.name for op in layer) for _, layer in groupby(ops[2:-2], lambda op: op.layer))
    assume(min(layers.values()) >= 2)  # a layer unlike all others may be told apart, or left out
    event(f"kinds of layer: {len(layers)}")
    placed, left = check(ops)
    assert (placed, left) == (sum(op.layer is not None for op in ops), 0)


@given(plans(), st.data())
@settings(deadline=None, max_examples=200)
def test_a_missing_kernel_puts_no_other_into_a_wrong_layer(ops: list[Op], data: st.DataObject) -> None:
    inside = [i for i, op in enumerate(ops) if op.layer is not None]
    gone = data.draw(st.sampled_from(inside))
    placed, _ = check([op for i, op in enumerate(ops) if i != gone])
    event(f"placed {placed > 0}")


@given(plans(), st.data())
@settings(deadline=None, max_examples=200)
def test_an_inserted_kernel_puts_none_into_a_wrong_layer(ops: list[Op], data: st.DataObject) -> None:
    inside = [i for i, op in enumerate(ops) if op.layer is not None]
    at = data.draw(st.sampled_from(inside[1:-1]))
    name = data.draw(st.sampled_from(["new_kernel", *sorted({op.name for op in ops})]))
    layer = ops[at].layer if ops[at - 1].layer == ops[at].layer else None
    more = [*ops[:at], Op(name, layer), *ops[at:]]
    result = attributed(replayed(more))
    found, true = layers_of(result), [op.layer for op in more] * 2
    # A kernel equal to its neighbour cannot be told from it, so the two may change places.
    assert [w for w in wrong(found, true) if name not in {more[w[0] % len(more)].name}] == []
    if name == "new_kernel":
        assert wrong(found, true) == []


@given(plans(), st.data())
@settings(deadline=None, max_examples=200)
def test_a_renamed_kernel_puts_none_into_a_wrong_layer(ops: list[Op], data: st.DataObject) -> None:
    inside = [i for i, op in enumerate(ops) if op.layer is not None]
    at = data.draw(st.sampled_from(inside))
    renamed = [dataclasses.replace(op, name="other") if i == at else op for i, op in enumerate(ops)]
    placed, _ = check(renamed)
    event(f"placed {placed > 0}")


@given(plans(), st.data())
@settings(deadline=None, max_examples=150)
def test_kernels_of_the_layers_in_the_prologue_stay_outside(ops: list[Op], data: st.DataObject) -> None:
    names = sorted({op.name for op in ops if op.layer is not None})
    extra = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=2))
    check([Op(ops[0].name, None), *[Op(n, None) for n in extra], *ops[1:]])


@given(plans(), st.data())
@settings(deadline=None, max_examples=150)
def test_interleaved_streams_are_placed_each_by_its_own_order(ops: list[Op], data: st.DataObject) -> None:
    side = [f"s{i}" for i in range(data.draw(st.integers(2, 4)))]
    mixed: list[Op] = []
    last = max(op.layer for op in ops if op.layer is not None)
    for number in range(last + 1):
        main = [op for op in ops if op.layer == number]
        own = [Op(n, number, lane=1) for n in side]
        while main or own:
            take = main if not own or (main and data.draw(st.booleans())) else own
            mixed.append(take.pop(0))
    check([*[op for op in ops[:2]], *mixed, *ops[-2:]])
