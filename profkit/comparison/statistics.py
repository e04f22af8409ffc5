"""Differences of means with confidence intervals, many at once, and when a difference counts.

The samples are per-step times of one process each side. Replays of one process are not independent runs: they share
clocks, addresses and cache state. So an interval here speaks of these two processes, and a minimum effect stands beside
significance to cover what differs from process to process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Thresholds:
    """When a difference of times counts, with the reason for each number.

    The minimum effect covers what differs from process to process without a cause. In 58 captures of dcp-combine in
    processes of their own on H200s, the means of one kernel in two captures of one arm differed by at most 0.062 µs and
    2.7 % (docs/results/dcp-combine-h200.md).

    Args:
        confidence: of the intervals shown.
        alpha: chance of at least one false "changed" among all kernels of a diff, by `correction`.
        min_us, min_share: a smaller difference does not count, nor does a smaller share of the kernel's time. For
            replays of one process a side these are above all that was seen between processes.
    """

    confidence: float = 0.95
    alpha: float = 0.05
    correction: Literal["Holm"] = "Holm"
    min_us: float = 0.1
    min_share: float = 0.03

    def effect_ns(self, larger_ns: Floats) -> Floats:
        """The smallest difference that counts for launches of such times (the larger of before and after)."""
        return np.maximum(self.min_us * 1e3, self.min_share * larger_ns)


#: Over independent runs the interval itself covers what differs between processes; the minimum effect only keeps out
#: what nobody would act on.
OVER_RUNS = Thresholds(min_us=0.05, min_share=0.01)


@dataclass(frozen=True)
class Differences:
    """After minus before for many rows, in nanoseconds; NaN where a side has fewer than two samples.

    Args:
        delta, low, high: the difference of means and its confidence interval (Welch).
        p: two-sided, each on its own.
        significant: with Holm's correction over all rows, at `Thresholds.alpha`.
        notable: significant, and at least the minimum effect.
    """

    delta: Floats
    low: Floats
    high: Floats
    p: Floats
    significant: npt.NDArray[np.bool_]
    notable: npt.NDArray[np.bool_]


def differences(before: Floats, after: Floats, thresholds: Thresholds) -> Differences:
    """Compare each row of `before` (shape [rows, n]) with the same row of `after` (shape [rows, m]), nanoseconds."""
    from scipy import special  # slow to import, and only a diff needs it

    n, m = before.shape[1], after.shape[1]
    delta = after.mean(axis=1) - before.mean(axis=1) if n and m else np.full(len(before), np.nan)
    if n < 2 or m < 2:
        nan = np.full(len(before), np.nan)
        no = np.zeros(len(before), dtype=np.bool_)
        return Differences(delta, nan, nan, nan, no, no)
    part_before, part_after = before.var(axis=1, ddof=1) / n, after.var(axis=1, ddof=1) / m
    error = np.sqrt(part_before + part_after)
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = (part_before + part_after) ** 2 / (part_before**2 / (n - 1) + part_after**2 / (m - 1))
        t = np.where(error > 0, np.abs(delta) / error, np.where(delta == 0, 0.0, np.inf))
    freedom = np.where(np.isfinite(freedom), freedom, n + m - 2)
    p = np.asarray(2 * special.stdtr(freedom, -t), dtype=np.float64)
    half = special.stdtrit(freedom, 0.5 + thresholds.confidence / 2) * error
    significant = holm(p, thresholds.alpha)
    effect = thresholds.effect_ns(np.maximum(before.mean(axis=1), after.mean(axis=1)))
    return Differences(delta, delta - half, delta + half, p, significant, significant & (np.abs(delta) >= effect))


def holm(p: Floats, alpha: float) -> npt.NDArray[np.bool_]:
    """Which of many hypotheses are rejected with a family-wise error of `alpha` (Holm 1979)."""
    order = np.argsort(p, kind="stable")
    passes = p[order] <= alpha / np.arange(len(p), 0, -1)
    rejected = np.zeros(len(p), dtype=np.bool_)
    rejected[order] = np.cumsum(~passes) == 0
    return rejected
