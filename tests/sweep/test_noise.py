"""Which differences exceed noise: exact on inline samples, right as often as stated on simulated ones."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from profkit.comparison.statistics import Thresholds
from profkit.sweep.statistics import RULE, Difference, Noise, NoiseRule, Timed, differences, noise, timed

#: Without the minimum effect, which would hide how often noise alone is told apart.
BARE = NoiseRule(thresholds=Thresholds(min_us=0.0, min_share=0.0))
QUIET = Noise(0.002, 8, [100.0] * 8)


def steady(us: float, copies: int = 1) -> Timed:
    """A configuration that took the same in each of three orders."""
    return Timed(us, [us] * 3, copies)


def compared(times: list[Timed], measured: Noise = QUIET, rule: NoiseRule = RULE) -> list[Difference | None]:
    """Each against the first, which is the reference too."""
    return differences(times, 0, 0, measured, rule)


def verdicts(times: list[Timed], measured: Noise = QUIET, rule: NoiseRule = RULE) -> list[str | None]:
    return [None if found is None else found.verdict for found in compared(times, measured, rule)]


def test_the_time_is_the_median_of_all_samples_and_of_each_order() -> None:
    found = timed([[[1.0, 2.0, 3.0], [2.0, 4.0, 6.0]]])
    assert (found.us, found.orders_us, found.copies) == (2.5, [2.0, 4.0], 1)


def test_the_error_of_a_median_comes_from_the_scatter_within_orders() -> None:
    found = timed([[[1.0, 2.0, 3.0], [20.0, 40.0, 60.0]]])
    squares = 2 * (math.log(2) ** 2 + math.log(1.5) ** 2)
    assert found.sampling_variance == pytest.approx(math.pi / 2 * squares / 4 / 6)
    assert found.sampling_freedom == 4
    single = timed([[[1.0], [2.0]]])
    assert (single.sampling_variance, single.sampling_freedom) == (0.0, 0)


def test_over_copies_it_is_the_geometric_mean_of_their_medians() -> None:
    found = timed([[[2.0], [2.0]], [[8.0], [18.0]]])
    assert found.us == pytest.approx(math.sqrt(2 * 13))
    assert found.orders_us == pytest.approx([4.0, 6.0])
    assert found.copies == 2


def test_noise_is_what_one_more_copy_may_differ_by() -> None:
    measured = noise([[[1.0]], [[math.exp(0.01)]]])
    assert measured.deviation == pytest.approx(0.01 / math.sqrt(2))
    # Student's t with one degree of freedom at 97.5 %: 12.7062.
    assert measured.percent() == pytest.approx(
        100 * math.expm1(12.7062 * 0.01 / math.sqrt(2) * math.sqrt(1.5)), rel=1e-5
    )
    assert measured.largest_percent == pytest.approx(100 * math.expm1(0.01))


def test_beyond_noise_is_better_or_worse() -> None:
    assert verdicts([steady(100, 8), steady(90), steady(100), steady(110)]) == [None, "better", "equal", "worse"]


def test_the_ratio_stands_in_its_interval_for_one_comparison() -> None:
    found = compared([steady(100, 8), steady(90)])[1]
    assert found is not None
    # Seven degrees of freedom at 97.5 %: 2.36462.
    half = 2.36462 * 0.002 * math.sqrt(1 + 1 / 8)
    assert (found.ratio, found.low, found.high) == pytest.approx(
        (0.9, 0.9 * math.exp(-half), 0.9 * math.exp(half)), rel=1e-5
    )


def test_between_two_single_measurements_noise_counts_twice() -> None:
    found = differences([steady(100, 8), steady(90), steady(95)], 1, 0, QUIET)[2]
    assert found is not None
    assert math.log(found.high / found.ratio) == pytest.approx(2.36462 * 0.002 * math.sqrt(2), rel=1e-5)


@pytest.mark.parametrize(
    ("us", "other_us", "verdict"),
    [(1000.0, 991.0, "equal"), (1000.0, 989.0, "better"), (2.0, 1.96, "equal"), (2.0, 1.94, "better")],
)
def test_what_nobody_would_act_on_is_equal_however_certain(us: float, other_us: float, verdict: str) -> None:
    certain = Noise(1e-6, 8, [us] * 8)
    assert verdicts([steady(us, 8), steady(other_us)], certain)[1] == verdict


def test_copies_without_any_scatter_are_no_division_by_zero() -> None:
    still = Noise(0.0, 8, [100.0] * 8)
    assert verdicts([steady(100, 8), steady(100), steady(90)], still) == [None, "equal", "better"]


def test_a_configuration_that_scatters_from_order_to_order_is_judged_by_its_own_scatter() -> None:
    unsteady = Timed(90.0, [60.0, 90.0, 140.0])
    assert verdicts([steady(100, 8), unsteady]) == [None, "equal"]
    assert verdicts([steady(100, 8), steady(90)]) == [None, "better"]


def test_its_own_scatter_has_the_degrees_of_freedom_of_its_own_orders() -> None:
    # Logarithms of the orders are -0.03, 0 and 0.03 off: variance 0.0009, of their mean a third of it.
    unsteady = Timed(90.0, [90 * math.exp(0.03 * step) for step in (-1, 0, 1)])
    found = compared([steady(100, 8), unsteady])[1]
    assert found is not None
    own, copies = 0.0009 / 3, 0.002**2 / 8
    freedom = (own + copies) ** 2 / (own**2 / 2 + copies**2 / 7)
    assert 2 < freedom < 2.01
    assert math.log(found.high / found.ratio) == pytest.approx(
        float(special.stdtrit(freedom, 0.975)) * math.sqrt(own + copies)
    )


def test_one_that_is_steady_by_luck_is_judged_by_the_scatter_of_all() -> None:
    unsteady = [Timed(100.0, [100 * math.exp(size * step) for step in (-1, 0, 1)]) for size in (0.03, 0.05, 0.04, 0.02)]
    times = [steady(100, 8), Timed(96.0, [95.4, 96.0, 96.6]), *unsteady]
    assert verdicts(times[:2]) == [None, "better"]
    assert verdicts(times)[1] == "equal"


def test_with_a_single_order_the_samples_tell_the_error() -> None:
    sure, unsure = Timed(90.0, [90.0], 1, 0.001**2, 8), Timed(90.0, [90.0], 1, 0.06**2, 8)
    assert verdicts([Timed(100.0, [100.0], 8), sure, unsure]) == [None, "better", "equal"]


def test_samples_do_not_make_an_error_better_known_than_its_orders_do() -> None:
    """Within orders it may be steadier than from one to the next, of which a few orders may show nothing by luck."""
    lucky = Timed(98.2, [98.2] * 3, 1, 0.006**2, 240)
    found = compared([steady(100, 8), lucky])[1]
    assert found is not None
    own, copies = 0.006**2, 0.002**2 / 8
    freedom = (own + copies) ** 2 / (own**2 / 2 + copies**2 / 7)
    assert math.log(found.high / found.ratio) == pytest.approx(
        float(special.stdtrit(freedom, 0.975)) * math.sqrt(own + copies)
    )


def test_drift_that_all_share_is_no_scatter() -> None:
    reference = Timed(100.0, [80.0, 100.0, 120.0], 8)
    assert verdicts([reference, Timed(90.0, [72.0, 90.0, 108.0])]) == [None, "better"]


def test_many_comparisons_ask_for_more_certainty_than_one() -> None:
    # Alone 98 against 100 has p = 0.0199 here.
    measured = Noise(0.0063, 8, [100.0] * 8)
    alone = compared([steady(100, 8), steady(98)], measured)[1]
    assert alone is not None
    assert 0.01 < alone.p < 0.05
    assert alone.verdict == "better"
    crowd = [steady(100, 8), steady(98), *[steady(100.2)] * 20]
    assert set(verdicts(crowd, measured)) == {None, "equal"}


def simulated(generator: np.random.Generator, configurations: int, effect: float = 0.0) -> bool:
    """Whether anything is told apart among equal configurations, the first of which may differ by `effect`.

    Each capture of a graph differs from the next by 0.4 %, each order of it by 0.3 %, each sample by 1 %; and all drift
    together from order to order.
    """
    entries = RULE.copies + configurations
    drift = generator.normal(0, 0.02, 3)
    logs = (
        generator.normal(0, 0.004, (entries, 1, 1))
        + generator.normal(0, 0.003, (entries, 3, 1))
        + generator.normal(0, 0.01, (entries, 3, 9))
        + drift[None, :, None]
    )
    logs[RULE.copies] += effect
    samples = np.exp(logs) * 20.0
    copies = list(samples[: RULE.copies])
    times = [timed(copies), *(timed([one]) for one in samples[RULE.copies :])]
    found = verdicts(times, noise(copies), BARE)
    return found[1] != "equal" if effect else set(found) != {None, "equal"}


def test_equal_configurations_are_told_apart_no_oftener_than_stated() -> None:
    generator = np.random.default_rng(20)
    regions = 1000
    wrong = sum(simulated(generator, configurations=30) for _ in range(regions))
    # alpha 0.05 of 1000 with three standard deviations of that count.
    assert wrong <= 50 + 3 * math.sqrt(1000 * 0.05 * 0.95)
    # And the rule is none that never speaks: with this seed it errs in some of them.
    assert wrong > 0


def test_a_difference_well_beyond_noise_is_found() -> None:
    generator = np.random.default_rng(21)
    assert sum(simulated(generator, configurations=30, effect=-0.10) for _ in range(100)) >= 95


def told_apart(
    generator: np.random.Generator,
    scatter: list[float],
    *,
    orders: int = 3,
    from_sample_to_sample: float = 0.0006,
    from_order_to_order: float = 0.003,
    faster_by: float = 0.0,
) -> list[bool]:
    """Which of equal configurations are told apart, that scatter so many times as much as the reference's copies do.

    The first is faster by so many standard errors of its time.
    """
    size = np.array([1.0] * RULE.copies + scatter)[:, None, None]
    logs = size * (
        generator.normal(0, from_order_to_order, (len(size), orders, 1))
        + generator.normal(0, from_sample_to_sample, (len(size), orders, 9))
    )
    logs[RULE.copies] -= faster_by * scatter[0] * from_order_to_order / math.sqrt(orders)
    samples = (20 * np.exp(logs)).tolist()
    copies = samples[: RULE.copies]
    times = [timed(copies), *(timed([one]) for one in samples[RULE.copies :])]
    return [verdict != "equal" for verdict in verdicts(times, noise(copies), BARE)[1:]]


@pytest.mark.parametrize(
    ("scatter", "most"),
    [
        ([1.0] * 30, 0.08),
        ([3.0] * 30, 0.08),
        ([10.0] * 30, 0.08),
        ([10.0] * 5 + [1.0] * 25, 0.12),
        ([3.0] * 3, 0.16),
    ],
    ids=["30 alike", "30 three times", "30 ten times", "5 of 30 ten times", "3 three times"],
)
@pytest.mark.parametrize("from_sample_to_sample", [0.0006, 0.003], ids=["steady orders", "samples scatter alike"])
def test_configurations_noisier_than_the_reference_are_seldom_told_apart(
    scatter: list[float], most: float, from_sample_to_sample: float
) -> None:
    generator = np.random.default_rng(30)
    wrong = [any(told_apart(generator, scatter, from_sample_to_sample=from_sample_to_sample)) for _ in range(150)]
    assert np.mean(wrong) <= most


def test_with_a_single_order_samples_that_scatter_are_seldom_told_apart() -> None:
    generator = np.random.default_rng(31)
    wrong = [
        any(told_apart(generator, [20.0] * 30, orders=1, from_sample_to_sample=0.01, from_order_to_order=0.0))
        for _ in range(150)
    ]
    assert np.mean(wrong) <= 0.08


def test_one_of_many_that_is_faster_by_twenty_standard_errors_is_mostly_found() -> None:
    generator = np.random.default_rng(32)
    assert np.mean([told_apart(generator, [1.0] * 30, faster_by=20)[0] for _ in range(150)]) >= 0.6


times_us = st.floats(1.0, 1000.0)


@given(st.lists(times_us, min_size=2, max_size=6), st.floats(1e-4, 0.1), st.data())
def test_two_configurations_see_each_other_alike(us: list[float], deviation: float, data: st.DataObject) -> None:
    times = [Timed(value, [value] * 3, 8 if i == 0 else 1) for i, value in enumerate(us)]
    measured = Noise(deviation, 8, us[:1] * 8)
    a, b = (data.draw(st.integers(0, len(us) - 1)) for _ in range(2))
    there, back = differences(times, a, 0, measured)[b], differences(times, b, 0, measured)[a]
    if a == b:
        assert there is back is None
        return
    assert there is not None
    assert back is not None
    assert there.low <= there.ratio <= there.high
    assert (1 / back.ratio, 1 / back.high, 1 / back.low) == pytest.approx((there.ratio, there.low, there.high))
    assert there.p == pytest.approx(back.p)
