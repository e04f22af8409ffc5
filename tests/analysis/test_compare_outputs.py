"""Outputs beside each other: reordered arithmetic is within the tolerance, lost or doubled work is not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit.capture import outputs
from profkit.capture.outputs import Raw
from profkit.comparison.outputs import TOLERANCES, OutputComparison, compare_outputs
from profkit.model.outputs import OutputNumbers

ROWS, HEADS, WIDTH, CONTEXT = 56, 32, 64, 1024
NAME = "layers.1.mla/out"


def bf16(x: np.ndarray) -> np.ndarray:
    """`x` rounded to bfloat16, to nearest even, as float32."""
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def numbers(x: np.ndarray, dtype: str = "bfloat16") -> OutputNumbers:
    """The numbers of `x` in `dtype`."""
    if dtype == "bfloat16":
        data = (bf16(x).view(np.uint32) >> 16).astype(np.uint16)
    else:
        data = np.ascontiguousarray(x.astype(dtype))
    return outputs.numbers({NAME: Raw(dtype, x.shape, data.reshape(-1).view(np.uint8))}, lambda raw: raw)[NAME]


def compared(before: np.ndarray, after: np.ndarray, dtype: str = "bfloat16") -> OutputComparison:
    (found,) = compare_outputs({NAME: numbers(before, dtype)}, {NAME: numbers(after, dtype)}).outputs
    return found


def attention(skip: slice | None = None, *, tile: int = CONTEXT, seed: int = 0) -> np.ndarray:
    """One layer of attention, each row the heads beside one another; products of bfloat16, summed in float32.

    Args:
        skip: tokens of the context that are left out.
        tile: the context is summed tile by tile, the sums of which are added in reverse order.
    """
    random = np.random.default_rng(seed)
    q, k, v = (bf16(random.standard_normal((HEADS, n, WIDTH))) for n in (ROWS, CONTEXT, CONTEXT))
    weights = np.exp(np.einsum("hrd,hcd->hrc", q, k) * WIDTH**-0.5)
    if skip is not None:
        weights[:, :, skip] = 0.0
    weights = bf16(weights / weights.sum(-1, keepdims=True))
    summed = np.zeros((HEADS, ROWS, WIDTH), np.float32)
    for begin in reversed(range(0, CONTEXT, tile)):
        summed += weights[:, :, begin : begin + tile] @ v[:, begin : begin + tile]
    return summed.transpose(1, 0, 2).reshape(ROWS, HEADS * WIDTH)


WHOLE = attention()


def test_equal_bits_are_equal() -> None:
    assert compared(WHOLE, WHOLE) == OutputComparison(NAME, "equal")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_another_order_of_the_same_sums_is_within_the_tolerance(dtype: str) -> None:
    found = compared(WHOLE, attention(tile=32), dtype)
    assert found.verdict == "within-tolerance"
    assert found.difference is not None
    assert 0 < found.difference < found.allowed
    assert (found.rows, found.says) == (1, "")


def test_other_roundings_of_intermediates_are_within_the_tolerance() -> None:
    random = np.random.default_rng(1)
    weight = bf16(random.standard_normal((HEADS * WIDTH, 512)) / np.sqrt(HEADS * WIDTH))
    fused, eager = WHOLE @ weight, bf16(WHOLE) @ weight
    assert compared(fused, eager).verdict == "within-tolerance"
    halves = [bf16(WHOLE[:, i::2]) @ weight[i::2] for i in range(2)]
    assert compared(eager, bf16(halves[0]) + bf16(halves[1])).verdict == "within-tolerance"


def test_one_row_that_is_zero_differs_and_is_named() -> None:
    lost = WHOLE.copy()
    lost[17] = 0.0
    found = compared(WHOLE, lost)
    assert (found.verdict, found.block, found.first_row, found.last_row) == ("differs", 17, 17, 17)
    assert found.says.startswith(f"the {found.part} of row 17 is off by ")


@pytest.mark.parametrize("tile", [slice(0, 32), slice(512, 544), slice(CONTEXT - 32, None)])
@pytest.mark.parametrize("seed", range(3))
def test_a_tile_of_32_tokens_that_is_dropped_differs(tile: slice, seed: int) -> None:
    assert compared(attention(seed=seed), attention(tile, seed=seed)).verdict == "differs"


@pytest.mark.parametrize("head", [0, 13, HEADS - 1])
def test_one_head_that_is_doubled_differs(head: int) -> None:
    doubled = WHOLE.reshape(ROWS, HEADS, WIDTH).copy()
    doubled[:, head] *= 2.0
    assert compared(WHOLE, doubled.reshape(WHOLE.shape)).verdict == "differs"


def test_a_sign_that_turns_differs_though_norms_are_equal() -> None:
    found = compared(WHOLE, -WHOLE)
    assert (found.verdict, found.part) == ("differs", "sum")


def test_a_row_in_a_merged_block_still_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    before, lost = numbers(WHOLE), WHOLE.copy()
    lost[17] = 0.0
    monkeypatch.setattr(outputs, "MOST_BLOCKS", ROWS // 4)
    after = numbers(lost)
    assert (before.rows, after.rows) == (1, 4)
    (found,) = compare_outputs({NAME: before}, {NAME: after}).outputs
    assert (found.verdict, found.rows, found.block) == ("differs", 4, 4)
    assert (found.first_row, found.last_row) == (16, 19)
    (same,) = compare_outputs({NAME: numbers(attention(tile=32))}, {NAME: before}).outputs
    assert same.verdict == "within-tolerance"


@pytest.mark.parametrize(("dtype", "verdict"), [("int32", "differs"), ("bool", "differs"), ("float32", "differs")])
def test_integers_and_truth_values_have_no_tolerance(dtype: str, verdict: str) -> None:
    before = np.ones((4, 8))
    after = before.copy()
    after[0, 0] = 0
    assert compared(before, after, dtype).verdict == verdict
    (found,) = compare_outputs({"x": numbers(before, "int32")}, {"x": numbers(before + 1e6, "int32")}).outputs
    assert "int32 has no tolerance" in found.says


def test_other_kinds_and_missing_outputs_are_named() -> None:
    one, wide, other = np.ones((2, 3)), np.ones((3, 2)), numbers(np.ones((2, 3)), "float32")
    found = compare_outputs(
        {"a": numbers(one), "b": numbers(one), "c": numbers(one)}, {"b": numbers(wide), "c": other, "d": numbers(one)}
    )
    assert [(own.name, own.verdict, own.says) for own in found.outputs] == [
        ("a", "missing-after", ""),
        ("b", "other-kind", "it was bfloat16[2, 3] and is bfloat16[3, 2]"),
        ("c", "other-kind", "it was bfloat16[2, 3] and is float32[2, 3]"),
        ("d", "missing-before", ""),
    ]
    assert not found.are_same
    assert [own.name for own in found.of("missing-after", "missing-before")] == ["a", "d"]


def test_nothing_is_not_the_same() -> None:
    assert not compare_outputs({}, {}).are_same


def test_what_is_not_finite_must_be_as_often() -> None:
    one, more = WHOLE.copy(), WHOLE.copy()
    one[0, 0], more[0, :2] = np.nan, np.nan
    found = compared(one, more)
    assert found.verdict == "differs"
    assert found.says == "1 of its elements were infinite or NaN and 2 are"
    assert compared(one, np.where(np.isnan(one), np.inf, one)).verdict == "within-tolerance"


def test_numbers_beyond_a_double_are_never_near() -> None:
    assert compared(np.full((1, 2), 1e300), np.full((1, 2), 1.001e300), "float64").verdict == "differs"


def test_zeros_are_near_zeros_of_the_other_sign_and_not_near_anything_else() -> None:
    zeros = np.zeros((2, 4))
    assert compared(zeros, -zeros).verdict == "within-tolerance"
    assert compared(zeros, np.where(np.eye(2, 4) > 0, 1e-30, zeros)).verdict == "differs"


@given(
    st.sampled_from(sorted(set(TOLERANCES) - {"float8_e4m3fn", "float8_e5m2"})),
    st.integers(0, 1000),
    st.floats(1e-3, 1e3),
    st.integers(0, 15),
)
def test_a_lost_row_shows_in_any_dtype_at_any_size_and_either_way_around(
    dtype: str, seed: int, size: float, row: int
) -> None:
    x = np.random.default_rng(seed).standard_normal((16, 24)) * size
    lost = x.copy()
    lost[row] = 0.0
    for one, other in ((x, lost), (lost, x)):
        found = compared(one, other, dtype)
        assert (found.verdict, found.block) == ("differs", row)
    near = x * (1 + np.random.default_rng(seed).uniform(-1, 1, x.shape) * TOLERANCES[dtype].epsilon)
    assert compared(x, near, dtype).verdict in ("equal", "within-tolerance")
