"""The variants and shapes of the combine workloads. Imports no torch."""

from __future__ import annotations

from profkit.kernels.dcp.exchange import EXCHANGE, RANKS
from profkit.model.workload import Shape

#: Name to one-line description; the first is the baseline. For every workload that runs the all-to-all combine.
COMBINE_VARIANTS = {
    "eager": "the mask as eight eager kernels in every layer",
    "fused": "the mask inside the pack kernel",
    "fused-planar": "as fused; in the buffers a rank's LSEs follow all its outputs, so that accesses are 16 bytes wide",
    "fused-padded": "as fused; in the buffers an LSE has 16 bytes, so that accesses are as wide",
    "hoisted": "the row mask once a step, one masked_fill per layer",
    "hoisted-pack": "the row mask once a step, read inside the pack kernel",
    "dropped": "no mask at all: the negative control, whose results are wrong",
}

AG_RS_VARIANTS = {
    "eager": "the mask as eight eager kernels in every layer, behind a copy where the LSE is not contiguous",
    "fused": "one kernel that masks the LSE and copies it, whatever its strides",
    "dropped": "no mask at all: the negative control, whose results are wrong",
}

#: Of the workloads that are a GEMM and a combine a layer.
COMBINE_SHAPES = {
    "rows": Shape(56, "rows of the batch, padding included"),
    "requests": Shape(0, "requests, one row each; 0 means 13 of every 14 rows: 52 of 56, the rest padding"),
    "heads": Shape(96, "attention heads of all ranks together"),
    "ranks": RANKS,
    "exchange": EXCHANGE,
    "head_dim": Shape(512, "width of one head's output, a power of two"),
    "layers": Shape(24, "MLA layers in a step"),
    "gemm_in": Shape(1536, "input width of the layer's GEMM"),
    "gemm_out": Shape(2304, "output width of the layer's GEMM (q_b: 12 heads of 192)"),
    "dtype": Shape("bf16", "dtype of the attention output and the GEMM", choices=("bf16", "fp16", "fp32")),
}
