"""The variants of the combine, for every workload that runs one. Imports no torch."""

from __future__ import annotations

#: Name to one-line description; the first is the baseline.
COMBINE_VARIANTS = {
    "eager": "the mask as eight eager kernels in every layer",
    "fused": "the mask inside the pack kernel",
    "hoisted": "the row mask once a step, one masked_fill per layer",
    "hoisted-pack": "the row mask once a step, read inside the pack kernel",
    "dropped": "no mask at all: the negative control, whose results are wrong",
}
