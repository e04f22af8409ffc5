"""When a difference of times counts."""

from __future__ import annotations

from dataclasses import dataclass

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
        alpha: chance of at least one false "changed" among all kernels of a diff.
        min_us, min_share: a smaller difference does not count, nor does a smaller share of the kernel's time. For
            replays of one process a side these are above all that was seen between processes.
    """

    confidence: float = 0.95
    alpha: float = 0.05
    min_us: float = 0.1
    min_share: float = 0.03

    def effect_ns(self, larger_ns: Floats) -> Floats:
        """The smallest difference that counts for launches of such times (the larger of before and after)."""
        return np.maximum(self.min_us * 1e3, self.min_share * larger_ns)


#: Over independent runs the interval itself covers what differs between processes; the minimum effect only keeps out
#: what nobody would act on.
OVER_RUNS = Thresholds(min_us=0.05, min_share=0.01)
