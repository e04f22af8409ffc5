"""Variances moderated by all of them: exact at the ends, and right where the truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from profkit.sweep.moderation import _inverse_trigamma, moderated


def test_those_that_scatter_no_more_than_one_would_become_their_mean() -> None:
    drawn, freedom = moderated(np.array([1.0, 1.1, 0.9, 1.2]), 2)
    assert drawn == pytest.approx([1.05] * 4)
    assert freedom == 8


def test_a_single_one_stays() -> None:
    drawn, freedom = moderated(np.array([0.3]), 2)
    assert drawn.tolist() == [0.3]
    assert freedom == 2


def test_where_more_than_half_are_zero_all_become_the_mean() -> None:
    drawn, freedom = moderated(np.array([0.0, 0.0, 0.0, 4.0]), 1)
    assert drawn.tolist() == [1.0] * 4
    assert freedom == 4


def test_a_zero_among_many_does_not_outweigh_them() -> None:
    variances = np.array([0.5, 2.0, 1.0, 0.7, 1.5, 1.2, 0.8, 0.9, 3.0, 0.4])
    drawn, _ = moderated(np.append(variances, 0.0), 2)
    assert 0.05 < drawn[-1] < 1.0


def test_a_known_prior_is_found() -> None:
    """True variances of scale 2 with 6 degrees of freedom, of which each is estimated with 2."""
    generator = np.random.default_rng(40)
    truth = 2 * 6 / generator.chisquare(6, 20_000)
    estimates = truth * generator.chisquare(2, len(truth)) / 2
    drawn, freedom = moderated(estimates, 2)
    assert freedom == pytest.approx(8, rel=0.1)
    assert drawn == pytest.approx((6 * 2 + 2 * estimates) / 8, rel=0.1)
    assert np.mean((np.log(drawn) - np.log(truth)) ** 2) < np.mean((np.log(estimates) - np.log(truth)) ** 2) / 3


@given(st.lists(st.floats(1e-9, 1e3), min_size=2, max_size=20), st.integers(1, 9), st.floats(1e-6, 1e6))
def test_it_keeps_the_order_draws_together_and_knows_no_unit(values: list[float], freedom: int, unit: float) -> None:
    variances = np.array(sorted(values))
    drawn, known = moderated(variances, freedom)
    assert (np.diff(drawn) >= 0).all()
    assert drawn[-1] - drawn[0] <= (variances[-1] - variances[0]) * (1 + 1e-9)
    assert freedom <= known <= freedom * len(values)
    again, same = moderated(variances * unit, freedom)
    assert same == pytest.approx(known, rel=1e-4)
    assert again == pytest.approx(drawn * unit, rel=1e-4)


@given(st.floats(-6, 6))
def test_the_inverse_of_the_trigamma_function(exponent: float) -> None:
    value = 10**exponent
    assert float(special.polygamma(1, _inverse_trigamma(value))) == pytest.approx(value, rel=1e-6)
