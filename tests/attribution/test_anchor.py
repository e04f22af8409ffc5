"""Anchor: layers begin at a kernel that the user names."""

from __future__ import annotations

import pytest
from step_traces import attributed, codes, counted, layers_of, replayed, step, unplaced

from profkit.errors import ProfkitError
from profkit.model.selection import Hints

LAYERS = ["gemm mask pack unpack"] * 4


def test_layers_are_the_stretches_from_anchor_to_anchor() -> None:
    ops = step(LAYERS, "embed", "logits softmax")
    result = attributed(replayed(ops), Hints(anchor="^gemm"))
    assert layers_of(result)[: len(ops)] == [op.layer for op in ops]
    assert result.counts() == {"anchor": 2 * len(ops)}


def test_the_last_layer_ends_where_it_stops_matching_its_kind() -> None:
    census = counted(replayed(step(LAYERS, "embed", "logits softmax")), anchor="gemm")
    where = census.chosen.outside[["where", "name"]].to_numpy().tolist()
    assert where == [["(prologue)", "embed"], ["(epilogue)", "logits"], ["(epilogue)", "softmax"]]


def test_an_anchor_may_name_the_one_kernel_of_each_kind_of_layer() -> None:
    ops = step(["full rope pack", "sliding pack", "sliding pack", "full rope pack", "sliding pack"], "embed")
    result = attributed(replayed(ops), Hints(anchor="full|sliding"))
    assert layers_of(result)[: len(ops)] == [op.layer for op in ops]


def test_the_last_layer_may_be_of_a_kind_that_is_unlike_the_usual_one() -> None:
    ops = step(
        ["in linear out experts", "in linear out experts", "q decode pack a2a unpack out experts"] * 3, "", "head"
    )
    result = attributed(replayed(ops), Hints(anchor="^(in|q)$"))
    assert layers_of(result)[: len(ops)] == [op.layer for op in ops]


def test_an_end_leaves_what_lies_between_layers_outside() -> None:
    census = counted(replayed(step(["gemm mask pack sync"] * 3, "embed", "logits")), anchor="gemm", anchor_end="pack")
    assert census.chosen.layers["launches"].tolist() == [6, 6, 6]
    assert census.chosen.outside[["where", "name", "launches"]].to_numpy().tolist() == [
        ["(prologue)", "embed", 2],
        ["(between layers)", "sync", 4],
        ["(epilogue)", "sync", 2],
        ["(epilogue)", "logits", 2],
    ]


def test_an_anchor_in_the_middle_of_a_layer_leaves_the_first_part_unattributed() -> None:
    ops = step(LAYERS)
    result = attributed(replayed(ops), Hints(anchor="^pack"))
    # THEN each layer begins with its pack; gemm and mask of the first are nobody's, and the last one is cut short
    assert layers_of(result)[: len(ops)] == [None, None, *[0] * 4, *[1] * 4, *[2] * 4, 3, 3]
    assert unplaced(result) == 4


def test_a_layer_without_its_end_is_refused() -> None:
    result = attributed(replayed(step(["gemm pack", "gemm", "gemm pack"])), Hints(anchor="gemm", anchor_end="pack"))
    assert unplaced(result) == 10
    assert "1 of 3 layers have no --anchor-end" in result.problems[0].message


def test_an_anchor_that_occurs_once_is_refused() -> None:
    result = attributed(replayed(step(LAYERS, "embed")), Hints(anchor="embed"))
    assert "the last layer has no known end" in result.problems[0].message


@pytest.mark.parametrize(
    ("hints", "message"),
    [
        ({"anchor": "norm"}, "--anchor 'norm' matches no kernel of a step. Kernels there: embed, gemm"),
        ({"anchor": "gemm", "anchor_end": "norm"}, "--anchor-end 'norm' matches no kernel"),
        ({"anchor": "("}, "is not a regular expression"),
        ({"anchor_end": "pack"}, "give --anchor as well"),
    ],
)
def test_an_anchor_that_names_nothing_shows_what_there_is(hints: dict[str, str], message: str) -> None:
    with pytest.raises(ProfkitError) as error:
        counted(replayed(step(LAYERS, "embed")), **hints)
    assert message in str(error.value)


def test_an_anchor_that_nothing_needs_is_said() -> None:
    from recorded_captures import captured_step

    assert "anchor-not-used" in codes(counted(captured_step(["gemm pack"] * 3), anchor="gemm"))
