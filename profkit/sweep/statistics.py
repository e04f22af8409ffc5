"""Which configurations differ beyond noise, where one of them, measured many times over, shows what noise is.

One configuration, the reference, is captured `NoiseRule.copies` times, and each copy takes its turn as if it were a
configuration of its own. The copies' times scatter by all that makes two measurements of the same thing differ within a
process: their graphs, their place in the order, the clock. Another configuration differs from it when it lies outside
what one more copy would show (a prediction interval of Student's t), with Holm's correction over all configurations
that are compared with the same entry. All of this is done with logarithms, since noise grows with time.

It speaks of one process: the times of one kernel in processes of their own differ more (docs/sweep.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import special

from profkit.comparison.statistics import holm
from profkit.comparison.thresholds import OVER_RUNS, Floats, Thresholds

Verdict = Literal["better", "worse", "equal"]


@dataclass(frozen=True)
class NoiseRule:
    """When a difference counts, with the reason for each number.

    Args:
        copies: of the reference. Eight give seven degrees of freedom, where Student's t is within a fifth of what many
            copies would give, at the price of seven more entries in each order.
        thresholds: alpha, the chance of at least one false difference among all configurations of a region that are
            compared with one entry in one state; the confidence of the intervals shown; and the smallest difference
            that anybody would act on, as for repeated captures.
    """

    copies: int = 8
    thresholds: Thresholds = OVER_RUNS


RULE = NoiseRule()


@dataclass(frozen=True)
class Timed:
    """The times of one configuration in one state.

    Args:
        us: the median of all samples; over the copies of the reference the geometric mean of their medians.
        orders_us: the median of each order's samples; over copies likewise.
        copies: how often it was measured: 1, or `NoiseRule.copies`.
    """

    us: float
    orders_us: Sequence[float]
    copies: int = 1


@dataclass(frozen=True)
class Noise:
    """What the copies of the reference show.

    Args:
        deviation: the standard deviation of the logarithms of their medians.
        copies: how many there are.
        medians_us: the median of each.
    """

    deviation: float
    copies: int
    medians_us: Sequence[float]

    def percent(self, rule: NoiseRule = RULE) -> float:
        """By how many per cent one more copy may differ from the reference, at the rule's confidence."""
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
        low, high: the confidence interval of `ratio`, for this one comparison.
        p: two-sided, for this one comparison.
        verdict: ``better`` (faster) or ``worse`` beyond noise, by the rule; else ``equal``.
    """

    ratio: float
    low: float
    high: float
    p: float
    verdict: Verdict


def timed(samples_us: Sequence[Sequence[Sequence[float]]]) -> Timed:
    """From the samples of a configuration's copies, ``[copies][orders][replays]`` in µs."""
    medians = [float(np.median(np.concatenate([np.asarray(order) for order in copy]))) for copy in samples_us]
    orders = np.array([[np.median(order) for order in copy] for copy in samples_us])
    return Timed(_mean(np.array(medians)), [_mean(orders[:, o]) for o in range(orders.shape[1])], len(samples_us))


def noise(samples_us: Sequence[Sequence[Sequence[float]]]) -> Noise:
    """From the samples of the reference's copies, ``[copies][orders][replays]`` in µs; two copies at least."""
    medians = [timed([copy]).us for copy in samples_us]
    return Noise(float(np.log(medians).std(ddof=1)), len(medians), medians)


def differences(
    times: Sequence[Timed], anchor: int, reference: int, measured: Noise, rule: NoiseRule = RULE
) -> list[Difference | None]:
    """Each configuration against one of them; None for that one itself.

    Args:
        times: of every configuration that is compared.
        anchor: the index of the one that the others are compared with.
        reference: the index of the one that was measured as copies.
    """
    us = np.array([entry.us for entry in times])
    delta = np.log(us) - np.log(us[anchor])
    squares = _squared_errors(times, reference, measured)
    error = np.sqrt(squares + squares[anchor])
    others = np.arange(len(times)) != anchor
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(error > 0, np.abs(delta) / error, np.where(delta == 0, 0.0, np.inf))
    p = np.asarray(2 * special.stdtr(measured.copies - 1, -t), dtype=np.float64)
    significant = np.zeros(len(times), dtype=np.bool_)
    significant[others] = holm(p[others], rule.thresholds.alpha)
    effect_us = rule.thresholds.effect_ns(np.maximum(us, us[anchor]) * 1e3) / 1e3
    notable = significant & (np.abs(us - us[anchor]) >= effect_us)
    half = special.stdtrit(measured.copies - 1, 0.5 + rule.thresholds.confidence / 2) * error
    return [
        Difference(
            ratio=float(np.exp(delta[i])),
            low=float(np.exp(delta[i] - half[i])),
            high=float(np.exp(delta[i] + half[i])),
            p=float(p[i]),
            verdict=("better" if delta[i] < 0 else "worse") if notable[i] else "equal",
        )
        if others[i]
        else None
        for i in range(len(times))
    ]


def _squared_errors(times: Sequence[Timed], reference: int, measured: Noise) -> Floats:
    """The variance of the logarithm of each configuration's time.

    A configuration that scatters more from order to order than the copies from one another is judged by its own
    scatter: not every configuration is as steady as the reference.
    """
    orders = np.log(np.array([entry.orders_us for entry in times]))
    count = orders.shape[1]
    own = np.zeros(len(times))
    if count > 1:
        own = (orders - orders[reference]).var(axis=1, ddof=1) / count
    copies = np.array([entry.copies for entry in times])
    return np.asarray(np.maximum(measured.deviation**2, own) / copies, dtype=np.float64)


def _mean(us: Floats) -> float:
    """The geometric mean."""
    return float(np.exp(np.log(us).mean()))
