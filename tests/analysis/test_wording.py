"""Numbers and counts in sentences."""

from __future__ import annotations

import pytest

from profkit.model.wording import counted, signed


@pytest.mark.parametrize(
    ("number", "noun", "expected"),
    [
        (1, "launch", "1 launch"),
        (2, "launch", "2 launches"),
        (0, "graph node", "0 graph nodes"),
        (12_345_678, "op", "12345678 ops"),
        (0.25, "layer", "0.25 layers"),
    ],
)
def test_a_count_has_all_its_digits_and_its_noun_s_number(number: float, noun: str, expected: str) -> None:
    assert counted(number, noun) == expected


@pytest.mark.parametrize(
    ("value", "decimals", "expected"),
    [
        (1.5, 2, "+1.50"),
        (-0.25, 2, "−0.25"),
        (0.004, 2, "0.00"),
        (-0.004, 2, "0.00"),
        (-0.006, 2, "−0.01"),
        (12, 0, "+12"),
    ],
)
def test_a_signed_number_has_a_true_minus_and_zero_no_sign(value: float, decimals: int, expected: str) -> None:
    assert signed(value, decimals) == expected
