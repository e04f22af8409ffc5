"""Variances from few values each, moderated by what all of them together say (empirical Bayes).

G. K. Smyth, "Linear models and empirical Bayes methods for assessing differential expression in microarray
experiments", Statistical Applications in Genetics and Molecular Biology 3 (2004), article 3, section 6.2: the true
variances are taken to scatter as a scaled inverse chi-square, whose degrees of freedom and scale follow from the mean
and the variance of the logarithms of the estimates.
"""

from __future__ import annotations

import numpy as np
from scipy import special

from profkit.comparison.statistics import Floats

#: An estimate is not taken for less than this share of their median: times are quantised, so a few values may agree to
#: the last digit, and the logarithm of zero would outweigh all others.
LEAST_SHARE = 1e-3


def moderated(variances: Floats, freedom: int) -> tuple[Floats, float]:
    """The variances drawn towards their common value, and the degrees of freedom that each has then.

    Where they scatter no more than estimates of one variance do, each becomes their mean, with the degrees of freedom
    of all. A single one stays as it is.

    Args:
        variances: estimates that are independent of one another; at least one.
        freedom: degrees of freedom of each, at least 1.
    """
    if len(variances) == 1:
        return variances, float(freedom)
    everything = float(len(variances) * freedom)
    floor = LEAST_SHARE * np.median(variances)
    half = freedom / 2
    if floor > 0:
        logs = np.log(np.maximum(variances, floor)) - special.digamma(half) + np.log(half)
        excess = float(logs.var(ddof=1) - special.polygamma(1, half))
        if excess > 0:
            prior_half = _inverse_trigamma(excess)
            prior = 2 * prior_half
            scale = np.exp(logs.mean() + special.digamma(prior_half) - np.log(prior_half))
            drawn = (prior * scale + freedom * variances) / (prior + freedom)
            return np.asarray(drawn, dtype=np.float64), min(prior + freedom, everything)
    return np.full(len(variances), variances.mean()), everything


def _inverse_trigamma(value: float) -> float:
    """Where the trigamma function has a positive value: Newton's method on its reciprocal (Smyth 2004, appendix)."""
    y = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(special.polygamma(1, y))
        step = trigamma * (1 - trigamma / value) / float(special.polygamma(2, y))
        y += step
        if abs(step) < 1e-9 * y:
            break
    return y
