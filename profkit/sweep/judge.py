"""Which configurations differ beyond noise: Student's t over interleaved orders, each of which captures anew.

Within an order all configurations take turns, so that what they share (the device's pace) is in every one of its
medians; and every order captures each configuration again, so that what makes two measurements of one thing differ
within a process (the capture, the place in the order, the pace) differs between orders. So a configuration is compared
with an entry order by order, by the logarithms of the ratios of their medians: Student's t over orders, Holm's
correction over all configurations that are compared with the same entry, and a minimum effect. Equal is only what lies
within that effect with its whole interval.

It speaks of one process: the times of one kernel in processes of their own differ more (docs/sweep.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from profkit.comparison import statistics
from profkit.comparison.statistics import OVER_RUNS, Floats, Thresholds
from profkit.sweep.records import Against, Noise, Times, Verdict

#: Of the reference in each order; they show what noise is.
COPIES = 8
#: The samples of one configuration in one state in µs, ``[copies][orders][replays]``; as many in each order.
Samples = Sequence[Sequence[Sequence[float]]]
#: The logarithm of the largest ratio that is told.
_MOST = 600.0


def rule(orders: int) -> str:
    """The rule of verdicts in a sentence."""
    smallest = f"{OVER_RUNS.min_share:.0%} and {OVER_RUNS.min_us:g} us"
    unseen = "; a single order tells nothing" if orders == 1 else ""
    return (
        "better or worse is what differs beyond the scatter of its orders' ratios to the entry (Student's t over "
        f"orders, Holm's correction over the region, alpha {OVER_RUNS.alpha:g}) and by at least {smallest}; equal is "
        f"what lies within that with its whole interval ({OVER_RUNS.confidence:.0%}), and all else is unclear; all "
        f"within one process{unseen}; an interval is for one comparison, without regard to how the best was picked"
    )


def order_medians(samples: Samples) -> Floats:
    """The median of each order's samples; over copies their geometric mean."""
    medians: Floats = np.median(np.array(samples), axis=2)
    return np.asarray(np.exp(np.log(medians).mean(axis=0)))


def typical(orders_us: Floats) -> Floats:
    """The geometric mean over the last axis, orders, so that the ratio of two is the mean ratio of their orders."""
    return np.asarray(np.exp(np.log(orders_us).mean(axis=-1)))


def judge(samples: Mapping[int, Samples], entries: Mapping[str, int]) -> dict[int, Times]:
    """The times of every configuration that was timed in a state, each compared with the entries.

    Args:
        samples: by configuration.
        entries: name to the configuration that the others are compared with.
    """
    orders_us = np.array([order_medians(one) for one in samples.values()])
    places = {index: place for place, index in enumerate(samples)}
    against = {name: differences(orders_us, places[index]) for name, index in entries.items()}
    return {
        index: _times(orders_us[place], samples[index], {name: found[place] for name, found in against.items()})
        for index, place in places.items()
    }


def _times(orders_us: Floats, samples: Samples, against: dict[str, Against | None]) -> Times:
    everything = np.array(samples).ravel()
    p25, p75 = np.percentile(everything, [25, 75])
    return Times(
        us=rounded(typical(orders_us)),
        p25_us=rounded(p25),
        p75_us=rounded(p75),
        min_us=rounded(everything.min()),
        orders_us=[rounded(us) for us in orders_us],
        samples=len(everything),
        copies=len(samples),
        against=against,
    )


def noise(samples: Samples) -> Noise:
    """What the reference's copies show; two copies at least."""
    from scipy import special

    copies_us: Floats = np.median(np.array(samples), axis=2)
    us = typical(copies_us)
    t = special.stdtrit(len(us) - 1, 0.5 + OVER_RUNS.confidence / 2)
    return Noise(
        percent=round(float(np.expm1(t * np.log(us).std(ddof=1) * np.sqrt(1 + 1 / len(us))) * 100), 3),
        largest_percent=round(float(us.max() / us.min() - 1) * 100, 3),
        copies_orders_us=[[rounded(one) for one in orders] for orders in copies_us],
    )


def differences(orders_us: Floats, entry: int, thresholds: Thresholds = OVER_RUNS) -> list[Against | None]:
    """Each configuration against one of them; None for that one itself.

    Args:
        orders_us: the medians of orders, ``[configurations][orders]``.
        entry: the index of the one that the others are compared with.
    """
    others = [index for index in range(len(orders_us)) if index != entry]
    logs = np.log(orders_us)
    apart = logs[others] - logs[entry]
    # Against nothing: then Welch's t is Student's t of the paired ratios, with one degree of freedom less than orders.
    found = statistics.differences(np.zeros_like(apart), apart, thresholds)
    entry_us = float(typical(orders_us[entry]))
    judged: list[Against | None] = [None] * len(orders_us)
    for place, index in enumerate(others):
        ratio, low, high = (
            float(np.exp(np.minimum(logs[place], _MOST))) for logs in (found.delta, found.low, found.high)
        )
        single = apart.shape[1] < 2
        judged[index] = Against(
            ratio=_digits(ratio, 6),
            low=None if single else _digits(low, 6),
            high=None if single else _digits(high, 6),
            p=None if single else _digits(found.p[place], 3),
            verdict=_verdict(bool(found.significant[place]), ratio, low, high, entry_us, thresholds),
        )
    return judged


def _verdict(
    significant: bool, ratio: float, low: float, high: float, entry_us: float, thresholds: Thresholds
) -> Verdict:
    """Args: the interval is NaN with a single order, which tells nothing."""

    def counts(other: float) -> bool:
        larger_ns = np.array(entry_us * max(1.0, other) * 1e3)
        return abs(other - 1) * entry_us >= float(thresholds.effect_ns(larger_ns)) / 1e3

    if significant and counts(ratio):
        return "better" if ratio < 1 else "worse"
    return "equal" if low <= high and not counts(low) and not counts(high) else "unclear"


def rounded(us: float | Floats) -> float:
    """To the tenth of a nanosecond: a mean over some runs is finer than the clock's tick."""
    return round(float(us), 4)


def _digits(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")
