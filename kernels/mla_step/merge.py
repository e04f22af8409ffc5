"""The second half of split decode attention: the splits' outputs, weighted by their LSEs."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["num_rows"])  # type: ignore[untyped-decorator]
def merge_kernel(
    partial_ptr: tl.tensor,
    partial_lse_ptr: tl.tensor,
    out_ptr: tl.tensor,
    lse_ptr: tl.tensor,
    num_rows: tl.tensor,
    HEADS: tl.constexpr,
    LATENT: tl.constexpr,
    SPLITS: tl.constexpr,
) -> None:
    """One (head, row). Where no split saw a token, nothing is written: see `decode` for what stays."""
    target = tl.program_id(1).to(tl.int64) * HEADS + tl.program_id(0)
    dim = tl.arange(0, LATENT)
    stride = num_rows.to(tl.int64) * HEADS
    highest = float("-inf")
    for split in tl.static_range(SPLITS):
        highest = tl.maximum(highest, tl.load(partial_lse_ptr + split * stride + target))
    if highest > float("-inf"):
        total = 0.0
        merged = tl.zeros([LATENT], dtype=tl.float32)
        for split in tl.static_range(SPLITS):
            weight = tl.exp2(tl.load(partial_lse_ptr + split * stride + target) - highest)
            part = tl.load(partial_ptr + (split * stride + target) * LATENT + dim)
            # A split without tokens leaves what an earlier batch wrote, which may be NaN.
            part = tl.where(weight > 0, part, 0.0)
            merged += part * weight
            total += weight
        tl.store(out_ptr + target * LATENT + dim, (merged / total).to(out_ptr.dtype.element_ty))
        # Base 2 to natural: ln 2.
        tl.store(lse_ptr + target, (highest + tl.log2(total)) * 0.6931471805599453)
