"""Numbers and counts in sentences."""

from __future__ import annotations

import pytest

from profkit.wording import signed


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
