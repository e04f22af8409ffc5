"""Which configurations differ beyond noise, where one of them, measured many times over, shows what noise is.

One configuration, the reference, is captured `NoiseRule.copies` times, and each copy takes its turn as if it were a
configuration of its own. The copies' times scatter by all that makes two measurements of the same thing differ within a
process: their graphs, their place in the order, the clock. But not every configuration is as steady as the reference,
so the error of a configuration's time is the largest that the copies, its orders and its samples show, each with its
own degrees of freedom (`_errors`). Two differ where Student's t of their difference, with the degrees of freedom of
both errors after Welch and Satterthwaite, says so with Holm's correction over all configurations that are compared with
the same entry. All of this is done with logarithms, since noise grows with time.

It speaks of one process: the times of one kernel in processes of their own differ more (docs/sweep.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import special

from profkit.comparison.statistics import OVER_RUNS, Floats, Thresholds, holm
from profkit.sweep.moderation import moderated

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
        sampling_variance: of the logarithm of `us`, as the scatter of samples within orders tells it.
        sampling_freedom: its degrees of freedom; 0 where an order has a single sample.
    """

    us: float
    orders_us: Sequence[float]
    copies: int = 1
    sampling_variance: float = 0.0
    sampling_freedom: int = 0


@dataclass(frozen=True)
class Noise:
    """What the copies of the reference show.

    Args:
        deviation: the standard deviation of the logarithms of their medians.
        copies: how many there are.
        medians_us: the median of each.
        orders_us: the median of each order's samples, of each copy; empty where that is not known.
    """

    deviation: float
    copies: int
    medians_us: Sequence[float]
    orders_us: Sequence[Sequence[float]] = ()

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


@dataclass(frozen=True)
class _Errors:
    """Of the logarithm of each configuration's time.

    Args:
        variance: shape [configurations].
        freedom: degrees of freedom of each variance.
        common: which estimate each is, where several configurations have one estimate; else -1.
    """

    variance: Floats
    freedom: Floats
    common: npt.NDArray[np.int64]


def timed(samples_us: Sequence[Sequence[Sequence[float]]]) -> Timed:
    """From the samples of a configuration's copies, ``[copies][orders][replays]`` in µs; as many in each order."""
    samples = np.array(samples_us)
    copies, count, replays = samples.shape
    orders = np.median(samples, axis=2)
    # The median of normal values has pi / 2 times the variance of their mean; other values scatter less or more.
    freedom = copies * count * (replays - 1)
    squares = float(((np.log(samples) - np.log(orders)[:, :, None]) ** 2).sum())
    return Timed(
        us=_mean(np.median(samples.reshape(copies, -1), axis=1)),
        orders_us=[_mean(orders[:, order]) for order in range(count)],
        copies=copies,
        sampling_variance=np.pi / 2 * squares / freedom / samples.size if freedom else 0.0,
        sampling_freedom=freedom,
    )


def noise(samples_us: Sequence[Sequence[Sequence[float]]]) -> Noise:
    """From the samples of the reference's copies, ``[copies][orders][replays]`` in µs; two copies at least."""
    copies = [timed([copy]) for copy in samples_us]
    medians = [copy.us for copy in copies]
    return Noise(float(np.log(medians).std(ddof=1)), len(medians), medians, [copy.orders_us for copy in copies])


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
    errors = _errors(times, reference, measured)
    error = np.sqrt(errors.variance + errors.variance[anchor])
    freedom = _freedom(errors, anchor)
    others = np.arange(len(times)) != anchor
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(error > 0, np.abs(delta) / error, np.where(delta == 0, 0.0, np.inf))
    p = np.asarray(2 * special.stdtr(freedom, -t), dtype=np.float64)
    significant = np.zeros(len(times), dtype=np.bool_)
    significant[others] = holm(p[others], rule.thresholds.alpha)
    effect_us = rule.thresholds.effect_ns(np.maximum(us, us[anchor]) * 1e3) / 1e3
    notable = significant & (np.abs(us - us[anchor]) >= effect_us)
    half = special.stdtrit(freedom, 0.5 + rule.thresholds.confidence / 2) * error
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


def _errors(times: Sequence[Timed], reference: int, measured: Noise) -> _Errors:
    """The largest error that anything shows: the copies, all orders together, its own orders, or its samples.

    A few orders say little of a configuration's own scatter, and where it comes out small by luck, noise looks like a
    difference. So it is also moderated by that of all configurations and copies. Slow changes of pace show between
    orders alone: with a single one there is nothing but the copies and the samples. The copies' own scatter is in how
    they differ.
    """
    none = np.zeros(len(times))
    estimates = [none + measured.deviation**2]
    freedoms = [none + (measured.copies - 1)]
    own, pooled, pooled_freedom = _between_orders(times, reference, measured)
    estimates += [pooled, own, np.array([entry.sampling_variance for entry in times])]
    freedoms += [
        none + pooled_freedom,
        none + (len(times[reference].orders_us) - 1),
        # Samples within orders tell a part of the error: where they exceed what the orders came out at by luck, the
        # error is no better known than from the orders.
        np.minimum([float(entry.sampling_freedom) for entry in times], pooled_freedom),
    ]
    source = np.argmax(estimates, axis=0)
    source[reference] = 0
    here = (source, np.arange(len(times)))
    variance, freedom = np.array(estimates)[here], np.array(freedoms)[here]
    variance[reference] /= times[reference].copies
    # What is moderated shares the prior, which is treated as one estimate.
    return _Errors(variance, np.maximum(freedom, 1.0), np.where(source <= 1, source, -1))


def _between_orders(times: Sequence[Timed], reference: int, measured: Noise) -> tuple[Floats, Floats, float]:
    """Variance of each time as its own orders tell it, the same moderated, and the degrees of freedom of the latter.

    With a single order that is nothing: no variance, and no bound on the degrees of freedom. Orders are taken
    relative to the reference's, since what all share is no scatter; the reference's own are zero.
    """
    orders = np.log(np.array([entry.orders_us for entry in times]))
    count = orders.shape[1]
    own, pooled = np.zeros(len(times)), np.zeros(len(times))
    others = np.arange(len(times)) != reference
    if count < 2 or not others.any():
        return own, pooled, np.inf
    own[others] = (orders - orders[reference])[others].var(axis=1, ddof=1) / count
    known = own[others]
    if len(measured.orders_us) > 1:
        copies = np.log(np.array(measured.orders_us))
        # Each copy relative to the mean of the others, as a configuration is relative to the mean of all.
        apart = (copies - copies.mean(axis=0)) * len(copies) / (len(copies) - 1)
        known = np.concatenate([known, apart.var(axis=1, ddof=1) / count])
    drawn, freedom = moderated(known, count - 1)
    pooled[others] = drawn[: others.sum()]
    return own, pooled, freedom


def _freedom(errors: _Errors, anchor: int) -> Floats:
    """Degrees of freedom of the sum of each one's variance and the anchor's (Welch, Satterthwaite).

    Where both are the same estimate their sum is no better known than one of them.
    """
    variance, freedom = errors.variance, errors.freedom
    parts = variance**2 / freedom
    total = parts + parts[anchor]
    # Without any error t is zero or infinite, whatever the degrees of freedom.
    apart = np.divide((variance + variance[anchor]) ** 2, total, out=np.ones(len(total)), where=total > 0)
    same = (errors.common >= 0) & (errors.common == errors.common[anchor])
    return np.asarray(np.where(same, np.minimum(freedom, freedom[anchor]), apart), dtype=np.float64)


def _mean(us: Floats) -> float:
    """The geometric mean."""
    return float(np.exp(np.log(us).mean()))
