"""Welch, Holm and the rate of false alarms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from profkit.comparison.statistics import Thresholds, differences, holm

SAMPLES = np.random.default_rng(1).normal(3000, 40, (5, 12)), np.random.default_rng(2).normal(3030, 90, (5, 20))


def test_p_is_welchs() -> None:
    before, after = SAMPLES
    expected = stats.ttest_ind(after, before, axis=1, equal_var=False)
    np.testing.assert_allclose(differences(before, after, Thresholds()).p, expected.pvalue, rtol=1e-9)


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_the_interval_is_welchs(confidence: float) -> None:
    before, after = SAMPLES
    found = differences(before, after, Thresholds(confidence=confidence))
    expected = stats.ttest_ind(after, before, axis=1, equal_var=False).confidence_interval(confidence)
    np.testing.assert_allclose(found.low, expected.low, rtol=1e-9)
    np.testing.assert_allclose(found.high, expected.high, rtol=1e-9)


def test_constant_samples_that_differ_are_certain() -> None:
    found = differences(np.full((1, 4), 100.0), np.full((1, 4), 900.0), Thresholds())
    assert (found.delta[0], found.low[0], found.high[0], found.p[0]) == (800, 800, 800, 0)
    assert found.notable[0]


def test_constant_samples_that_agree_are_no_difference() -> None:
    found = differences(np.full((1, 4), 100.0), np.full((1, 9), 100.0), Thresholds())
    assert (found.delta[0], found.p[0], bool(found.significant[0])) == (0, 1, False)


@pytest.mark.parametrize("sizes", [(1, 5), (5, 1), (1, 1)])
def test_one_sample_has_a_difference_and_no_interval(sizes: tuple[int, int]) -> None:
    found = differences(np.full((2, sizes[0]), 100.0), np.full((2, sizes[1]), 300.0), Thresholds())
    assert found.delta.tolist() == [200, 200]
    assert np.isnan([found.low, found.high, found.p]).all()
    assert not found.notable.any()


@pytest.mark.parametrize(
    ("p", "expected"),
    [
        ([0.01, 0.04, 0.03, 0.005], [True, False, False, True]),
        ([0.05], [True]),
        ([0.06], [False]),
        ([0.03, 0.03], [False, False]),
        ([0.0, 1.0], [True, False]),
        ([], []),
    ],
)
def test_holm_by_hand(p: list[float], expected: list[bool]) -> None:
    assert holm(np.array(p), 0.05).tolist() == expected


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.sampled_from([0.01, 0.05, 0.3]))
def test_holm_is_the_step_down_of_adjusted_p(p: list[float], alpha: float) -> None:
    # WHEN each p is raised to the largest (rank from behind × p) at or before it
    adjusted: dict[int, float] = {}
    running = 0.0
    for rank, index in enumerate(sorted(range(len(p)), key=lambda i: (p[i], i))):
        running = max(running, p[index] / (alpha / (len(p) - rank)))
        adjusted[index] = running
    # THEN what stays at or below 1 (of alpha) is rejected
    assert holm(np.array(p), alpha).tolist() == [adjusted[i] <= 1 for i in range(len(p))]


def test_a_significant_difference_below_the_minimum_effect_is_not_notable() -> None:
    noise = np.random.default_rng(3).normal(0, 1, (2, 40))
    found = differences(1000 + noise[:1], 1050 + noise[1:], Thresholds(min_us=0.1, min_share=0.03))
    assert (bool(found.significant[0]), bool(found.notable[0])) == (True, False)


def test_a_long_kernels_minimum_effect_is_a_share_of_it() -> None:
    noise = np.random.default_rng(4).normal(0, 1, (2, 40))
    for delta, notable in ((2_000, False), (4_000, True)):
        found = differences(100_000 + noise[:1], 100_000 + delta + noise[1:], Thresholds(min_us=0.1, min_share=0.03))
        assert bool(found.notable[0]) is notable


def test_false_alarms_stay_at_alpha_when_nothing_differs() -> None:
    # GIVEN 600 comparisons of 30 kernels, both sides from one distribution, with no minimum effect to hide behind
    random = np.random.default_rng(5)
    thresholds = Thresholds(alpha=0.05, min_us=0, min_share=0)
    alarms = sum(
        differences(random.normal(2000, 50, (30, 20)), random.normal(2000, 50, (30, 20)), thresholds).notable.any()
        for _ in range(600)
    )
    # THEN at least one false alarm in about 5 % of them: 30 of 600, and 53 is four standard deviations away
    assert 8 <= alarms <= 53


def test_a_difference_of_two_standard_deviations_is_found() -> None:
    random = np.random.default_rng(6)
    found = sum(
        bool(differences(random.normal(2000, 100, (1, 20)), random.normal(2200, 100, (1, 20)), Thresholds()).notable[0])
        for _ in range(100)
    )
    assert found >= 95
