"""Which differences exceed noise: exact on inline samples, right as often as stated on simulated ones."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit.comparison.statistics import OVER_RUNS, Floats, Thresholds
from profkit.sweep.judge import differences, judge, noise
from profkit.sweep.plan import Options

#: Without the minimum effect, which would hide how often noise alone is told apart.
BARE = Thresholds(min_us=0.0, min_share=0.0)
ORDERS, REPLAYS = Options("x").orders, Options("x").replays


def verdicts(*orders_us: tuple[float, ...], thresholds: Thresholds = OVER_RUNS) -> list[str | None]:
    """Each against the first."""
    found = differences(np.array(orders_us), 0, thresholds)
    return [None if one is None else one.verdict for one in found]


def test_the_time_is_the_geometric_mean_of_the_orders_medians() -> None:
    found = judge({5: [[[1.0, 2.0, 3.0], [2.0, 8.0, 9.0]]]}, {"it": 5})[5]
    assert (found.us, found.orders_us, found.copies) == (pytest.approx(4.0), pytest.approx([2.0, 8.0]), 1)
    assert (found.min_us, found.samples, found.against) == (1.0, 6, {"it": None})


def test_over_copies_it_is_the_geometric_mean_of_theirs() -> None:
    found = judge({0: [[[2.0], [2.0]], [[8.0], [18.0]]]}, {"it": 0})[0]
    assert found.orders_us == pytest.approx([4.0, 6.0])
    assert (found.us, found.copies) == (pytest.approx(math.sqrt(24), abs=1e-4), 2)


def test_noise_is_what_one_more_copy_may_differ_by() -> None:
    # Student's t with one degree of freedom at 97.5 %: 12.7062.
    measured = noise([[[100.0]], [[100 * math.exp(0.01)]]])
    expected = 100 * math.expm1(12.7062 * 0.01 / math.sqrt(2) * math.sqrt(1.5))
    assert measured.percent == pytest.approx(expected, rel=1e-4)
    assert measured.largest_percent == pytest.approx(100 * math.expm1(0.01), abs=1e-3)
    assert measured.copies_orders_us == [[100.0], [pytest.approx(101.005)]]


def test_beyond_noise_is_better_or_worse() -> None:
    assert verdicts((100, 101), (90, 91), (100, 101), (110, 111)) == [None, "better", "equal", "worse"]


def test_the_ratio_stands_in_students_interval_over_orders() -> None:
    other = [90 * math.exp(0.01 * step) for step in (-1, 0, 1)]
    found = differences(np.array([(100, 100, 100), other]), 0)[1]
    assert found is not None
    # Two degrees of freedom at 97.5 %: 4.30265; the standard deviation of the logarithms is 0.01.
    half = 4.30265 * 0.01 / math.sqrt(3)
    assert (found.ratio, found.low, found.high) == pytest.approx(
        (0.9, 0.9 * math.exp(-half), 0.9 * math.exp(half)), rel=1e-5
    )


@pytest.mark.parametrize(
    ("us", "other_us", "verdict"),
    [(1000.0, 991.0, "equal"), (1000.0, 989.0, "better"), (2.0, 1.96, "equal"), (2.0, 1.94, "better")],
)
def test_what_nobody_would_act_on_is_equal_where_it_is_certain(us: float, other_us: float, verdict: str) -> None:
    assert verdicts((us, us), (other_us, other_us))[1] == verdict


@pytest.mark.parametrize(
    ("scatter", "verdict"),
    # The interval is 4.30265 / sqrt(3) = 2.48 times as wide to each side; 1 % is the least that counts.
    [(0.0039, "equal"), (0.0041, "unclear"), (0.3, "unclear")],
)
def test_equal_is_what_lies_within_the_least_effect_with_its_whole_interval(scatter: float, verdict: str) -> None:
    assert verdicts((1000,) * 3, tuple(1000 * math.exp(scatter * step) for step in (-1, 0, 1)))[1] == verdict


def test_a_difference_too_small_to_count_whose_interval_is_not_is_unclear() -> None:
    # 0.8 % and certain, from 0.55 to 1.05 %.
    assert verdicts((1000,) * 3, tuple(1008 * math.exp(0.001 * step) for step in (-1, 0, 1)))[1] == "unclear"


def test_a_pace_that_all_share_is_no_scatter() -> None:
    assert verdicts((80, 100, 120), (72, 90, 108)) == [None, "better"]


def test_one_that_scatters_from_order_to_order_is_judged_by_its_own_scatter() -> None:
    assert verdicts((100, 100, 100), (60, 90, 140)) == [None, "unclear"]


@pytest.mark.parametrize("other_us", [50.0, 100.0, 240.0])
def test_a_single_order_tells_nothing(other_us: float) -> None:
    found = differences(np.array([[100.0], [other_us]]), 0)[1]
    assert found is not None
    assert (found.ratio, found.low, found.high, found.p) == (pytest.approx(other_us / 100), None, None, None)
    assert found.verdict == "unclear"


def test_many_comparisons_ask_for_more_certainty_than_one() -> None:
    unsure = tuple(98 * math.exp(0.006 * step) for step in (-1, 0, 1))
    assert verdicts((100, 100, 100), unsure) == [None, "better"]
    assert set(verdicts((100, 100, 100), unsure, *[(99.9, 100, 100.1)] * 20)) == {None, "unclear", "equal"}


def simulated(generator: np.random.Generator, scatter: list[float], within: float) -> Floats:
    """Logarithms of samples, ``[configurations][orders][replays]``, the first a steady entry that others are held to.

    Each scatters so many times 0.3 % from order to order and `within` from sample to sample; all share a pace.
    """
    size = np.array([1.0, *scatter])[:, None, None]
    shape = len(size), ORDERS
    own = generator.normal(0, 0.003, (*shape, 1)) + generator.normal(0, within, (*shape, REPLAYS))
    return np.asarray(size * own + generator.normal(0, 0.02, (1, ORDERS, 1)))


def judged(logs: Floats, thresholds: Thresholds) -> list[str | None]:
    """The verdicts of all but the first beside the first, from logarithms of samples."""
    medians = np.median(20 * np.exp(logs), axis=2)
    return [found and found.verdict for found in differences(medians, 0, thresholds)[1:]]


def told_apart(verdict: str | None) -> bool:
    return verdict in ("better", "worse")


@pytest.mark.parametrize(
    "scatter",
    [[1.0] * 30, [10.0] * 30, [10.0] * 5 + [1.0] * 25, [3.0] * 3],
    ids=["30 alike", "30 ten times", "5 of 30 ten times", "3 three times"],
)
@pytest.mark.parametrize("within", [0.0006, 0.01], ids=["steady orders", "samples scatter"])
def test_equal_configurations_are_told_apart_no_oftener_than_stated(scatter: list[float], within: float) -> None:
    generator = np.random.default_rng(30)
    regions = 300
    wrong = sum(any(map(told_apart, judged(simulated(generator, scatter, within), BARE))) for _ in range(regions))
    # Alpha 0.05 with three standard deviations of that count.
    assert wrong <= regions * 0.05 + 3 * math.sqrt(regions * 0.05 * 0.95)


def test_one_of_many_that_is_faster_by_twelve_standard_errors_is_found() -> None:
    generator = np.random.default_rng(32)
    found = 0
    for _ in range(100):
        logs = simulated(generator, [1.0] * 30, 0.0006)
        logs[1] -= 12 * 0.003 / math.sqrt(ORDERS)
        found += judged(logs, BARE)[0] == "better"
    assert found >= 98


@pytest.mark.parametrize("scatter", [1.0, 3.0])
def test_what_differs_by_the_least_that_counts_is_rarely_called_equal(scatter: float) -> None:
    """The interval of 95 % would have to miss the difference on one side: 2.5 %."""
    generator = np.random.default_rng(34)
    equal = 0
    for _ in range(100):
        logs = simulated(generator, [scatter] * 20, 0.0006)
        logs[1:] += 0.0101
        equal += judged(logs, OVER_RUNS).count("equal")
    # The 20 of a region share the entry, so that their errors come together.
    assert equal <= 2000 * 0.025 * 2


def test_equal_configurations_that_are_steady_are_called_equal() -> None:
    generator = np.random.default_rng(35)
    verdicts = [one for _ in range(50) for one in judged(simulated(generator, [1.0] * 20, 0.0006), OVER_RUNS)]
    assert verdicts.count("equal") >= 0.95 * len(verdicts)


def busy(generator: np.random.Generator, scatter: float, orders: int) -> Floats:
    """31 configurations, the second 2.4 times as fast; one sample of twenty is held up twice to ten times as long."""
    shape = 31, orders, REPLAYS
    logs = generator.normal(0, scatter, shape) + generator.normal(0, scatter / 2, (31, orders, 1))
    logs += np.where(generator.random(shape) < 0.05, generator.uniform(0.7, 2.3, shape), 0.0)
    logs[1] -= math.log(2.4)
    return np.asarray(logs)


@pytest.mark.parametrize("scatter", [0.1, 0.2])
def test_2_4_times_as_fast_is_seen_on_a_busy_cpu(scatter: float) -> None:
    """Seen once: 44.4 against 18.8 us."""
    generator = np.random.default_rng(33)
    found = [judged(busy(generator, scatter, ORDERS), OVER_RUNS)[0] for _ in range(200)]
    assert found.count("better") >= 198


@pytest.mark.parametrize("scatter", [0.1, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("orders", [1, 2, 3, ORDERS])
def test_2_4_times_as_fast_is_never_equal(scatter: float, orders: int) -> None:
    generator = np.random.default_rng(36)
    assert "equal" not in [judged(busy(generator, scatter, orders), OVER_RUNS)[0] for _ in range(200)]


orders = st.lists(st.floats(1.0, 1000.0), min_size=3, max_size=3)


@given(st.lists(orders, min_size=2, max_size=6), st.data())
def test_two_configurations_see_each_other_alike(us: list[list[float]], data: st.DataObject) -> None:
    times = np.array(us)
    a, b = (data.draw(st.integers(0, len(us) - 1)) for _ in range(2))
    there, back = differences(times, a)[b], differences(times, b)[a]
    if a == b:
        assert there is back is None
        return
    assert there is not None
    assert back is not None
    assert there.low is not None
    assert there.high is not None
    assert back.low is not None
    assert back.high is not None
    assert there.low <= there.ratio <= there.high
    assert (1 / back.ratio, 1 / back.high, 1 / back.low) == pytest.approx(
        (there.ratio, there.low, there.high), rel=1e-5
    )
    assert there.p == pytest.approx(back.p, rel=1e-2)
    if there.verdict == "equal":
        assert abs(there.high - 1) < 0.01 + 0.05
        assert abs(there.low - 1) < 0.01 + 0.05
