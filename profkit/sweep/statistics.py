"""Which configurations differ beyond noise: Student's t over interleaved orders, each of which captures anew.

Within an order all configurations take turns, so that what they share (the device's pace) is in every one of its
medians; and every order captures each configuration again, so that what makes two measurements of one thing differ
within a process (the capture, the place in the order, the pace) differs between orders. So a configuration is compared
with an entry order by order, by the logarithms of the ratios of their medians: Student's t over orders, Holm's
correction over all configurations that are compared with the same entry, and a minimum effect.

It speaks of one process: the times of one kernel in processes of their own differ more (docs/sweep.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from profkit.comparison import statistics
from profkit.comparison.statistics import OVER_RUNS, Floats, Thresholds

Verdict = Literal["better", "worse", "equal"]


@dataclass(frozen=True)
class NoiseRule:
    """When a difference counts.

    Args:
        copies: of the reference, which show what noise is: their differences are reported beside the times.
        thresholds: alpha, the chance of at least one false difference among all configurations of a region that are
            compared with one entry in one state; the confidence of the intervals shown; and the smallest difference
            that anybody would act on, as for repeated captures.
    """

    copies: int = 8
    thresholds: Thresholds = OVER_RUNS


RULE = NoiseRule()
#: The logarithm of the largest ratio that is told.
_MOST = 600.0


@dataclass(frozen=True)
class Timed:
    """The times of one configuration in one state.

    Args:
        us: the geometric mean of `orders_us`, so that the ratio of two is the mean ratio of their orders.
        orders_us: the median of each order's samples; over copies their geometric mean.
        copies: how often it was measured: 1, or `NoiseRule.copies`.
    """

    us: float
    orders_us: Sequence[float]
    copies: int = 1


@dataclass(frozen=True)
class Noise:
    """What the copies of the reference show.

    Args:
        deviation: the standard deviation of the logarithms of their times.
        copies: how many there are.
        medians_us: the time of each.
        orders_us: the median of each order's samples, of each copy.
    """

    deviation: float
    copies: int
    medians_us: Sequence[float]
    orders_us: Sequence[Sequence[float]] = ()

    def percent(self, rule: NoiseRule = RULE) -> float:
        """By how many per cent one more copy may differ from the reference, at the rule's confidence."""
        from scipy import special

        t = special.stdtrit(self.copies - 1, 0.5 + rule.thresholds.confidence / 2)
        return float(np.expm1(t * self.deviation * np.sqrt(1 + 1 / self.copies)) * 100)

    @property
    def largest_percent(self) -> float:
        """The largest difference between two copies."""
        return (max(self.medians_us) / min(self.medians_us) - 1) * 100


@dataclass(frozen=True)
class Difference:
    """A configuration against an entry.

    Args:
        ratio: its time over that of the entry.
        low, high: the confidence interval of `ratio`, for this one comparison; None with a single order, as `p`.
        p: two-sided, for this one comparison.
        verdict: ``better`` (faster) or ``worse`` beyond noise, by the rule; else ``equal``.
    """

    ratio: float
    low: float | None
    high: float | None
    p: float | None
    verdict: Verdict


def timed(samples_us: Sequence[Sequence[Sequence[float]]]) -> Timed:
    """From the samples of a configuration's copies, ``[copies][orders][replays]`` in µs; as many in each order."""
    logs = np.log(np.median(np.array(samples_us), axis=2)).mean(axis=0)
    return Timed(float(np.exp(logs.mean())), np.exp(logs).tolist(), len(samples_us))


def noise(samples_us: Sequence[Sequence[Sequence[float]]]) -> Noise:
    """From the samples of the reference's copies, ``[copies][orders][replays]`` in µs; two copies at least."""
    copies = [timed([copy]) for copy in samples_us]
    times = [copy.us for copy in copies]
    return Noise(float(np.log(times).std(ddof=1)), len(times), times, [copy.orders_us for copy in copies])


def differences(times: Sequence[Timed], anchor: int, rule: NoiseRule = RULE) -> list[Difference | None]:
    """Each configuration against one of them; None for that one itself.

    Args:
        times: of every configuration that is compared.
        anchor: the index of the one that the others are compared with.
    """
    others = [index for index in range(len(times)) if index != anchor]
    logs: Floats = np.log(np.array([entry.orders_us for entry in times]))
    apart = logs[others] - logs[anchor]
    # Against nothing: then Welch's t is Student's t of the paired ratios, with one degree of freedom less than orders.
    found = statistics.differences(np.zeros_like(apart), apart, rule.thresholds)
    us = np.array([entry.us for entry in times])
    single = apart.shape[1] < 2
    effect_us = rule.thresholds.effect_ns(np.maximum(us, us[anchor]) * 1e3) / 1e3
    judged: list[Difference | None] = [None] * len(times)
    for place, index in enumerate(others):
        notable = bool(found.significant[place]) and abs(us[index] - us[anchor]) >= effect_us[index]
        judged[index] = Difference(
            ratio=float(np.exp(found.delta[place])),
            low=None if single else float(np.exp(found.low[place])),
            high=None if single else float(np.exp(min(found.high[place], _MOST))),
            p=None if single else float(found.p[place]),
            verdict=("better" if found.delta[place] < 0 else "worse") if notable else "equal",
        )
    return judged
