"""Whether outputs are right: equal values or a tolerance, NaN equal to NaN, and what is said of a difference."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="outputs are tensors")

from profkit.errors import ProfkitError  # noqa: E402
from profkit.sweep import check  # noqa: E402
from profkit.sweep.check import difference  # noqa: E402

NAN, INF = float("nan"), float("inf")


def told(
    found: list[float], expected: list[float], tolerance: tuple[float, float] = (0.0, 0.0), dtype: str = "float32"
) -> str | None:
    kind = getattr(torch, dtype)
    return difference("out", torch.tensor(found).to(kind), torch.tensor(expected), tolerance)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "float8_e4m3fn"])
def test_equal_values_and_nan_are_no_difference(dtype: str) -> None:
    assert told([1.5, NAN, -2.0], [1.5, NAN, -2.0], dtype=dtype) is None


def test_nan_equals_nan_of_other_bits() -> None:
    odd, usual = (torch.tensor([bits], dtype=torch.int32).view(torch.float32) for bits in (0x7FC00001, 0x7FC00000))
    assert difference("out", odd, usual, (0.0, 0.0)) is None


def test_minus_zero_is_not_zero_where_values_must_be_equal_and_is_within_a_tolerance() -> None:
    assert told([-0.0], [0.0]) is not None
    assert told([-0.0], [0.0], (1e-6, 1e-6)) is None


def test_a_difference_is_counted_and_measured() -> None:
    assert told([1.0, 2.5, 3.0], [1.0, 2.0, 3.25]) == (
        "out: 2 of 3 elements differ from the reference, by up to 0.5 (equal values are asked for)"
    )


@pytest.mark.parametrize(("found", "within"), [(102.0, True), (103.1, False)])
def test_the_tolerance_is_atol_plus_rtol_of_the_reference(found: float, within: bool) -> None:
    assert (told([found], [100.0], (0.02, 1.0)) is None) is within


@pytest.mark.parametrize("bad", [NAN, INF])
def test_a_nan_where_none_belongs_is_outside_every_tolerance(bad: float) -> None:
    assert told([1.0, bad], [1.0, 2.0], (0.5, 0.5)) == (
        "out: 1 of 2 elements differ from the reference, some by NaN or infinity (rtol 0.5, atol 0.5)"
    )


def test_infinities_of_one_sign_are_equal() -> None:
    assert told([-INF], [-INF], (0.02, 0.02)) is None
    assert told([INF], [-INF], (0.02, 0.02)) is not None


def test_integers_are_compared_exactly() -> None:
    big = 2**53
    found, expected = torch.tensor([big + 1]), torch.tensor([big])
    assert difference("ids", found, expected, (0.0, 0.0)) is not None
    assert difference("ids", expected, expected.clone(), (0.0, 0.0)) is None


def test_another_shape_is_a_difference() -> None:
    one = torch.ones(2)
    assert difference("a", one, torch.ones(3), (0.0, 0.0)) == "a has shape [2], the reference [3]"


def test_every_part_of_a_large_output_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "_CHUNK", 4)
    found = torch.arange(10.0)
    expected = found.clone()
    found[[3, 4, 9]] += torch.tensor([1.0, 2.0, 0.5])
    assert str(difference("out", found, expected, (0.0, 0.0))).startswith("out: 3 of 10 elements differ")
    assert "by up to 2 " in str(difference("out", found, expected, (0.0, 0.0)))


def test_an_empty_output_is_right_and_strides_do_not_matter() -> None:
    assert difference("out", torch.empty(0, 3), torch.empty(0, 3), (0.0, 0.0)) is None
    square = torch.arange(6.0).reshape(2, 3)
    assert difference("out", square.t().contiguous().t(), square, (0.0, 0.0)) is None


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("tolerance", [(0.0, 0.0), (1e-3, 1e-3)])
def test_the_imaginary_part_counts(dtype: str, tolerance: tuple[float, float]) -> None:
    right = torch.tensor([1 + 2j, complex(NAN, 1.0)]).to(getattr(torch, dtype))
    conjugate = torch.tensor([1 - 2j, complex(NAN, 0.0)]).to(getattr(torch, dtype))
    assert difference("z", right, right.clone(), tolerance) is None
    assert str(difference("z", conjugate, right, tolerance)).startswith("z: 2 of 2 elements differ")
    assert difference("z", right[:1].conj(), conjugate[:1], tolerance) is None


@pytest.mark.parametrize(("found", "within"), [(103 + 4j, True), (103 + 4.1j, False)])
def test_a_complex_error_is_the_length_of_the_difference(found: complex, within: bool) -> None:
    told = difference("z", torch.tensor([found]), torch.tensor([100 + 0j]), (0.04, 1.0))
    assert (told is None) is within


@pytest.mark.parametrize(
    ("found", "expected", "tolerance", "within"),
    [
        (2**60 + 1, 2**60, (0.0, 1.0), True),
        (2**60 + 2, 2**60, (0.0, 1.0), False),
        (2**60 + 2, 2**60, (0.0, 1.9), False),
        (-(2**63), 2**63 - 1, (0.0, 1.0), False),
        (-(2**63), 2**63 - 1, (0.0, 0.99 * 2.0**64), False),
        (-(2**63), 2**63 - 1, (0.0, 2.0**64), True),
        (2**63 - 1, 2**63 - 2, (0.0, 0.0), False),
        (-(2**32), 0, (0.0, 2.0**32 - 1), False),
        (-1, 0, (0.0, 0.0), False),
        (2**63 - 1, 0, (0.0, 2.0**64), True),
        (109, 100, (0.1, 0.0), True),
        (111, 100, (0.1, 0.0), False),
        (-111, -100, (0.1, 0.0), False),
    ],
)
def test_differences_of_integers_are_exact(
    found: int, expected: int, tolerance: tuple[float, float], within: bool
) -> None:
    pair = (torch.tensor([number]) for number in (found, expected))
    assert (difference("ids", *pair, tolerance) is None) is within


def test_the_largest_unsigned_integers_are_compared_exactly() -> None:
    found, expected = (torch.tensor([bits], dtype=torch.int64).view(torch.uint64) for bits in (-1, -3))
    assert difference("ids", found, expected, (0.0, 1.0)) is not None
    assert difference("ids", found, expected, (0.0, 2.0)) is None
    assert difference("ids", found, found.clone(), (0.0, 0.0)) is None
    zero = torch.zeros(1, dtype=torch.int64).view(torch.uint64)
    assert difference("ids", zero, found, (0.5, 0.0)) is not None


def test_integers_of_another_width_are_compared_by_value() -> None:
    narrow, wide = torch.tensor([-5], dtype=torch.int8), torch.tensor([-5])
    assert difference("ids", narrow, wide, (0.0, 0.0)) is None
    assert difference("ids", narrow, torch.tensor([251]), (0.0, 0.0)) is not None


def test_a_reference_is_not_rounded_to_the_outputs_dtype() -> None:
    assert difference("out", torch.ones(1), torch.ones(1).double(), (0.0, 0.0)) is None
    precise = torch.tensor([1 + 1e-9], dtype=torch.float64)
    assert difference("out", torch.ones(1), precise, (0.0, 0.0)) is not None


def test_a_tolerance_does_not_make_true_false() -> None:
    yes, no = torch.tensor([True]), torch.tensor([False])
    assert difference("out", yes, no, (2.0, 2.0)) is not None
    assert difference("out", yes, yes.clone(), (0.0, 0.0)) is None


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ("int32", "float32"),
        ("float32", "int64"),
        ("complex64", "float32"),
        ("bool", "uint8"),
        ("uint64", "int64"),
    ],
)
@pytest.mark.parametrize("tolerance", [(0.0, 0.0), (1.0, 1.0)])
def test_different_kinds_are_not_compared(found: str, expected: str, tolerance: tuple[float, float]) -> None:
    tensors = {name: torch.ones(2).to(getattr(torch, name)) for name in (found, expected)}
    with pytest.raises(ProfkitError, match=f"Output out is torch.{found} and its reference torch.{expected}: "):
        difference("out", tensors[found], tensors[expected], tolerance)
